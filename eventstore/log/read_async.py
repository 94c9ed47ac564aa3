"""Reading a stream, in pages that stay small whatever an item weighs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, LiteralString

import orjson

from eventstore.log.connection_async import AsyncCaller
from eventstore.log.events import RecordedEvent
from eventstore.log.rows import StreamInfo, StreamPage, recorded

PAGE: Final = 1000
_HEAD: Final[LiteralString] = "SELECT convstore.stream_head($1, $2)"
_EVENTS: Final[LiteralString] = "SELECT * FROM convstore.read_events($1, $2, $3, $4, $5, $6)"
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
    """Yield the events of a stream from version ``first`` to ``last``, both inclusive, as they were recorded."""
    wanted = None if types is None else list(types)
    while last is None or first <= last:
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
