"""What a compaction covers, decided from the ranges before anything is summarized or written.

By default it begins after the last compaction, so that summaries stand side by side, each made once from
originals. It takes earlier compactions whole or not at all, and never a call without its result.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from eventstore.errors import CompactionConflict
from eventstore.log.events import Entry
from projections.intervals import Interval
from projections.pairs import bonds, is_reasoning
from projections.retraction import check_range
from projections.transcript import Ranges
from projections.windows import check_number


@dataclass(frozen=True, slots=True)
class Plan:
    """What to compact. ``covers`` is None where there is nothing to do.

    ``entries`` is what the transcript shows of it (the source where the basis is summaries), ``originals``
    the versions that hold the originals. ``held_by``: the version of a call without result, or of reasoning
    that led to nothing yet, before which the range had to end.
    """

    covers: Interval | None = None
    entries: tuple[Entry, ...] = ()
    originals: tuple[Interval, ...] = ()
    held_by: int | None = None


def plan(
    ranges: Ranges,
    at: int,
    entries: Sequence[Entry],
    *,
    covers: object = None,
    keep_last: int | None = None,
    merge: bool = False,
) -> Plan:
    """Decide what to compact of the transcript at version ``at``.

    Args:
        ranges: the ranges at ``at``; their ``control`` is what the compaction is decided on.
        at: the version that the decision looks at; later items stay.
        entries: the transcript at ``at``, whole and in order.
        covers: (from, to), both inclusive; a version counts where it stands, so summaries count by what they
            stand for. Widened to whole compactions, and to calls with their results.
            Default: from the last compaction on.
        keep_last: how many of the transcript's last entries stay, at least.
        merge: begin at the transcript's start, so that one summary replaces the earlier ones.

    Raises:
        InvalidItem: ``covers`` is no range of the stream, or ``keep_last`` is below zero.
    """
    check_number("keep_last", keep_last, "None to keep none")
    if covers is not None:
        first, last = check_range("covers", covers, at)
    else:
        first, last = (ranges.compactions[-1].covers[1] + 1 if ranges.compactions else 1), at
    if merge:
        first = 1
    places = _places(ranges, entries)
    inside = [index for index, place in enumerate(places) if place[1] >= first and place[0] <= last]
    if not inside:
        return Plan()
    low, high = inside[0], inside[-1]
    most = len(entries) - 1 - (keep_last or 0)
    low, end, held_by = _whole(_ties(entries, places), low, min(high, most), most, widen=covers is not None)
    if end < low:
        return Plan(held_by=None if held_by is None else entries[held_by].version)
    begin = max(first, ranges.cleared + 1) if covers is not None and not merge else places[low][0]
    stop = last if covers is not None and end == high else places[end][1]
    widest = ranges.overlapped(begin, stop)
    whole = (
        min([begin, places[low][0], *(compaction.covers[0] for compaction in widest)]),
        max([stop, *(compaction.covers[1] for compaction in widest)]),
    )
    taken = tuple(entries[low : end + 1])
    again = covers is None and [c.covers for c in widest if not c.stale] == [whole]
    if again:  # one summary, nothing new
        return Plan()
    held = None if held_by is None else entries[held_by].version
    return Plan(whole, taken, tuple(ranges.kept_within(*whole)), held)


def moved(decided_on: int, control: int) -> CompactionConflict:
    """Say that another control event came while a summary was made."""
    return CompactionConflict(
        f"the summary was made of the history as of control event {decided_on}, and event {control} has changed "
        "it since (a retraction, a clear or another compaction); nothing was written, compact again"
    )


def _places(ranges: Ranges, entries: Sequence[Entry]) -> list[Interval]:
    """Give each entry's place: an item's is its version, a summary's what its compaction covers."""
    shown = sorted((piece[0], *compaction.covers) for compaction in ranges.compactions for piece in compaction.shown)
    places = []
    for entry in entries:
        if entry.summary:
            _, first, last = shown[bisect_right(shown, entry.version, key=lambda piece: piece[0]) - 1]
            places.append((first, last))
        else:
            places.append((entry.version, entry.version))
    return places


def _ties(entries: Sequence[Entry], places: Sequence[Interval]) -> list[tuple[int, int | None]]:
    """Give the entries that must stay together; with None if the other may still come."""
    newest = len(entries) - 1
    ties: list[tuple[int, int | None]] = [
        (first, second)
        for first, second in bonds(entries)
        if first is not None and not (second is None and is_reasoning(entries[first].item) and first != newest)
    ]
    ties += [(at - 1, at) for at in range(1, len(entries)) if entries[at].summary and places[at] == places[at - 1]]
    return ties


def _whole(
    ties: Sequence[tuple[int, int | None]], low: int, high: int, most: int, *, widen: bool
) -> tuple[int, int, int | None]:
    """Move each end so that no tie is cut: if ``widen`` outwards, but the end not beyond ``most``; else inwards.

    An open call moves the end inwards in any case. Gives the ends and the open call that held them.
    """
    held_by = None
    moved = True
    while moved:
        moved = False
        for first, second in ties:
            starts = low <= first <= high
            if second is None:
                if starts:
                    high, most, held_by, moved = first - 1, first - 1, first, True
            elif starts and second > high:
                high = second if widen and second <= most else first - 1
                most, moved = (most if high == second else high), True
            elif first < low <= second <= high:
                low, moved = (first if widen else second + 1), True
    return low, high, held_by
