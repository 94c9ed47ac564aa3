"""Views of a transcript that are cut to size: the last N, with pins, within a number of tokens, never half a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from eventstore.errors import InvalidItem, describe
from eventstore.log.events import Entry
from projections.pairs import Bond, bonds, calls, groups, is_instruction, is_reasoning, results
from projections.tokens import Counter, estimate


def window(
    entries: Sequence[Entry],
    *,
    limit: int | None = None,
    pin_summaries: bool = False,
    pair_safe: bool = False,
    max_tokens: int | None = None,
    count_tokens: Counter = estimate,
) -> list[Entry]:
    """Cut a transcript to size. What stays, stays in the transcript's order.

    Args:
        entries: the whole transcript; its last ``limit + 1`` entries give the same, unless summaries are pinned.
        limit: exactly the last N, or all there are; None for all, 0 for none.
        pin_summaries: summaries, and the system's and developer's messages that the transcript begins with,
            stay whatever is cut; ``limit`` counts the others.
        pair_safe: of what the cut leaves, drop every call without its result and every result without its call, and
            reasoning without the item that it led to and the other way round. A call that has no result yet
            stays where nothing but calls, results and reasoning came after it.
        max_tokens: the longest end that fits, after the pinned entries, which stay even where they alone are more.
        count_tokens: counts one item.

    Raises:
        InvalidItem: ``limit`` or ``max_tokens`` is not a number from 0 on.
    """
    check_number("limit", limit, "None for all")
    check_number("max_tokens", max_tokens, "None for any number")
    pinned = _pinned(entries) if pin_summaries else set()
    rest = [at for at in range(len(entries)) if at not in pinned]
    if limit is not None:
        rest = rest[max(0, len(rest) - limit) :]
    if max_tokens is not None:
        room = max_tokens - sum(count_tokens(entries[at].item) for at in pinned)
        rest = _fitting(rest, room, lambda at: count_tokens(entries[at].item))
    kept = pinned.union(rest)
    if pair_safe:
        kept -= _halves(entries, kept)
    return [entries[at] for at in sorted(kept)]


def check_number(name: str, value: object, otherwise: str) -> None:
    """Refuse anything but None and whole numbers from 0 on."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise InvalidItem(name, f"{describe(value)} should be a number from 0 on, or {otherwise}")


def _pinned(entries: Sequence[Entry]) -> set[int]:
    pinned = {at for at, entry in enumerate(entries) if entry.summary}
    for at, entry in enumerate(entries):
        if not (entry.summary or is_instruction(entry.item)):
            break
        pinned.add(at)
    return pinned


def _fitting(rest: list[int], room: int, weight: Callable[[int], int]) -> list[int]:
    for place in range(len(rest) - 1, -1, -1):
        room -= weight(rest[place])
        if room < 0:
            return rest[place + 1 :]
    return rest


def _halves(entries: Sequence[Entry], kept: set[int]) -> set[int]:
    """Find what of ``kept`` belongs to something that is not kept, or that is not there."""
    found = bonds(entries)
    group = groups(len(entries), ((a, b) for a, b in found if a is not None and b is not None))
    tail = _open_end(entries)
    alone = _lone(found, lambda at: at >= tail and not is_reasoning(entries[at].item))
    broken = {group[at] for at in alone} | {group[at] for at in range(len(entries)) if at not in kept}
    return {at for at in kept if group[at] in broken}


def _lone(found: Iterable[Bond], excused: Callable[[int], bool]) -> set[int]:
    alone = set()
    for first, second in found:
        if first is None and second is not None:
            alone.add(second)
        if second is None and first is not None and not excused(first):
            alone.add(first)
    return alone


def _open_end(entries: Sequence[Entry]) -> int:
    """Find from where on there are only calls, results and reasoning: a call there may yet be answered."""
    for at in range(len(entries) - 1, -1, -1):
        item = entries[at].item
        if not (calls(item) or results(item) or is_reasoning(item)):
            return at + 1
    return 0
