"""The event-sourced conversation store for AI agents, on Postgres."""

from eventstore import errors
from eventstore.conversation.handle import Conversation
from eventstore.conversation.handle_async import AsyncConversation
from eventstore.log.artifacts import Artifact
from eventstore.log.audit import VerifyReport
from eventstore.log.catalogue.envelope import Envelope
from eventstore.log.events import ANY, EXISTS, NO_STREAM, AppendResult, Event, RecordedEvent, UndecodableEvent
from eventstore.log.rows import FeedPage, FeedState, RepairReport, StreamInfo, StreamPage
from eventstore.log.subscription import Subscription
from eventstore.log.subscription_async import AsyncSubscription
from eventstore.store import EventStore
from eventstore.store_async import AsyncEventStore

__all__ = [
    "ANY",
    "EXISTS",
    "NO_STREAM",
    "AppendResult",
    "Artifact",
    "AsyncConversation",
    "AsyncEventStore",
    "AsyncSubscription",
    "Conversation",
    "Envelope",
    "Event",
    "EventStore",
    "FeedPage",
    "FeedState",
    "RecordedEvent",
    "RepairReport",
    "StreamInfo",
    "StreamPage",
    "Subscription",
    "UndecodableEvent",
    "VerifyReport",
    "errors",
]
