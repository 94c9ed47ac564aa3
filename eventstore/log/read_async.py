"""Reading a stream, in pages that stay small whatever an item weighs."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, LiteralString

import orjson

from eventstore.log.connection_async import AsyncCaller
from eventstore.log.events import RecordedEvent
from eventstore.log.rows import Part, StreamInfo, StreamPage, kin, recorded

PAGE: Final = 1000
_HEAD: Final[LiteralString] = "SELECT convstore.stream_head($1, $2)"
_EVENTS: Final[LiteralString] = "SELECT * FROM convstore.read_events($1, $2, $3, $4, $5, $6)"
_FIND: Final[LiteralString] = "SELECT * FROM convstore.find_event($1, $2, $3, $4, $5, $6)"
_LINEAGE: Final[LiteralString] = "SELECT * FROM convstore.stream_lineage($1, $2)"
_FAMILY: Final[LiteralString] = "SELECT * FROM convstore.list_family($1, $2)"
_STREAMS: Final[LiteralString] = "SELECT * FROM convstore.list_streams($1, $2, $3, $4, $5)"


async def head_async(caller: AsyncCaller, tenant: str, stream: str) -> int:
    """Return the version of the last event; 0 where the stream does not exist."""
    rows = await caller.call(_HEAD, [tenant, stream], tenant=tenant, action="read", role="convstore_reader")
    head: int = rows[0][0]
    return head


async def events_async(
    caller: AsyncCaller,
    tenant: str,
    stream: str,
    first: int,
    last: int | None,
    types: Sequence[str] | None,
) -> AsyncIterator[RecordedEvent]:
    """Yield the events of a stream from version ``first`` to ``last``, both inclusive, as they were recorded.

    On a branch that is its parents' part too. ``first`` below 0 counts from the head.
    """
    wanted = None if types is None else list(types)
    while last is None or first < 0 or first <= last:
        rows = await caller.call(
            _EVENTS,
            [tenant, stream, first, last, wanted, PAGE],
            tenant=tenant,
            action="read",
            role="convstore_reader",
        )
        for row in rows:
            yield recorded(tenant, row)
        if not rows or len(rows) == rows[0][-1] < PAGE:
            return
        first = rows[-1][2] + 1


async def find_async(
    caller: AsyncCaller,
    tenant: str,
    stream: str,
    *,
    event_id: uuid.UUID | None = None,
    kind: str | None = None,
    subject: str | None = None,
    at: int | None = None,
) -> RecordedEvent | None:
    """Return the stream's own event of an id, or the last of a type, perhaps about a subject, at or before a version.

    By type, a branch has its parents' events too.
    """
    rows = await caller.call(
        _FIND, [tenant, stream, event_id, kind, subject, at], tenant=tenant, action="read", role="convstore_reader"
    )
    return recorded(tenant, rows[0]) if rows else None


async def streams_async(
    caller: AsyncCaller,
    tenant: str,
    context: str | None,
    tags: Mapping[str, str] | None,
    after: str | None,
    limit: int,
) -> StreamPage:
    """Return a page of the tenant's streams."""
    wanted = None if tags is None else orjson.dumps(dict(tags)).decode()
    rows = await caller.call(
        _STREAMS,
        [tenant, context, wanted, after, limit],
        tenant=tenant,
        action="read",
        role="convstore_reader",
    )
    streams = [StreamInfo(*row) for row in rows]
    return StreamPage(streams, streams[-1].name if len(streams) == limit else None)


async def lineage_async(caller: AsyncCaller, tenant: str, stream: str) -> list[Part]:
    """Return which streams own which versions of a branch, the root's first; none where it does not exist."""
    rows = await caller.call(_LINEAGE, [tenant, stream], tenant=tenant, action="read", role="convstore_reader")
    return [Part(name, after + 1, upto) for name, after, upto in rows]


async def family_async(caller: AsyncCaller, tenant: str, stream: str) -> list[StreamInfo]:
    """Return the root that a stream descends from and all branches of it, parents before their branches."""
    rows = await caller.call(_FAMILY, [tenant, stream], tenant=tenant, action="read", role="convstore_reader")
    return kin([StreamInfo(*row) for row in rows], stream)
