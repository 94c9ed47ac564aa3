"""Compaction: summaries take the place of a range in the transcript; the originals stay in the log."""

from __future__ import annotations

import hashlib
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from eventstore.compaction import Situation, checked, method_of
from eventstore.compaction.outcome import Compacted
from eventstore.conversation.control_async import decide_async, find_done_async, read_now_async
from eventstore.conversation.receipts import encoded, joined
from eventstore.conversation.stream_async import AsyncStream
from eventstore.conversation.transcripts_async import Basis, fetch_async, read_shown_async
from eventstore.errors import IdempotencyConflict, InvalidItem, describe
from eventstore.log import batch as batches
from eventstore.log import names
from eventstore.log.events import AppendResult, Entry, Event, Json
from projections.compaction import Plan, moved, plan
from projections.tokens import estimate_of
from projections.transcript import Piece

SUMMARY, COMPACTED = "summary.appended", "history.compacted"


@dataclass(frozen=True, slots=True)
class CompactResult:
    """What a compaction did: ``covers`` (from, to), inclusive; ``version`` is that of its ``history.compacted``."""

    covers: tuple[int, int]
    version: int
    source_bytes: int
    summary_bytes: int
    depth: int
    method: str
    model: str | None
    deduplicated: bool


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a compaction was asked for; see ``compact()``."""

    compactor: Callable[[list[Json]], Any]
    covers: tuple[int, int] | None
    keep_last: int | None
    when: Callable[[Situation], bool] | None
    basis: Literal["originals", "summary"]
    merge: bool

    def __post_init__(self) -> None:
        if isinstance(self.compactor, type):
            name = self.compactor.__name__
            raise InvalidItem("compactor", f"{name} is a class; give one of it: {name}()")
        if not callable(self.compactor):
            raise InvalidItem("compactor", f"{describe(self.compactor)}; give a function of a list of items")
        if self.when is not None and not callable(self.when):
            raise InvalidItem("when", f"{describe(self.when)}; give a policy: a function of a Situation")
        if self.basis not in ("originals", "summary"):
            raise InvalidItem("basis", f"{describe(self.basis)}; give 'originals' or 'summary'")
        if self.covers is not None and self.keep_last is not None:
            raise InvalidItem("keep_last", "covers= is given too; give one of them")


async def compact_async(
    stream: AsyncStream, wanted: Wanted, *, agent: str | None, key: str | None
) -> CompactResult | None:
    """Compact what was asked for; None where there is nothing to do, or ``when`` says no."""
    before = await _before_async(stream, wanted, key)
    if before is not None:
        return before
    caller, tenant, name = stream.route.caller, stream.tenant, stream.name
    basis = await read_now_async(stream, None)
    if basis is None:
        return None
    shown = await read_shown_async(caller, tenant, name, basis)
    if wanted.when is not None and not await _holds(stream, basis, shown, wanted.when):
        return None
    todo = plan(
        basis.ranges,
        basis.version,
        shown,
        covers=wanted.covers,
        keep_last=wanted.keep_last,
        merge=wanted.merge,
    )
    if todo.covers is None:
        return None
    source = await _source(stream, basis, todo, wanted.basis)
    if not source:
        return None
    started = time.perf_counter()
    made = wanted.compactor(list(source))
    if inspect.isawaitable(made):  # async only
        made = await made  # async only
    seconds = time.perf_counter() - started
    summary = checked(made, method=method_of(wanted.compactor))
    data = _data(basis, todo.covers, source, summary, wanted.basis) | {"seconds": round(seconds, 6)}
    events = [Event(type=SUMMARY, data=item, agent=agent) for item in summary.items]
    events.append(Event(type=COMPACTED, data=data, agent=agent))
    try:
        decided = await decide_async(stream, batches.build(tenant, name, events, key=key), basis)
    except IdempotencyConflict:  # a call with the same key was faster, with a summary of its own
        before = await _before_async(stream, wanted, key)
        if before is None:
            raise
        return before
    if isinstance(decided, AppendResult):
        return _result(decided.last_version, data, deduplicated=decided.deduplicated)
    raise moved(basis.ranges.control, decided)


async def _before_async(stream: AsyncStream, wanted: Wanted, key: str | None) -> CompactResult | None:
    """Give what an earlier call with the key did; None where there was none."""
    first = await find_done_async(stream, key, SUMMARY)
    if first is None or key is None:
        return None
    found = None
    async for event in stream.events(first.version, types=[COMPACTED]):
        found = event
        break
    items = 0 if found is None else found.version - first.version
    if found is None or found.event_id != names.derived_ids(stream.tenant, stream.name, key, items + 1)[-1]:
        raise IdempotencyConflict(f"key {key!r}", f"{SUMMARY} at version {first.version}", "a compaction")
    if found.data["basis"] != wanted.basis:
        stored = f"a compaction of basis {found.data['basis']!r}"
        raise IdempotencyConflict(f"key {key!r}", stored, f"one of basis {wanted.basis!r}")
    return _result(found.version, found.data, deduplicated=True)


async def _holds(stream: AsyncStream, basis: Basis, shown: list[Entry], when: Callable[[Situation], bool]) -> bool:
    oldest = None
    first = next((entry.version for entry in shown if not entry.summary), None)
    if first is not None:
        async for event in stream.events(first, first):
            oldest = event.recorded_at
    last = max((compaction.version for compaction in basis.ranges.compactions), default=0)
    return bool(when(Situation([entry.item for entry in shown], datetime.now(UTC), oldest, basis.version, last)))


async def _source(stream: AsyncStream, basis: Basis, todo: Plan, kind: str) -> list[Json]:
    """Give what the compactor is to see: the originals of the range, or what the transcript shows of it."""
    if kind == "summary":
        return [entry.item for entry in todo.entries]
    pieces = [Piece(first, last) for first, last in reversed(todo.originals)]
    found = await fetch_async(stream.route.caller, stream.tenant, stream.name, basis, pieces, None)
    return [entry.item for entry in found]


def _data(basis: Basis, covers: tuple[int, int], source: list[Json], summary: Compacted, kind: str) -> dict[str, Json]:
    first, last = covers
    given, made = encoded(source), encoded(summary.items)
    before = joined(given)
    data: dict[str, Json] = {
        "covers": [first, last],
        "items": len(summary.items),
        "basis": kind,
        "depth": basis.ranges.depth_above(first, last, kind),
        "method": summary.method,
        "bytes_before": len(before),
        "bytes_after": len(joined(made)),
        "tokens_before": sum(estimate_of(len(each)) for each in given),
        "tokens_after": sum(estimate_of(len(each)) for each in made),
        "digest": hashlib.sha256(before).hexdigest(),
        "control": basis.ranges.control,
    }
    about = {"model": summary.model, "usage": summary.usage}
    return data | {name: value for name, value in about.items() if value is not None}


def _result(version: int, data: dict[str, Json], *, deduplicated: bool) -> CompactResult:
    first, last = data["covers"]
    return CompactResult(
        (first, last),
        version,
        data["bytes_before"],
        data["bytes_after"],
        data["depth"],
        data["method"],
        data.get("model"),
        deduplicated,
    )
