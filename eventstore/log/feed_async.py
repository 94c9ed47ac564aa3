"""Reading the feed: every committed event once, in an order in which streams keep theirs, and no writer waits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, LiteralString

import psycopg

from eventstore.errors import CursorInvalid, StoreUnavailable
from eventstore.log import cursors, faults
from eventstore.log.connection_async import AsyncCaller
from eventstore.log.events import RecordedEvent
from eventstore.log.pause import pause_async
from eventstore.log.rows import Blocker, FeedPage, recorded
from eventstore.telemetry import logger

SHORTEST: Final = 0.002
LONGEST: Final = 0.25
_FEED: Final[LiteralString] = "SELECT * FROM convstore.read_feed($1, $2, $3, $4, $5)"
_BLOCKERS: Final[LiteralString] = "SELECT pid, age_s, who, state, query FROM convstore.feed_blockers()"


async def feed_async(
    caller: AsyncCaller, tenant: str | None, after: str | None, types: Sequence[str] | None, limit: int
) -> FeedPage:
    """Read a page in one round trip; ``tenant`` None: of all tenants.

    Raises ``CursorInvalid`` for a cursor that is none, of another incarnation, or ahead of the log, and
    ``IsolationLevelError`` in a transaction that can't serve it.
    """
    place = cursors.decode(after)
    try:
        rows = await caller.call(
            _FEED,
            [tenant, place.position, place.incarnation, None if types is None else list(types), limit],
            tenant=tenant,
            action="read the feed",
            role="convstore_reader",
        )
    except psycopg.Error as e:
        if e.sqlstate == faults.CURSOR:
            raise CursorInvalid(after, f"{e.diag.message_primary}; {e.diag.message_hint}") from e
        raise
    *events, last = rows
    incarnation, held = last[19], last[20]
    found = [recorded(row[0], row[1:19], cursors.encode(row[4], incarnation)) for row in events]
    cursor = cursors.encode(last[4], incarnation) if last[4] > 0 else after
    blocker = await blocked_by_async(caller, tenant) if held and not found else None
    return FeedPage(found, cursor, blocker)


async def blocked_by_async(caller: AsyncCaller, tenant: str | None) -> Blocker | None:
    """Return who holds the feed back most, None where nobody does."""
    rows = await caller.call(_BLOCKERS, [], tenant=tenant, action="read the feed", role="convstore_reader")
    return Blocker(*rows[0]) if rows else None


async def subscribe_async(
    caller: AsyncCaller, tenant: str | None, after: str | None, types: Sequence[str] | None
) -> AsyncIterator[RecordedEvent]:
    """Yield events as they are committed, for ever; the next page is read when the last one was taken.

    At least once: who keeps ``event.cursor`` after dealing with an event goes on there. An idle feed is asked less and
    less often, four times a second at the least. A store that can't be reached is waited for.
    """
    wait = SHORTEST
    while True:
        try:
            page = await feed_async(caller, tenant, after, types, 1000)
        except StoreUnavailable as e:
            logger(tenant=tenant).warning("the feed waits for the store", error=str(e))
            await pause_async(LONGEST)
            continue
        for event in page.events:
            yield event
        wait = SHORTEST if page.events else min(wait * 2, LONGEST)
        after = page.cursor
        if not page.events:
            await pause_async(wait)
