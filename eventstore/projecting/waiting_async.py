"""Waiting until a projection has dealt with a position, so that its reader sees what it wrote itself."""

from __future__ import annotations

import time
from typing import Final, LiteralString

from eventstore.errors import ProjectionBehind
from eventstore.log.caller_async import AsyncCaller
from eventstore.log.pause import pause_async

SHORTEST: Final = 0.002
LONGEST: Final = 0.1
_STATE: Final[LiteralString] = "SELECT state, position, stopped, error FROM convstore.projection_state($1)"


async def wait_async(caller: AsyncCaller, tenant: str, name: str, position: int, timeout: float) -> None:
    """Wait until the live build of a projection is at ``position``; at most ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    wait = SHORTEST
    while True:
        rows = await caller.call(_STATE, [name], tenant=tenant, action="wait", role="convstore_reader")
        live = next((row for row in rows if row[0] == "live"), None)
        at = live[1] if live is not None else 0
        if live is not None and at >= position:
            return
        if live is not None and live[2]:
            raise ProjectionBehind(name, position, at, str(live[3]))
        left = deadline - time.monotonic()
        if left <= 0:
            if not rows:
                reason = "nobody has run it yet; run: convstore project run"
            elif live is None:
                reason = "its first build is under way"
            else:
                reason = f"{timeout:g} s have passed; is a worker running? See: convstore project status"
            raise ProjectionBehind(name, position, at, reason)
        await pause_async(min(wait, left))
        wait = min(wait * 2, LONGEST)
