"""The handle of a conversation: a stream, and what its events come to."""

from __future__ import annotations

from eventstore.conversation.stream_async import AsyncStream


class AsyncConversation(AsyncStream):
    """One thread of events. Make one with ``store.conversation(name)``; many may stand for the same stream."""
