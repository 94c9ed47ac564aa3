"""What a retraction takes, decided from the ranges before anything is written.

The ranges returned are the data of an ``items.retracted``; none means that there is nothing to write.
"""

from __future__ import annotations

from collections.abc import Sequence

from eventstore.errors import InvalidItem, describe
from projections.intervals import Interval, subtract, union
from projections.transcript import Compaction, Ranges
from projections.windows import check_number


def check_last(last: object) -> None:
    """Refuse a ``last=`` that is not a number of items.

    Raises:
        InvalidItem: not a whole number from 0 on.
    """
    if last is None:
        raise InvalidItem("last", "None should be a number of items from 0 on; or give versions=")
    check_number("last", last, "give versions=")


def retract_last(ranges: Ranges, at: int, taken: Sequence[tuple[int, bool]]) -> list[Interval]:
    """Give the versions to retract so that the last N of the transcript at version ``at`` leave it.

    ``taken`` is those N as (version, is it a summary), in the transcript's order; one for ``pop``. A range runs
    from an item to the next hole or to ``at``, over events that are never shown: so that no slivers of
    them are left between holes, and taking the tail again and again adds no pieces. What was appended after
    ``at`` is not in it.
    """
    items = [version for version, summary in taken if not summary]
    swept: list[Interval] = []
    end = at
    for compaction in reversed(ranges.compactions):
        if not items:
            break
        swept += _sweep(ranges, items, compaction.covers[1] + 1, end)
        items = [version for version in items if version < compaction.covers[0]]
        end = compaction.covers[0] - 1
    swept = union([*swept, *_sweep(ranges, items, 1, end)])
    for compaction in ranges.compactions:
        for piece in compaction.shown:
            subtract(swept, *piece)
    return union([*swept, *((version, version) for version, _ in taken)])


def retract_versions(ranges: Ranges, at: int, versions: object) -> list[Interval]:
    """Check the ranges that a caller wants to retract from the transcript at version ``at``, and merge them.

    A range may lie outside of all compactions, inside what one covers, or name one's own summaries.

    Raises:
        InvalidItem: no list of (from, to); a range beyond the stream, backwards, or across a summary.
    """
    given = check_ranges(versions, at)
    for index, (first, last) in enumerate(given):
        _refuse_across(ranges, f"versions[{index}]", first, last)
    changes = any(ranges.kept_within(*pair) or _summarized(ranges, *pair) for pair in given)
    return union(given) if changes else []


def check_ranges(versions: object, at: int) -> list[Interval]:
    """Give a caller's list of ranges of a stream that is at version ``at``; raises as ``check_range``."""
    if not isinstance(versions, (list, tuple)):
        raise InvalidItem("versions", f"{describe(versions)} should be a list of ranges (from, to), both inclusive")
    return [check_range(f"versions[{index}]", pair, at) for index, pair in enumerate(versions)]


def check_range(path: str, pair: object, at: int) -> Interval:
    """Give a caller's range of versions of a stream that is at version ``at``.

    Raises:
        InvalidItem: no pair of whole numbers, beyond the stream, or backwards.
    """
    if (
        not isinstance(pair, (list, tuple))
        or len(pair) != 2
        or not all(isinstance(end, int) and not isinstance(end, bool) for end in pair)
    ):
        raise InvalidItem(path, f"{describe(pair)} should be (from, to), two versions, both inclusive")
    first, last = pair
    if first > last:
        raise InvalidItem(path, f"({first}, {last}) runs backwards; give ({last}, {first})")
    if first < 1 or last > at:
        there = f"has versions 1 to {at}" if at else "has no events"
        raise InvalidItem(path, f"({first}, {last}) lies outside the stream, which {there}")
    return first, last


def _sweep(ranges: Ranges, items: list[int], first: int, last: int) -> list[Interval]:
    taken = [version for version in items if first <= version <= last]
    return ranges.kept_within(min(taken), last) if taken else []


def _refuse_across(ranges: Ranges, path: str, first: int, last: int) -> None:
    wanted = f"({first}, {last}) lies across a summary:"
    for compaction in _summarized(ranges, first, last):
        own = compaction.shown[0][0], compaction.version
        if first < own[0] or last > own[1]:
            raise InvalidItem(
                path,
                f"{wanted} {compaction.shown[0][0]} to {compaction.shown[-1][1]} stand for {compaction.covers}; "
                "name the items before and after them, or the summaries alone, in ranges of their own",
            )
        return
    for compaction in ranges.overlapped(first, last):
        if first < compaction.covers[0] or last > compaction.covers[1]:
            raise InvalidItem(
                path,
                f"{wanted} event {compaction.version} compacted {compaction.covers}; "
                "name what lies inside of that and what lies outside in ranges of their own",
            )


def _summarized(ranges: Ranges, first: int, last: int) -> list[Compaction]:
    return [
        compaction
        for compaction in ranges.compactions
        if any(start <= last and end >= first for start, end in compaction.shown)
    ]
