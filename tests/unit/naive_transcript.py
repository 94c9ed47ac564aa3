"""The transcript by the book: a list of entries, edited event by event, with no thought of cost.

Written apart from ``projections.transcript``, to be compared with it; also usable for branches, whose events
are one complete stream: give ``fold`` the events from 1 to the version in question.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Recorded: TypeAlias = tuple[int, str, Any]
"""Version, type, data."""


@dataclass
class Entry:
    """An event where it happened."""

    version: int
    type: str


@dataclass
class Group:
    """A compaction in the place of what it covers."""

    version: int
    first: int
    last: int
    claimed: list[Entry]
    inside: list[Entry]
    depth: int
    stale: bool = False
    ends_with_its_summaries: bool = field(init=False)

    def __post_init__(self) -> None:
        self.ends_with_its_summaries = bool(self.claimed)


class Transcript:
    """What is left of events, in order."""

    def __init__(self) -> None:
        self.entries: list[Entry | Group] = []
        self.log: dict[int, str] = {}
        self.control = 0
        self.cleared = 0

    def add(self, version: int, event_type: str, data: Any) -> None:
        assert version == len(self.log) + 1
        if event_type == "items.retracted":
            self._retract({v for first, last in data["ranges"] for v in range(first, min(last, version - 1) + 1)})
        if event_type == "history.cleared":
            self.entries = []
            self.cleared = version
        if event_type == "history.compacted":
            self._compact(version, data)
        if event_type in ("items.retracted", "history.cleared", "history.compacted"):
            self.control = version
        self.log[version] = event_type
        self.entries.append(Entry(version, event_type))

    def _retract(self, versions: set[int]) -> None:
        summaries = {e.version for g in self._groups() for e in g.claimed}
        for group in self._groups():
            if any(group.first <= v <= group.last for v in versions - summaries):
                group.stale = True
            group.claimed = [e for e in group.claimed if e.version not in versions]
            group.inside = [e for e in group.inside if e.version not in versions]
        self.entries = [
            e
            for e in self.entries
            if (isinstance(e, Entry) and e.version not in versions)
            or (isinstance(e, Group) and (e.claimed or not e.ends_with_its_summaries))
        ]

    def _compact(self, version: int, data: Any) -> None:
        first, last = data["covers"]
        first, last = max(first, self.cleared + 1), min(last, version - 1)
        if first > last:
            return
        replaced = [g for g in self._groups() if g.first <= last and g.last >= first]
        first, last = min([first, *(g.first for g in replaced)]), max([last, *(g.last for g in replaced)])
        inside: list[Entry] = []
        before: list[Entry | Group] = []
        after: list[Entry | Group] = []
        for e in self.entries:
            if isinstance(e, Group) and e in replaced:
                inside += e.inside
            elif isinstance(e, Entry) and first <= e.version <= last:
                inside.append(e)
            else:
                place = e.version if isinstance(e, Entry) else e.first
                (before if place < first else after).append(e)
        claimed = [
            Entry(v, self.log[v]) for v in range(1, version) if v >= version - data["items"] and v > self.control
        ]
        depth = 1
        if data["basis"] == "summary":
            depth += max((g.depth for g in replaced), default=0)
        self.entries = [*before, Group(version, first, last, claimed, inside, depth), *after]

    def _groups(self) -> list[Group]:
        return [e for e in self.entries if isinstance(e, Group)]

    def transcript(self) -> list[int]:
        """The versions shown, in order."""
        shown = []
        for e in self.entries:
            if isinstance(e, Group):
                shown += [s.version for s in e.claimed if s.type == "summary.appended"]
            elif e.type == "item.appended":
                shown.append(e.version)
        return shown

    def originals(self) -> list[int]:
        """The versions of the originals, in order."""
        kept = []
        for e in self.entries:
            kept += [i.version for i in (e.inside if isinstance(e, Group) else [e]) if i.type == "item.appended"]
        return kept

    def compactions(self) -> list[tuple[int, tuple[int, int], list[int], int, bool, list[int]]]:
        """Version, covers, versions of summaries left, depth, stale, originals, of each one shown."""
        return [
            (
                g.version,
                (g.first, g.last),
                [e.version for e in g.claimed],
                g.depth,
                g.stale,
                [e.version for e in g.inside if e.type == "item.appended"],
            )
            for g in self._groups()
        ]


def fold(events: Iterable[Recorded]) -> Transcript:
    """Fold events 1 … v."""
    transcript = Transcript()
    for event in events:
        transcript.add(*event)
    return transcript


def fetch(events: Sequence[Recorded], pieces: Iterable[tuple[int, int, bool]]) -> list[int]:
    """What a reader of the log gets for pieces: the versions in them that have the piece's type."""
    found = []
    for first, last, summary in pieces:
        assert 1 <= first <= last <= len(events)
        wanted = "summary.appended" if summary else "item.appended"
        found += [version for version, event_type, _ in events[first - 1 : last] if event_type == wanted]
    return found
