"""``import --from``: sessions of the OpenAI Agents SDK into the log.

Each message has an event id made of its row, so an import goes on where the last one ended: the same again writes
nothing, and a source that has grown adds what is new.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from eventstore import EventStore
from eventstore.adapters.cli import output
from eventstore.adapters.cli.sdk_sessions import Message, Source, Stored
from eventstore.conversation.handle import Conversation
from eventstore.errors import ConvstoreError
from eventstore.log import codec
from eventstore.log.batch import MAX_BATCH_BYTES
from eventstore.log.events import ITEM, Event
from eventstore.log.names import derived_ids
from eventstore.log.read import find

_KEY: Final = "import/openai"


@dataclass(slots=True)
class Count:
    """What an import of sessions has done so far; ``left_out`` names the rows that are no JSON."""

    streams: int = 0
    written: int = 0
    present: int = 0
    left_out: list[str] = field(default_factory=list)


def add_sessions(store: EventStore, source: Source, tally: Count) -> None:
    """Import all sessions.

    Raises:
        ConvstoreError: a session can't be imported; what was written stays.
    """
    sessions = source.sessions()
    with output.bar("importing", len(sessions)) as bar:
        for done, stored in enumerate(sessions, 1):
            try:
                _add(store, source, stored, tally)
            except ConvstoreError as e:
                e.add_note(f"in session {stored.name!r}")
                raise
            bar.at(done, stored.name)


def _add(store: EventStore, source: Source, stored: Stored, tally: Count) -> None:
    chat = store.conversation(stored.name, context=None if stored.name == stored.session_id else stored.session_id)
    counted = False
    for page in source.pages(stored):
        tally.left_out += [f"{stored.name}, row {message.row}" for message in page if not message.readable]
        items = [message for message in page if message.readable]
        known = _known(chat, items)
        tally.streams += bool(items) and not counted
        counted = counted or bool(items)
        tally.present += known
        for part in _parts(chat, items[known:]):
            chat.append_events(part)
            tally.written += len(part)


def _known(chat: Conversation, items: Sequence[Message]) -> int:
    """Count the messages of a page that are there: they were imported in order, so the first missing one tells."""
    low, high = 0, len(items)
    if items and _there(chat, items[-1]):
        return high
    while low < high:
        middle = (low + high) // 2
        if _there(chat, items[middle]):
            low = middle + 1
        else:
            high = middle
    return low


def _there(chat: Conversation, message: Message) -> bool:
    return find(chat.route.caller, chat.tenant, chat.name, event_id=_id(chat, message)) is not None


def _id(chat: Conversation, message: Message) -> uuid.UUID:
    return derived_ids(chat.tenant, chat.name, f"{_KEY}/{message.row}", 1)[0]


def _parts(chat: Conversation, items: Sequence[Message]) -> list[list[Event]]:
    parts: list[list[Event]] = []
    size = 0
    for message in items:
        weight = len(codec.encode(message.item, f"row {message.row}")[1])
        if not parts or size + weight > MAX_BATCH_BYTES:
            parts.append([])
            size = 0
        size += weight
        parts[-1].append(
            Event(type=ITEM, data=message.item, event_id=_id(chat, message), metadata={"imported_row": message.row})
        )
    return parts
