"""Reading what the log holds about effects, with the server's time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, LiteralString

from eventstore.log.connection_async import AsyncCaller
from eventstore.log.events import RecordedEvent
from eventstore.log.names import storable
from eventstore.log.rows import recorded

PAGE: Final = 1000
_EVENTS: Final[LiteralString] = "SELECT * FROM convstore.effect_events($1, $2, $3, $4)"
_LIST: Final[LiteralString] = "SELECT * FROM convstore.list_effects($1, $2, $3, $4, $5, $6, $7)"
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


async def read_effect_async(
    caller: AsyncCaller, tenant: str, stream: str, context: str | None, key: str
) -> tuple[list[RecordedEvent], datetime]:
    """Return the events about the effect ``key`` in a stream's context, and what time it was at the server.

    ``context`` counts where the stream does not exist yet.
    """
    rows = await caller.call(
        _EVENTS,
        [tenant, stream, context, storable("effect key", key)],
        tenant=tenant,
        action="read",
        role="convstore_reader",
    )
    return [recorded(tenant, row) for row in rows], rows[-1][18] if rows else _EPOCH


async def list_effects_async(
    caller: AsyncCaller, tenant: str, stream: str, context: str | None
) -> tuple[list[RecordedEvent], datetime]:
    """Return the events about all effects in a stream's context, and what time it was at the server at last."""
    found: list[RecordedEvent] = []
    after: list[object] = [0, "", 0]
    while True:
        rows = await caller.call(
            _LIST, [tenant, stream, context, *after, PAGE], tenant=tenant, action="read", role="convstore_reader"
        )
        found += [recorded(tenant, row) for row in rows]
        now: datetime = rows[-1][18] if rows else _EPOCH
        if not rows or len(rows) == rows[0][20] < PAGE:
            return found, now
        after = [rows[-1][19], rows[-1][5], rows[-1][2]]
