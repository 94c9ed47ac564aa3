"""Events that were parked: which there are, and applying them once their cause was mended.

Where the order counts, those that waited behind one are read from the log again and follow it. The build's claim is
held meanwhile, so nothing new goes past them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, LiteralString

import psycopg

from eventstore.log import cursors
from eventstore.log.connection_async import AsyncBound
from eventstore.log.events import RecordedEvent
from eventstore.log.feed_async import feed_async
from eventstore.projecting.applying_async import AsyncBatch
from eventstore.projecting.builds_async import locked_async
from eventstore.projecting.rows import Build, Parked, Replayed
from eventstore.projecting.statements_async import run_async
from projections.projection import Projection, place

_PARKED: Final[
    LiteralString
] = """SELECT p.name, p.version, p.state, k.build, k.position, k.tenant, k.context, k.stream,
    k.version, k.event_id, k.type, k.error, k.attempts, k.held, k.parked_at
    FROM convstore.parked k JOIN convstore.projections p USING (build)
    WHERE p.state <> 'retired' AND ($1::text IS NULL OR p.name = $1) AND ($2::bigint IS NULL OR k.position = $2)
      AND k.position > $3 ORDER BY p.name, k.build, k.position"""
_TAKE_OUT: Final[LiteralString] = (
    """DELETE FROM convstore.parked WHERE (build, position) = ($1, $2) RETURNING attempts"""
)
_AGAIN: Final[LiteralString] = """UPDATE convstore.parked SET attempts = $3 WHERE (build, position) = ($1, $2)"""
_DONE: Final[LiteralString] = """UPDATE convstore.projections SET applied = applied + $2,
    parked = (SELECT count(*) FROM convstore.parked WHERE build = $1) WHERE build = $1"""


async def parked_async(
    conn: psycopg.AsyncConnection[Any], name: str | None, position: int | None = None
) -> list[Parked]:
    """Return the parked events of a projection, or of all."""
    return [Parked(*row) for row in await run_async(conn, _PARKED, [name, position, 0])]


async def replay_async(
    conn: psycopg.AsyncConnection[Any], projection: Projection, parked: Parked, limit: int
) -> Replayed | None:
    """Apply a parked event and what waited behind it, in one transaction; None where it is parked no more."""
    async with conn.transaction():
        build = await locked_async(conn, parked.build)
        if build is None or build.cursor is None:
            return None
        taken = await run_async(conn, _TAKE_OUT, [build.build, parked.position])
        if not taken:
            return None
        batch = AsyncBatch(conn, projection, build)
        async for events in _waiting(conn, projection, build, parked, limit):
            await batch.apply(events, last_try=True)
        if batch.outcome.stopped is not None:
            batch.outcome.parked.append(batch.outcome.stopped)
        await batch.note()
        for event, _ in batch.outcome.parked:
            if event.position == parked.position:
                await run_async(conn, _AGAIN, [build.build, parked.position, taken[0][0] + 1])
        await run_async(conn, _DONE, [build.build, batch.outcome.applied])
        error = str(batch.outcome.parked[0][1]) if batch.outcome.parked else None
        return Replayed(parked, batch.outcome.applied, error)


async def _waiting(
    conn: psycopg.AsyncConnection[Any], projection: Projection, build: Build, parked: Parked, limit: int
) -> AsyncIterator[Sequence[RecordedEvent]]:
    """Yield the parked event, then those behind it that the build has gone past, a page each."""
    incarnation = cursors.decode(build.cursor).incarnation
    assert incarnation is not None  # noqa: S101 - a build that parked something has read something
    after: str | None = cursors.encode(parked.position - 1, incarnation)
    own: tuple[str | None, str | None] | None = None
    first = True
    while True:
        page = await feed_async(AsyncBound(conn), None, after, projection.types, 1 if first else limit)
        if first and page.events and page.events[0].position == parked.position:
            own = place(projection, page.events[0])
        mine = [
            event
            for event in page.events
            if event.position <= build.position
            and (event.position == parked.position or (own is not None and place(projection, event) == own))
        ]
        if mine:
            yield mine
        after = page.cursor
        past = not page.events or page.events[-1].position >= build.position
        if own is None or past:
            return
        first = False
