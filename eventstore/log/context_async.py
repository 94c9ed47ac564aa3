"""Reading what the streams of a context share, and what a stream holds beside its items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString

from eventstore.log import binary, names
from eventstore.log.appending import Target
from eventstore.log.connection_async import AsyncCaller
from eventstore.log.events import RecordedEvent
from eventstore.log.rows import recorded

_TASKS: Final[LiteralString] = "SELECT * FROM convstore.list_tasks($1, $2, $3, $4)"
_CLAIMS: Final[LiteralString] = "SELECT * FROM convstore.find_claims($1, $2, $3, $4)"
_TYPES: Final[LiteralString] = "SELECT * FROM convstore.read_types($1, $2, $3, $4, $5)"


async def read_tasks_async(caller: AsyncCaller, target: Target, task_id: str | None) -> list[RecordedEvent]:
    """Return the events that opened and changed the tasks of a stream's context, or one; in the log's order."""
    return await _read(
        caller, target.tenant, _TASKS, [target.stream, target.context, names.storable("task_id", task_id)]
    )


async def find_claims_async(caller: AsyncCaller, target: Target, unique_keys: Sequence[str]) -> list[RecordedEvent]:
    """Return the events of a stream's context that hold some unique keys."""
    keys = binary.texts([names.storable("unique_key", key) for key in unique_keys])
    return await _read(caller, target.tenant, _CLAIMS, [target.stream, target.context, keys])


async def read_types_async(
    caller: AsyncCaller, tenant: str, stream: str, types: Sequence[str], *, subject: str | None, at: int | None
) -> list[RecordedEvent]:
    """Return a stream's events of some types up to a version, its parents' too; never items."""
    params = [stream, binary.texts(types), names.storable("subject", subject), at]
    return await _read(caller, tenant, _TYPES, params)


async def _read(caller: AsyncCaller, tenant: str, query: LiteralString, params: list[Any]) -> list[RecordedEvent]:
    rows = await caller.call(query, [tenant, *params], tenant=tenant, action="read", role="convstore_reader")
    return [recorded(tenant, row) for row in rows]
