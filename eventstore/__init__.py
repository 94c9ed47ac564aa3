"""The event-sourced conversation store for AI agents, on Postgres."""

from eventstore import errors
from eventstore.conversation.handle import Conversation
from eventstore.conversation.handle_async import AsyncConversation
from eventstore.log.audit import VerifyReport
from eventstore.log.catalogue.envelope import Envelope
from eventstore.log.events import ANY, EXISTS, NO_STREAM, AppendResult, Event, RecordedEvent
from eventstore.log.rows import FeedPage, StreamInfo, StreamPage
from eventstore.store import EventStore
from eventstore.store_async import AsyncEventStore

__all__ = [
    "ANY",
    "EXISTS",
    "NO_STREAM",
    "AppendResult",
    "AsyncConversation",
    "AsyncEventStore",
    "Conversation",
    "Envelope",
    "Event",
    "EventStore",
    "FeedPage",
    "RecordedEvent",
    "StreamInfo",
    "StreamPage",
    "VerifyReport",
    "errors",
]
