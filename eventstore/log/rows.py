"""Rows of the read functions as Python values."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from eventstore.errors import ConvstoreError, EventUndecodable
from eventstore.log import catalogue, codec
from eventstore.log.events import RecordedEvent, UndecodableEvent


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream of the directory. ``parent`` owns the event at ``fork_at``; both are None where it is no branch."""

    name: str
    context: str
    tags: dict[str, str]
    head: int
    closed: bool
    created_at: datetime
    recorded_at: datetime
    parent: str | None
    fork_at: int | None


class Part(NamedTuple):
    """Versions ``first`` to ``last`` of a branch, and the stream that owns them."""

    stream: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class StreamPage:
    """A page of streams in order of name; ``after`` is what the next call is given, None at the end."""

    streams: list[StreamInfo]
    after: str | None


def kin(streams: Sequence[StreamInfo], name: str) -> list[StreamInfo]:
    """Pick out of a context's streams those that descend from the same root as one of them, parents first."""
    by_name = {stream.name: stream for stream in streams}
    root = by_name.get(name)
    for _ in streams:  # not for ever, should the rows have been tampered with
        root = root if root is None or root.parent is None else by_name.get(root.parent)
    branches: dict[str | None, list[StreamInfo]] = {}
    for stream in streams:
        branches.setdefault(stream.parent, []).append(stream)
    found = [] if root is None else [root]
    for stream in found:  # grows meanwhile
        found += sorted(branches.pop(stream.name, ()), key=lambda branch: (branch.fork_at or 0, branch.created_at))
    return found


class Blocker(NamedTuple):
    """A transaction in flight that holds the feed back.

    ``pid`` is None for a prepared one, which ``who`` names; ``who`` and ``query`` are None for a login that is not
    bound to all tenants.
    """

    pid: int | None
    age_s: float | None
    who: str | None
    state: str | None
    query: str | None


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Events after a cursor in order of position, and where to go on; ``blocked_by`` where nothing came for it.

    ``more``: the page was cut short, and the next one can be read at once. An event that can't be decoded is an
    ``UndecodableEvent`` among the others.
    """

    events: list[RecordedEvent]
    cursor: str | None
    blocked_by: Blocker | None
    more: bool = False


@dataclass(frozen=True, slots=True)
class FeedState:
    """How far the feed is, how far a reader is behind, and who holds it back.

    ``lag_events`` counts what is committed behind the reader's cursor, whether the feed gives it already or a writer
    in flight holds it back; ``lag_capped`` where it stopped counting. ``lag_seconds`` is the age of the oldest of
    them, 0 where there is none. ``open_writers`` counts transactions in flight that appended, in all tenants; None on
    a stand-by, which can't see them.
    """

    cursor: str | None
    """Where a reader begins that wants only what comes from now on; None where there is nothing yet."""
    position: int
    """Of the last event that the feed gives, of the tenant or of all; 0 where there is none."""
    lag_events: int
    lag_capped: bool
    lag_seconds: float
    open_writers: int | None
    blocked_by: Blocker | None
    """The one in flight that appended first; None where there is none."""

    @property
    def blocked_seconds(self) -> float:
        """Age of the transaction that holds the feed back; 0 where none does, or where its age isn't shown."""
        return (self.blocked_by.age_s or 0.0) if self.blocked_by is not None else 0.0


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair found wrong, and what it did, a line each; with ``dry_run`` all was undone.

    Every position drawn afterwards is above ``position``; cursors of another ``incarnation`` are refused.
    """

    faults: tuple[str, ...]
    done: tuple[str, ...]
    position: int
    incarnation: uuid.UUID
    dry_run: bool


def recorded(tenant: str, row: Sequence[Any], cursor: str | None = None) -> RecordedEvent:
    """Decode one row of ``read_events``; data of an older schema version is brought up to date.

    A type that is not known here is newer code's: its data is given as it is, since nobody here can take it for
    another. A known type's data of a newer version, broken JSON, and what an upcaster fails on make an
    ``UndecodableEvent``.
    """
    (
        context,
        stream,
        version,
        position,
        event_id,
        kind,
        schema_version,
        form,
        data,
        metadata,
        subject,
        agent,
        call_id,
        task_id,
        run_id,
        unique_key,
        recorded_at,
        digest,
    ) = row[:18]
    try:
        given = codec.decode(form, data)
        current = catalogue.upcast(kind, schema_version, given) if catalogue.knows(kind) else given
        beside = codec.decode_metadata(metadata)
    except MemoryError:
        raise
    except Exception as e:  # noqa: BLE001 - whatever a decoder or an upcaster says: the others' reader goes on
        return _undecodable(tenant, row, cursor, e)
    return RecordedEvent(
        tenant=tenant,
        context=context,
        stream=stream,
        version=version,
        position=position,
        event_id=event_id,
        type=kind,
        schema_version=schema_version,
        data=current,
        metadata=beside,
        subject=subject,
        agent=agent,
        call_id=call_id,
        task_id=task_id,
        run_id=run_id,
        unique_key=unique_key,
        recorded_at=recorded_at,
        hash=digest,
        cursor=cursor,
    )


def _undecodable(tenant: str, row: Sequence[Any], cursor: str | None, cause: Exception) -> UndecodableEvent:
    reason = str(cause) if isinstance(cause, ConvstoreError) else f"{type(cause).__name__}: {cause}"
    error = EventUndecodable(row[1], row[2], row[5], reason if len(reason) <= 500 else reason[:499] + "…")
    error.__cause__ = cause
    try:
        metadata: dict[str, Any] | None = codec.decode_metadata(row[9])
    except (ValueError, RecursionError):
        metadata = None
    return UndecodableEvent(
        tenant=tenant,
        context=row[0],
        stream=row[1],
        version=row[2],
        position=row[3],
        event_id=row[4],
        type=row[5],
        schema_version=row[6],
        format=row[7],
        raw_data=row[8],
        raw_metadata=row[9],
        metadata=metadata,
        subject=row[10],
        agent=row[11],
        call_id=row[12],
        task_id=row[13],
        run_id=row[14],
        unique_key=row[15],
        recorded_at=row[16],
        hash=row[17],
        cursor=cursor,
        error=error,
    )
