"""Sets of versions as sorted, disjoint intervals, both ends inclusive; the last one may be open."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

Interval: TypeAlias = tuple[int, int]
"""Versions from the first to the last, both inclusive."""

OPEN: Final = sys.maxsize
"""The last version of an interval that goes on for ever."""


def union(pairs: Iterable[Sequence[int]]) -> list[Interval]:
    """Make sorted, disjoint intervals of any pairs; those that touch become one, empty ones go."""
    merged: list[Interval] = []
    for first, last in sorted((pair[0], pair[1]) for pair in pairs):
        if last < first:
            continue
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def subtract(pieces: list[Interval], first: int, last: int) -> None:
    """Take the versions from ``first`` to ``last`` out of ``pieces``, in place.

    Looks at O(log n) pieces and at those that are cut or dropped.
    """
    if last < first:
        return
    start, end = _touched(pieces, first, last)
    if start == end:
        return
    rest = []
    if pieces[start][0] < first:
        rest.append((pieces[start][0], first - 1))
    if pieces[end - 1][1] > last:
        rest.append((last + 1, pieces[end - 1][1]))
    pieces[start:end] = rest


def within(pieces: Sequence[Interval], first: int, last: int) -> Iterator[Interval]:
    """Yield what of ``pieces`` lies from ``first`` to ``last``, newest first."""
    if last < first:
        return
    start, end = _touched(pieces, first, last)
    for at in range(end - 1, start - 1, -1):
        yield max(pieces[at][0], first), min(pieces[at][1], last)


def _touched(pieces: Sequence[Interval], first: int, last: int) -> tuple[int, int]:
    start = bisect_right(pieces, (first, OPEN))
    if start and pieces[start - 1][1] >= first:
        start -= 1
    return start, bisect_right(pieces, (last, OPEN), lo=start)
