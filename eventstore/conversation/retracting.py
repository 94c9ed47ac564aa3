# Generated from retracting_async.py by ops/generate_sync.py: edit that one.
"""Taking items out of the transcript: each way is an event, and what it takes stays in the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eventstore.conversation.control import decide, find_done, read_now
from eventstore.conversation.stream import Stream
from eventstore.conversation.transcripts import read_basis, read_shown
from eventstore.errors import IdempotencyConflict, InvalidItem, VersionConflict, describe
from eventstore.log import batch as batches
from eventstore.log.events import EXISTS, AppendResult, Entry, Event, Json, RecordedEvent
from eventstore.log.ranges import read_ranges
from projections.intervals import Interval, union
from projections.retraction import check_last, check_ranges, retract_last, retract_versions
from projections.transcript import Piece

RETRACTED = "items.retracted"


class _Moved(Exception):
    """Another control event came since it was decided."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a retraction was asked for."""

    last: int | None
    versions: Sequence[tuple[int, int]] | None
    reason: str | None

    def as_data(self, ranges: Sequence[Interval]) -> dict[str, Json]:
        """Give it as it would be recorded."""
        return {"ranges": [list(pair) for pair in ranges], "last": self.last, "reason": self.reason}


def retract(
    stream: Stream,
    last: int | None,
    versions: Sequence[tuple[int, int]] | None,
    *,
    reason: str | None,
    agent: str | None,
    key: str | None,
) -> tuple[AppendResult, list[Entry]] | None:
    """Retract the last N of the transcript, or ranges of versions; give what was taken, by ``last``.

    None where there is nothing to take. Where another control event comes in between, it is decided anew.
    """
    if (last is None) == (versions is None):
        raise InvalidItem("last", "give last= or versions=, one of them")
    if versions is None:
        check_last(last)
    asked = _Asked(last, versions, reason)
    while True:
        before = find_done(stream, key, RETRACTED)
        if before is not None:
            return _again(stream, before, asked, f"key {key!r}")
        try:
            return _retract(stream, asked, agent, key)
        except _Moved:
            continue
        except IdempotencyConflict:  # a call with the same key came in between, and decided on something else
            if find_done(stream, key, RETRACTED) is None:
                raise


def _retract(
    stream: Stream, asked: _Asked, agent: str | None, key: str | None
) -> tuple[AppendResult, list[Entry]] | None:
    caller, tenant = stream.route.caller, stream.tenant
    basis = read_now(stream, asked.last or 0)
    if basis is None:
        return None
    taken: list[Entry] = []
    if asked.versions is None:
        taken = read_shown(caller, tenant, stream.name, basis, asked.last)
        ranges = retract_last(basis.ranges, basis.version, [(entry.version, entry.summary) for entry in taken])
    else:
        ranges = retract_versions(basis.ranges, basis.version, asked.versions)
    if not ranges:
        return None
    data: dict[str, Json] = {"ranges": [list(pair) for pair in ranges], "control": basis.ranges.control}
    about = {"last": asked.last, "reason": asked.reason}
    data |= {name: value for name, value in about.items() if value is not None}
    event = Event(type=RETRACTED, data=data, agent=agent)
    decided = decide(stream, batches.build(tenant, stream.name, [event], key=key), basis)
    if isinstance(decided, AppendResult):
        return decided, taken
    raise _Moved


def _again(stream: Stream, before: RecordedEvent, asked: _Asked, key: str) -> tuple[AppendResult, list[Entry]]:
    """Give what the first call with a key did, and took."""
    done = before.data
    ranges = [(first, end) for first, end in done["ranges"]]
    wanted = ranges if asked.versions is None else union(check_ranges(asked.versions, before.version - 1))
    if (done.get("last"), done.get("reason"), ranges) != (asked.last, asked.reason, wanted):
        raise IdempotencyConflict(key, f"a retraction {_named(done)}", f"one {_named(asked.as_data(wanted))}")
    result = AppendResult(stream.name, before.version, before.version, before.position, True, (before.event_id,))
    if asked.last is None:
        return result, []
    caller, tenant, at = stream.route.caller, stream.tenant, before.version - 1
    basis = read_basis(caller, tenant, stream.name, at, 0)
    pieces = (
        []
        if basis is None
        else [
            Piece(max(piece.first, first), min(piece.last, end), piece.summary)
            for piece in basis.ranges.newest(at)
            for first, end in reversed(ranges)
            if piece.first <= end and piece.last >= first
        ]
    )
    return result, read_ranges(caller, tenant, stream.name, pieces, None)


def _named(data: Mapping[str, Json]) -> str:
    which = f"of {data['ranges']}" if data.get("last") is None else f"of the last {data['last']}"
    return which if data.get("reason") is None else f"{which} for {describe(data['reason'])}"


def clear(stream: Stream, *, reason: str | None, agent: str | None, key: str | None) -> AppendResult | None:
    """Take everything out of the transcript; None where the stream does not exist."""
    data = {} if reason is None else {"reason": reason}
    try:
        event = Event(type="history.cleared", data=data, agent=agent)
        return stream.append_events([event], expected=EXISTS, key=key)
    except VersionConflict:
        return None
