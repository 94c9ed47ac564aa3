"""Appending what changes a transcript: decided on as of the last control event, and refused if another came since."""

from __future__ import annotations

from eventstore.conversation.stream_async import AsyncStream
from eventstore.conversation.transcripts_async import CHECKPOINT_EVERY, Basis, read_basis_async
from eventstore.errors import ContextMismatch, IdempotencyConflict, StreamClosed, StreamNotFound
from eventstore.log import names
from eventstore.log.appending import Target, refusal
from eventstore.log.batch import Batch
from eventstore.log.events import AppendResult, RecordedEvent
from eventstore.log.ranges_async import append_control_async
from eventstore.log.read_async import find_async


async def read_now_async(stream: AsyncStream, limit: int | None) -> Basis | None:
    """Read what a change is decided on: the stream now, with the last ``limit`` items; None where it does not exist.

    Raises ``StreamClosed`` and ``ContextMismatch``: before a summary is made for nothing.
    """
    basis = await read_basis_async(stream.route.caller, stream.tenant, stream.name, None, limit)
    if basis is not None:
        if stream.context not in (None, basis.context):
            raise ContextMismatch(stream.name, basis.context, stream.context or "")
        if basis.material.closed:
            raise StreamClosed(stream.name, basis.version)
    return basis


async def decide_async(stream: AsyncStream, batch: Batch, basis: Basis) -> AppendResult | int:
    """Append a batch that was decided on from ``basis``; give the control event instead that came since."""
    route, ranges = stream.route, basis.ranges
    row = await append_control_async(
        route.caller,
        stream.tenant,
        stream.name,
        batch,
        None,
        ranges.control,
        ranges.dumps() if basis.folded >= CHECKPOINT_EVERY else None,
    )
    outcome, _, _, _, first, last, position, actual, detail = row
    if outcome == "control_conflict":
        control: int = actual
        return control
    if outcome in ("appended", "repeated"):
        if outcome == "repeated":
            route.telemetry.repeats.inc()
        else:
            route.telemetry.appended.inc(len(batch.rows))
        repeated = outcome == "repeated" and batch.may_repeat
        return AppendResult(stream.name, first, last, position, repeated, tuple(r.event_id for r in batch.rows))
    if outcome == "no_stream":  # its first append was rolled back since
        raise StreamNotFound(stream.name, stream.tenant)
    target = Target(stream.tenant, stream.name, None, None)
    raise refusal(outcome, target, batch, None, actual, detail, (first, last), basis.context)


async def find_done_async(stream: AsyncStream, key: str | None, kind: str) -> RecordedEvent | None:
    """Give the first event that an earlier call with ``key`` wrote; None where there was none.

    What such a call decides depends on what it finds, so a repeat is known by its key alone.

    Raises ``IdempotencyConflict`` where the key stands for an event of another kind.
    """
    if key is None:
        return None
    event_id = names.derived_ids(stream.tenant, stream.name, names.check_key(key), 1)[0]
    found = await find_async(stream.route.caller, stream.tenant, stream.name, event_id=event_id)
    if found is not None and found.type != kind:
        raise IdempotencyConflict(f"key {key!r}", f"{found.type} at version {found.version}", kind)
    return found
