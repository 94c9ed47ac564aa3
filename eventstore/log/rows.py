"""Rows of the read functions as Python values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from eventstore.log import catalogue, codec
from eventstore.log.events import RecordedEvent


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
    while root is not None and root.parent is not None:
        root = by_name.get(root.parent)
    branches: dict[str | None, list[StreamInfo]] = {}
    for stream in streams:
        branches.setdefault(stream.parent, []).append(stream)
    found = [] if root is None else [root]
    for stream in found:  # grows meanwhile
        found += sorted(branches.get(stream.name, ()), key=lambda branch: (branch.fork_at or 0, branch.created_at))
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
    """Events after a cursor in order of position, and where to go on; ``blocked_by`` where nothing came for it."""

    events: list[RecordedEvent]
    cursor: str | None
    blocked_by: Blocker | None


def recorded(tenant: str, row: Sequence[Any], cursor: str | None = None) -> RecordedEvent:
    """Decode one row of ``read_events``; data of an older schema version is brought up to date."""
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
    return RecordedEvent(
        tenant=tenant,
        context=context,
        stream=stream,
        version=version,
        position=position,
        event_id=event_id,
        type=kind,
        schema_version=schema_version,
        data=catalogue.upcast(kind, schema_version, codec.decode(form, data)),
        metadata=codec.decode_metadata(metadata),
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
