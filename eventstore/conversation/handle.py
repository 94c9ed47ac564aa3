# Generated from handle_async.py by ops/generate_sync.py: edit that one.
"""The handle of a conversation: a stream, and what its events come to."""

from __future__ import annotations

from eventstore.conversation.stream import Stream


class Conversation(Stream):
    """One thread of events. Make one with ``store.conversation(name)``; many may stand for the same stream."""
