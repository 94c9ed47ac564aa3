# Generated from context_async.py by ops/generate_sync.py: edit that one.
"""Reading what the streams of a context share, and what a stream holds beside its items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString

from eventstore.log import binary, names
from eventstore.log.appending import Target
from eventstore.log.connection import Caller
from eventstore.log.events import RecordedEvent
from eventstore.log.rows import recorded

_TASKS: Final[LiteralString] = "SELECT * FROM convstore.list_tasks($1, $2, $3, $4)"
_CLAIMS: Final[LiteralString] = "SELECT * FROM convstore.find_claims($1, $2, $3, $4)"
_TYPES: Final[LiteralString] = "SELECT * FROM convstore.read_types($1, $2, $3, $4, $5)"


def read_tasks(caller: Caller, target: Target, task_id: str | None) -> list[RecordedEvent]:
    """Return the events that opened and changed the tasks of a stream's context, or one; in the log's order."""
    return _read(caller, target.tenant, _TASKS, [target.stream, target.context, names.storable("task_id", task_id)])


def find_claims(caller: Caller, target: Target, unique_keys: Sequence[str]) -> list[RecordedEvent]:
    """Return the events of a stream's context that hold some unique keys."""
    keys = binary.texts([names.storable("unique_key", key) for key in unique_keys])
    return _read(caller, target.tenant, _CLAIMS, [target.stream, target.context, keys])


def read_types(
    caller: Caller, tenant: str, stream: str, types: Sequence[str], *, subject: str | None, at: int | None
) -> list[RecordedEvent]:
    """Return a stream's events of some types up to a version, its parents' too; never items."""
    params = [stream, binary.texts(types), names.storable("subject", subject), at]
    return _read(caller, tenant, _TYPES, params)


def _read(caller: Caller, tenant: str, query: LiteralString, params: list[Any]) -> list[RecordedEvent]:
    rows = caller.call(query, [tenant, *params], tenant=tenant, action="read", role="convstore_reader")
    return [recorded(tenant, row) for row in rows]
