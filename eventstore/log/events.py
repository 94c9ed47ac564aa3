"""The shapes that the log speaks: an event to append, an event as recorded, the outcome of an append.

An event is an immutable fact in a stream. ``version`` is its 1-based offset in the stream, ``position`` its
place in the log of all streams.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

Json: TypeAlias = Any
"""Exactly dict with ``str`` keys, list, str, bool, None, int, finite float; depth at most 200."""

ITEM: Final = "item.appended"


class Expected:
    """A condition on the stream's head that is not a number: ``ANY``, ``NO_STREAM`` or ``EXISTS``."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


ANY: Final = Expected("ANY")
"""No condition: never conflicts."""
NO_STREAM: Final = Expected("NO_STREAM")
"""The stream has no event yet."""
EXISTS: Final = Expected("EXISTS")
"""The stream has at least one event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event to append: a type of the catalogue (or ``x.…``), its data, and what it is about.

    ``subject`` says which thing the event is about, ``unique_key`` makes a once-only rule (unique in the
    context), ``event_id`` defaults to one derived from the append's key, or to a random one.
    """

    type: str
    data: Json
    metadata: Mapping[str, Json] | None = None
    subject: str | None = None
    agent: str | None = None
    call_id: str | None = None
    task_id: str | None = None
    run_id: str | None = None
    unique_key: str | None = None
    event_id: uuid.UUID | str | None = None


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event as the log holds it. ``stream`` is the stream that owns it, also when read through a branch."""

    tenant: str
    context: str
    stream: str
    version: int
    position: int
    event_id: uuid.UUID
    type: str
    schema_version: int
    data: Json
    metadata: dict[str, Json]
    subject: str | None
    agent: str | None
    call_id: str | None
    task_id: str | None
    run_id: str | None
    unique_key: str | None
    recorded_at: dt.datetime
    hash: bytes
    cursor: str | None = field(default=None, repr=False, compare=False)
    """Where a reader of the feed that has dealt with this event goes on; None where it was read from its stream."""


class Entry(NamedTuple):
    """What a transcript shows at one place: the event's version, the item, and whether it is a summary."""

    version: int
    item: Json
    summary: bool = False


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where an append landed. ``position`` is that of the last event."""

    stream: str
    first_version: int
    last_version: int
    position: int
    deduplicated: bool
    event_ids: tuple[uuid.UUID, ...] = field(repr=False, default=())
