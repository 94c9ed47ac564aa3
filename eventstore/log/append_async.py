"""Sending an append: one server function, one durable round trip."""

from __future__ import annotations

import time
from functools import partial
from typing import Final, LiteralString

from psycopg import errors as pg

from eventstore.log import hashing
from eventstore.log.appending import Known, KnownStreams, Target, many, one, place, race, refusal, steps
from eventstore.log.batch import Batch, expected_number
from eventstore.log.connection_async import AsyncCaller, Row
from eventstore.log.events import AppendResult
from eventstore.telemetry import Telemetry, logger

_ONE: Final[LiteralString] = """SELECT * FROM convstore.append_event(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)"""
_MANY: Final[LiteralString] = """SELECT * FROM convstore.append_events(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)"""
_TASKS: Final[LiteralString] = """SELECT * FROM convstore.append_tasks(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)"""


async def append_async(
    caller: AsyncCaller,
    known: KnownStreams,
    telemetry: Telemetry,
    target: Target,
    batch: Batch,
    expected: object,
) -> AppendResult:
    """Append a batch; what it raises has written nothing (``StoreUnavailable`` tells where that is not certain)."""
    number = expected_number(expected)
    started = time.perf_counter()
    try:
        row = await _send(caller, known, target, batch, number)
    except pg.UniqueViolation as e:
        error = race(e, batch, _context(known, target))
        if error is None:
            raise
        telemetry.conflicts.labels(type(error).__name__).inc()
        raise error from e
    finally:
        telemetry.append_seconds.observe(time.perf_counter() - started)
    outcome, context_id, stream_id, context, first, last, position, actual, detail = row
    if context is not None and caller.commits:
        origin = hashing.names_hash(target.tenant, context, target.stream)
        known.learn(target.tenant, target.stream, Known(context_id, stream_id, context, origin))
    if outcome in ("appended", "repeated"):
        repeated = outcome == "repeated"
        if repeated:
            telemetry.repeats.inc()
        else:
            telemetry.appended.inc(len(batch.rows))
            telemetry.append_events.observe(len(batch.rows))
        return AppendResult(
            target.stream,
            first,
            last,
            position,
            repeated and batch.may_repeat,
            tuple(r.event_id for r in batch.rows),
        )
    error = refusal(outcome, target, batch, expected, actual, detail, (first, last), context or _context(known, target))
    telemetry.conflicts.labels(type(error).__name__).inc()
    logger(stream=target.stream, context=target.context, key=batch.key).debug("append refused", reason=str(error))
    raise error


def _context(known: KnownStreams, target: Target) -> str:
    stored = known.get((target.tenant, target.stream))
    return stored.context if stored is not None else target.context or target.stream


async def _send(caller: AsyncCaller, known: KnownStreams, target: Target, batch: Batch, expected: int | None) -> Row:
    direct = partial(_direct, caller, known, target, batch, expected)  # async only
    if caller.writer is None:  # async only
        return await direct(False)  # async only
    return await caller.writer.append(target, _cached(known, target), batch, expected, direct)  # async only
    # sync: return _direct(caller, known, target, batch, expected, False)


def _cached(known: KnownStreams, target: Target) -> Known | None:
    cached = known.get((target.tenant, target.stream))
    if cached is not None and target.context is not None and target.context != cached.context:
        return None  # the server says what is right: the log may have been restored since
    return cached


async def _direct(
    caller: AsyncCaller, known: KnownStreams, target: Target, batch: Batch, expected: int | None, again: bool
) -> Row:
    if batch.tasks is not None:
        rows = await caller.call(
            _TASKS,
            steps(target, batch, batch.tasks, expected, may_repeat=again or batch.may_repeat),
            again=steps(target, batch, batch.tasks, expected, may_repeat=True),
            tenant=target.tenant,
            action="append events",
            role="convstore_writer",
        )
        return rows[0]
    query = _ONE if len(batch.rows) == 1 else _MANY
    for ids in (_cached(known, target), None):
        where = place(target, ids, expected)
        columns = one(batch) if query is _ONE else many(batch)
        rows = await caller.call(
            query,
            [*where, again or batch.may_repeat, *columns],
            again=[*where, True, *columns],
            tenant=target.tenant,
            action="append events",
            role="convstore_writer",
        )
        if rows[0][0] != "unknown_stream":
            return rows[0]
        known.pop((target.tenant, target.stream), None)
    raise AssertionError("unreachable: by name a stream is found or created")
