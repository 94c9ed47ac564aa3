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

from eventstore.errors import EventUndecodable

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


class UndecodableEvent(RecordedEvent):
    """A recorded event that can't be decoded: all of its columns, and in place of its data the bytes and the error.

    ``.data`` raises ``.error``, and so does ``.metadata`` where that is what can't be read: code that takes it for an
    event like others fails there and not later. Code that can go on without it looks for this class, keeps
    ``.raw_data``, and takes ``.cursor`` as of any event.
    """

    __slots__ = ("_metadata", "error", "format", "raw_data", "raw_metadata")

    error: EventUndecodable
    """Why not; its ``__cause__`` is what the decoder said."""
    format: int
    """Whose reading of ``raw_data`` was meant: 1 orjson's, 2 the standard library's."""
    raw_data: bytes
    raw_metadata: bytes | None
    _metadata: dict[str, Json] | None

    def __init__(self, *, metadata: dict[str, Json] | None, **columns: Any) -> None:
        for name, value in columns.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_metadata", metadata)

    @property
    def data(self) -> Json:
        """Raise the error."""
        raise self.error.with_traceback(None)

    @property
    def metadata(self) -> dict[str, Json]:
        """Return the metadata, or raise the error where they can't be decoded."""
        if self._metadata is None:
            raise self.error.with_traceback(None)
        return self._metadata

    def __repr__(self) -> str:
        where = f"stream={self.stream!r}, version={self.version}, position={self.position}, type={self.type!r}"
        return f"UndecodableEvent({where}, error={self.error.reason!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UndecodableEvent) and self.hash == other.hash

    def __hash__(self) -> int:
        return hash(self.hash)


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where an append landed. ``position`` is that of the last event."""

    stream: str
    first_version: int
    last_version: int
    position: int
    deduplicated: bool
    event_ids: tuple[uuid.UUID, ...] = field(repr=False, default=())
