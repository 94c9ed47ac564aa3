# Generated from feed_async.py by ops/generate_sync.py: edit that one.
"""Reading the feed: every committed event once, in an order in which streams keep theirs, and no writer waits."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from typing import Any, Final, LiteralString

import psycopg

from eventstore.errors import CursorInvalid
from eventstore.log import cursors, faults
from eventstore.log.connection import Caller, Row
from eventstore.log.rows import Blocker, FeedPage, FeedState, recorded

LAG_COUNTED: Final = 10_000
"""Events behind a cursor that are counted at most."""
_FEED: Final[LiteralString] = """SELECT f.*, CASE WHEN f.version IS NULL THEN convstore.check_cursor($2, $6) END
    FROM convstore.read_feed($1, $2, $3, $4, $5) f"""
_STATE: Final[LiteralString] = """SELECT s.*, at.*, convstore.check_cursor($2, $5)
    FROM convstore.feed_state($1, $2, $3, $4) s
    LEFT JOIN LATERAL convstore.last_event_at($1, s.position) at ON true"""
_LAST: Final[LiteralString] = "SELECT * FROM convstore.last_event_at($1, $2)"
_BLOCKERS: Final[LiteralString] = "SELECT pid, age_s, who, state, query FROM convstore.feed_blockers()"


def feed(caller: Caller, tenant: str | None, after: str | None, types: Sequence[str] | None, limit: int) -> FeedPage:
    """Read a page in one round trip; ``tenant`` None: of all tenants.

    Raises ``CursorInvalid`` for a cursor that is none, of another incarnation, of an event that is not there any more,
    or ahead of the log, and ``IsolationLevelError`` in a transaction that can't serve it.
    """
    place = cursors.decode(after)
    *events, last = _ask(caller, _FEED, tenant, after, [None if types is None else list(types), limit])
    incarnation, held = last[19], last[20]
    found = [recorded(row[0], row[1:19], _cursor(row[4], row[17], row[18], incarnation)) for row in events]
    cursor = _cursor(last[4], last[17], last[18], incarnation) if last[4] > place.position else after
    blocker = blocked_by(caller, tenant) if held and not found else None
    return FeedPage(found, cursor, blocker, more=held is None)


def feed_state(caller: Caller, tenant: str | None, after: str | None) -> FeedState:
    """Tell how far the feed is and how far a reader at ``after`` is behind; raises what ``feed_async`` raises."""
    ((_, position, events, seconds, writers, blocked, *rest),) = _ask(caller, _STATE, tenant, after, [LAG_COUNTED])
    return FeedState(
        cursor=None if rest[5] is None else _cursor(*rest[5:9]),
        position=position,
        lag_events=events,
        lag_capped=events == LAG_COUNTED,
        lag_seconds=seconds,
        open_writers=writers,
        blocked_by=Blocker(*rest[:5]) if blocked else None,
    )


def _ask(caller: Caller, query: LiteralString, tenant: str | None, after: str | None, rest: list[Any]) -> list[Row]:
    place = cursors.decode(after)
    params = [tenant, place.position, place.incarnation, *rest, place.mark]
    try:
        return caller.call(query, params, tenant=tenant, action="read the feed", role="convstore_reader")
    except psycopg.Error as e:
        if e.sqlstate == faults.CURSOR:
            raise CursorInvalid(after, f"{e.diag.message_primary}; {e.diag.message_hint}") from e
        raise


def _cursor(position: int, recorded_at: dt.datetime, digest: bytes, incarnation: uuid.UUID) -> str:
    return cursors.encode(position, incarnation, cursors.mark(digest, recorded_at))


def cursor_at(caller: Caller, tenant: str | None, position: int) -> str | None:
    """Return the cursor of the last event at or below a position, None where there is none."""
    rows = caller.call(_LAST, [tenant, position], tenant=tenant, action="read the feed", role="convstore_reader")
    return None if rows[0][0] is None else _cursor(*rows[0])


def blocked_by(caller: Caller, tenant: str | None) -> Blocker | None:
    """Return who holds the feed back most, None where nobody does."""
    rows = caller.call(_BLOCKERS, [], tenant=tenant, action="read the feed", role="convstore_reader")
    return Blocker(*rows[0]) if rows else None
