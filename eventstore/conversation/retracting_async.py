"""Taking items out of the transcript: each way is an event, and what it takes stays in the log."""

from __future__ import annotations

from collections.abc import Sequence

from eventstore.conversation.control_async import decide_async, find_done_async
from eventstore.conversation.stream_async import AsyncStream
from eventstore.conversation.transcripts_async import read_basis_async, read_shown_async
from eventstore.errors import IdempotencyConflict, InvalidItem, VersionConflict
from eventstore.log import batch as batches
from eventstore.log.events import EXISTS, AppendResult, Entry, Event, Json
from eventstore.log.ranges_async import read_ranges_async
from projections.intervals import union
from projections.retraction import check_last, retract_last, retract_versions

RETRACTED = "items.retracted"


async def retract_async(
    stream: AsyncStream,
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
    caller, tenant = stream.route.caller, stream.tenant
    before = await find_done_async(stream, key, RETRACTED)
    if before is not None:
        ranges = [(first, end) for first, end in before.data["ranges"]]
        result = AppendResult(stream.name, before.version, before.version, before.position, True, (before.event_id,))
        if versions is not None:
            if ranges != union(versions):
                raise IdempotencyConflict(f"key {key!r}", f"a retraction of {ranges}", f"one of {list(versions)}")
            return result, []
        pieces = [(first, end, summary) for first, end in reversed(ranges) for summary in (False, True)]
        taken = await read_ranges_async(caller, tenant, stream.name, pieces, None)
        return result, sorted(taken)[-(last or 0) :]
    while True:
        basis = await read_basis_async(caller, tenant, stream.name, None, last or 0)
        if basis is None:
            return None
        taken = []
        if versions is None:
            taken = await read_shown_async(caller, tenant, stream.name, basis, last)
            ranges = retract_last(basis.ranges, basis.version, [(entry.version, entry.summary) for entry in taken])
        else:
            ranges = retract_versions(basis.ranges, basis.version, versions)
        if not ranges:
            return None
        data: dict[str, Json] = {"ranges": [list(pair) for pair in ranges], "control": basis.ranges.control}
        if reason is not None:
            data["reason"] = reason
        event = Event(type=RETRACTED, data=data, agent=agent)
        decided = await decide_async(stream, batches.build(tenant, stream.name, [event], key=key), basis)
        if isinstance(decided, AppendResult):
            return decided, taken


async def clear_async(
    stream: AsyncStream, *, reason: str | None, agent: str | None, key: str | None
) -> AppendResult | None:
    """Take everything out of the transcript; None where the stream does not exist."""
    data = {} if reason is None else {"reason": reason}
    try:
        event = Event(type="history.cleared", data=data, agent=agent)
        return await stream.append_events([event], expected=EXISTS, key=key)
    except VersionConflict:
        return None
