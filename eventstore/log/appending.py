"""What an append sends and what its answers mean; the sending is in ``append_async``.

The names' numeric ids are remembered after a committed append, with a digest of the names that the server compares:
after a restore the same ids may belong to another stream.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import orjson
import psycopg

from eventstore.errors import (
    ContextMismatch,
    ConvstoreError,
    IdempotencyConflict,
    SequencesUnsafe,
    StreamClosed,
    TaskClosed,
    TaskExists,
    TaskNotFound,
    TaskStatusConflict,
    UniqueKeyConflict,
    VersionConflict,
)
from eventstore.log import binary
from eventstore.log.batch import Batch, Row, TaskSteps

_DRAWN: Final = {
    "events_position": "position",
    "tenants_pkey": "tenants_tenant_id_seq",
    "contexts_pkey": "contexts_context_id_seq",
    "streams_pkey": "directory_stream_id_seq",
}
"""What a key of these constraints is drawn from: a sequence that was set back since the store was opened."""


@dataclass(frozen=True, slots=True)
class Known:
    """A stream's ids, and the names that they were learned for."""

    context_id: int
    stream_id: int
    context: str
    origin: bytes


class KnownStreams(dict[tuple[str, str], Known]):
    """(tenant, stream) → ids, of at most ``limit`` streams; the oldest entry makes room."""

    limit: Final = 100_000

    def learn(self, tenant: str, stream: str, known: Known) -> None:
        """Remember a stream that is committed."""
        while len(self) >= self.limit:
            self.pop(next(iter(self)), None)
        self[tenant, stream] = known


@dataclass(frozen=True, slots=True)
class Target:
    """The stream that an append goes to, as the caller named it."""

    tenant: str
    stream: str
    context: str | None
    tags: Mapping[str, str] | None


def place(target: Target, known: Known | None, expected: int | None) -> list[Any]:
    """Give the parameters that say where an append goes."""
    if known is not None:
        return [
            target.tenant,
            target.stream,
            None,
            None,
            known.context_id,
            known.stream_id,
            known.origin,
            expected,
        ]
    tags = None if target.tags is None else orjson.dumps(dict(target.tags)).decode()
    return [target.tenant, target.stream, target.context, tags, None, None, None, expected]


def one(batch: Batch) -> list[Any]:
    """Give the parameters of ``append_event``."""
    row = batch.rows[0]
    return [
        row.event_id,
        row.schema_version,
        row.format,
        row.type,
        row.subject,
        row.agent,
        row.call_id,
        row.task_id,
        row.run_id,
        row.unique_key,
        None if row.metadata is None else binary.JsonBytes(row.metadata),
        binary.JsonBytes(row.data),
    ]


def many(batch: Batch) -> list[Any]:
    """Give the parameters of ``append_events``: a column an array."""
    columns = _columns(batch.rows)
    columns.insert(-2, binary.texts([r.unique_key for r in batch.rows]))
    return columns


def several(appends: Sequence[tuple[Known, Batch, int | None]]) -> tuple[list[Any], list[Any]]:
    """Give the parameters of ``append_set``, for appends in order of ids; the second time as what may be a repeat."""
    batches = [batch for _, batch, _ in appends]
    where = [
        binary.bigints([known.context_id for known, _, _ in appends]),
        binary.bigints([known.stream_id for known, _, _ in appends]),
        binary.blobs([known.origin for known, _, _ in appends]),
        binary.bigints([expected for _, _, expected in appends]),
    ]
    what = [
        binary.integers(accumulate(len(batch.rows) for batch in batches)),
        *_columns([row for batch in batches for row in batch.rows]),
    ]
    may_repeat = binary.booleans([batch.may_repeat for batch in batches])
    return [*where, may_repeat, *what], [*where, binary.booleans([True] * len(batches)), *what]


def _columns(rows: Sequence[Row]) -> list[Any]:
    return [
        binary.uuids([r.event_id for r in rows]),
        binary.smallints([r.schema_version for r in rows]),
        binary.smallints([r.format for r in rows]),
        binary.texts([r.type for r in rows]),
        binary.texts([r.subject for r in rows]),
        binary.texts([r.agent for r in rows]),
        binary.texts([r.call_id for r in rows]),
        binary.texts([r.task_id for r in rows]),
        binary.texts([r.run_id for r in rows]),
        binary.jsons([r.metadata for r in rows]),
        binary.jsons([r.data for r in rows]),
    ]


def steps(target: Target, batch: Batch, tasks: TaskSteps, expected: int | None, *, may_repeat: bool) -> list[Any]:
    """Give the parameters of ``append_tasks``."""
    where = place(target, None, expected)
    return [
        *where[:4],
        expected,
        may_repeat,
        *many(batch),
        binary.texts(tasks.statuses),
        binary.texts(tasks.follows),
        tasks.expected,
    ]


def refusal(
    outcome: str,
    target: Target,
    batch: Batch,
    expected: object,
    actual: int,
    detail: str,
    stored: tuple[int | None, int | None],
    context: str,
) -> ConvstoreError:
    """Turn the server's refusal into an error."""
    if outcome == "version_conflict":
        return VersionConflict(expected, actual, stream=target.stream)
    if outcome == "idempotency_conflict":
        where = "versions {} to {}".format(*stored) if stored[0] != stored[1] else f"version {stored[0]}"
        return IdempotencyConflict(_named(batch), where, f"{len(batch.rows)} events: {detail}")
    if outcome == "context_mismatch":
        return ContextMismatch(target.stream, detail, target.context or "")
    if outcome == "closed":
        return StreamClosed(target.stream, actual)
    if outcome == "unique_key":
        return UniqueKeyConflict(detail, context)
    error = _task_refusal(outcome, batch, detail, context)
    if error is not None:
        return error
    raise AssertionError(f"append answered {outcome!r}, which this code does not know; is the database newer?")


def _task_refusal(outcome: str, batch: Batch, detail: str, context: str) -> ConvstoreError | None:
    if outcome == "no_task":
        return TaskNotFound(detail, context)
    status, _, task_id = detail.partition(" ")
    if outcome == "task_closed":
        return TaskClosed(task_id, status, context)
    if outcome == "task_exists":
        return TaskExists(task_id, context, f"a task that is {status}", "one to open")
    if outcome == "task_status" and batch.tasks is not None:
        return TaskStatusConflict(task_id, batch.tasks.expected or "", status, context)
    return None


def race(e: psycopg.Error, batch: Batch, context: str) -> ConvstoreError | None:
    """Explain a unique index that refused what was not there when the function looked; None where it is not ours."""
    if e.diag.constraint_name in _DRAWN:
        return SequencesUnsafe(
            [f"sequence {_DRAWN[e.diag.constraint_name]} drew a value twice: {e.diag.message_detail}"]
        )
    if e.diag.constraint_name == "events_unique_key":
        keys = [row.unique_key for row in batch.rows if row.unique_key is not None]
        return UniqueKeyConflict(", ".join(keys), context)
    if e.diag.constraint_name == "events_event_id":
        return IdempotencyConflict(_named(batch), "another append with these ids", f"{len(batch.rows)} events")
    return None


def _named(batch: Batch) -> str:
    if batch.key is not None:
        return f"key {batch.key!r}"
    ids: list[uuid.UUID] = [row.event_id for row in batch.rows]
    return f"id {ids[0]}" if len(ids) == 1 else f"ids {ids[0]} …"
