"""What the next agent is given of the history: each item once, by reference, within a budget.

Pure: nothing is parsed and nothing is read back out of a rendering, so text can't forge an item. The cost is one pass
over the items, however many handoffs lie between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from eventstore.errors import InvalidItem, describe
from eventstore.log.events import Entry, Json, RecordedEvent
from projections import facts, handoffs
from projections.pairs import bonds, calls, groups, is_reasoning, results
from projections.surroundings import ARTIFACT
from projections.tokens import encoded_size, estimate

Category: TypeAlias = Literal[
    "constraints", "decisions", "artifacts", "questions", "summary", "messages", "tool_calls", "reasoning"
]

FIRST: Final[tuple[tuple[Category, ...], ...]] = (
    ("constraints", "decisions"),
    ("artifacts", "questions"),
    ("summary",),
)
"""What a budget keeps, in this order, before items of the history."""


class Part(NamedTuple):
    """Something that a view may hold: the event that it comes from, what stands for it, and of which kind it is."""

    version: int
    item: Json
    category: Category


@dataclass(frozen=True, slots=True)
class Budget:
    """At most so many tokens (estimated) and bytes of compact JSON; None for no bound."""

    tokens: int | None = None
    bytes: int | None = None

    @classmethod
    def of(cls, given: object) -> Budget | None:
        """Read a budget: a number of tokens, or a mapping with ``tokens`` or ``bytes`` or both.

        Raises ``InvalidItem`` where it is neither.
        """
        if given is None or isinstance(given, Budget):
            return given
        if type(given) is int:
            given = {"tokens": given}
        names = {"tokens": "tokens", "max_tokens": "tokens", "bytes": "bytes", "max_bytes": "bytes"}
        if not isinstance(given, dict) or not given or not given.keys() <= names.keys():
            reason = "give a number of tokens, or a dict with tokens or bytes or both"
            raise InvalidItem("budget", f"{describe(given)}; {reason}")
        for name, value in given.items():
            if type(value) is not int or value < 0:
                raise InvalidItem(f"budget.{name}", f"{describe(value)}; give a number from 0 on")
        return cls(**{names[name]: value for name, value in given.items()})


@dataclass(slots=True)
class _Room:
    tokens: float
    bytes: float

    def take(self, items: Iterable[Json]) -> bool:
        """Take room for all of the items, or for none."""
        weights = [(estimate(item), encoded_size(item) + 1) for item in items]  # and the comma between
        tokens, size = sum(weight[0] for weight in weights), sum(weight[1] for weight in weights)
        if tokens > self.tokens or size > self.bytes:
            return False
        self.tokens -= tokens
        self.bytes -= size
        return True


@dataclass(frozen=True, slots=True)
class Cut:
    """What a budget keeps, in the order of a view, and how much of each category it left out."""

    kept: list[Part]
    trimmed: dict[Category, int]


def whole(entries: Sequence[Entry]) -> Cut:
    """Give everything: the originals, each once."""
    return Cut([Part(entry.version, entry.item, category(entry.item)) for entry in entries], {})


def within(told: Sequence[Part], summaries: Sequence[Part], entries: Sequence[Entry], budget: Budget) -> Cut:
    """Keep what fits: constraints and decisions, then artifacts and open questions, then summaries, then messages.

    Of facts the oldest stay, of messages the newest: the longest end of the history that fits, and in it no call
    without its result and no reasoning without what it led to. Summaries stand for what was left out, so they
    are taken only where the history does not fit whole. What comes first in that order is never left out for what comes
    after it.
    """
    room = _Room(
        float("inf") if budget.tokens is None else budget.tokens,
        float("inf") if budget.bytes is None else budget.bytes - 1,  # the brackets, less one comma
    )
    kept: list[Part] = []
    full = False
    for categories in FIRST[:2]:
        for part in (part for wanted in categories for part in told if part.category == wanted):
            full = full or not room.take([part.item])
            if not full:
                kept.append(part)
    history = [Part(entry.version, entry.item, category(entry.item)) for entry in entries]
    if not full and room.take([part.item for part in history]):
        return Cut(kept + history, {})
    for part in summaries:
        full = full or not room.take([part.item])
        if not full:
            kept.append(part)
    kept += [] if full else _newest(entries, history, room)
    left = Counter(part.category for part in (*told, *summaries, *history))
    left.subtract(part.category for part in kept)
    return Cut(kept, {name: count for name, count in left.items() if count})


def _newest(entries: Sequence[Entry], history: Sequence[Part], room: _Room) -> list[Part]:
    """Give the longest end that fits, in units that belong together; what is tied to something older ends it."""
    pairs = ((first, second) for first, second in bonds(entries) if first is not None and second is not None)
    low = groups(len(entries), pairs)
    end = len(entries)
    at = end
    while at:
        first = at - 1
        lowest = low[first]
        while first > lowest:  # down to the oldest that anything in between is tied to
            first -= 1
            lowest = min(lowest, low[first])
        if not room.take([part.item for part in history[first:at]]):
            break
        at = first
    return list(history[at:end])


def category(item: Json) -> Category:
    """Tell which kind of history an item is."""
    if is_reasoning(item):
        return "reasoning"
    return "tool_calls" if calls(item) or results(item) else "messages"


FACTS: Final = (*facts.TYPES, *handoffs.TYPES, ARTIFACT)
"""The types of event from which a view with a budget tells what holds, before the history."""

_TOLD: Final[tuple[tuple[facts.Kind, Category, str], ...]] = (
    ("constraint", "constraints", "Constraint"),
    ("decision", "decisions", "Decision, confirmed"),
    ("question", "questions", "Open question"),
)


def held(events: Sequence[RecordedEvent], stream: str) -> list[Part]:
    """Give what holds after a lineage's events, each as an item that says so: of each category the oldest first.

    Of artifacts the versions that are current, also after a roll-back. The items are an assistant's messages: nobody's
    text gains authority.
    """
    found = facts.fold(events)
    parts = [
        Part(fact.version, _said(f"{words}: {fact.text}"), category)
        for kind, category, words in _TOLD
        for fact in found.current(kind)
    ]
    published = {
        (event.data["uri"], event.data["version"]): event.version for event in events if event.type == ARTIFACT
    }
    for uri, pointer in handoffs.course(events, stream).artifacts.items():
        version = published.get((uri, pointer["version"]), events[-1].version)
        parts.append(Part(version, _said(f"Artifact: {uri} version {pointer['version']}"), "artifacts"))
    return parts


def _said(text: str) -> Json:
    return {"type": "message", "role": "assistant", "content": text}
