"""A transcript is a list of version ranges over immutable events, changed by control events only.

Two things are kept. ``kept`` says which versions were neither retracted nor cleared: what of it is an
``item.appended`` is the originals. ``compactions`` lie over it: each hides the range that it ``covers``
and shows its summaries in that place. So a plain append changes nothing (the last interval is open), a
compaction cuts nothing, and undoing it in ``originals`` is to look beneath it. Whoever fetches the pieces
filters by type: responses, tasks and all other events occupy versions and are never shown.

Every event that the catalogue admits has a defined effect; ``docs/transcripts.md`` has the table.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from eventstore.log.catalogue import CONTROL as CONTROL
from eventstore.log.events import Json
from projections.intervals import OPEN, Interval, subtract, union, within

_FORMAT: Final = 1


class Piece(NamedTuple):
    """Versions to fetch, both inclusive: of type ``summary.appended`` if ``summary``, else ``item.appended``."""

    first: int
    last: int
    summary: bool = False


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction that the transcript shows.

    ``version`` is that of its ``history.compacted``, ``covers`` the range whose place it takes, ``shown``
    the versions of its summaries less those retracted. ``depth`` is 1 for a summary made from originals,
    else one more than the deepest that it was made from. ``stale``: a version in ``covers`` was retracted since.
    """

    version: int
    covers: Interval
    shown: tuple[Interval, ...]
    depth: int
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Ranges:
    """What a transcript shows from the control event ``control`` on, until the next one.

    A value: ``fold`` gives a new one. Size: one interval for each hole that is left between kept versions,
    one entry for each compaction shown. Folding m events into n pieces takes O(n) once, to copy, then for
    each event O(log n) look-ups plus the pieces that it cuts or drops; an event adds at most two pieces for
    each range that it names, so what is dropped was added once and the whole is O(n + m log(n + m)),
    not counting the moves of a list's tail in memory. Popping the tail again and again adds no pieces.
    """

    kept: tuple[Interval, ...] = ((1, OPEN),)
    compactions: tuple[Compaction, ...] = ()
    """In the order of their places, which do not overlap."""
    control: int = 0
    """The version of the last control event, 0 where there was none."""
    cleared: int = 0
    """The version of the last ``history.cleared``, 0 where there was none."""

    def apply(self, version: int, event_type: str, data: Json) -> Ranges:
        """Give the ranges after one more event; any but a control event changes nothing."""
        return self.fold([(version, event_type, data)])

    def fold(self, events: Iterable[tuple[int, str, Json]]) -> Ranges:
        """Give the ranges after more events, as (version, type, data) in order of version.

        All of a stream's control events above ``control`` must be among them; others may be.

        Raises:
            ValueError: a version is not greater than the one before it.
        """
        edit: _Edit | None = None
        last = self.control
        for version, event_type, data in events:
            if version <= last:
                raise ValueError(f"event {version} comes after event {last}; fold in order of version, each once")
            last = version
            if event_type in CONTROL:
                edit = edit or _Edit(self)
                edit.apply(version, event_type, data)
        return edit.done() if edit else self

    def transcript(self, at: int) -> list[Piece]:
        """Give what the transcript at version ``at`` is made of, in its order."""
        return list(self.newest(at))[::-1]

    def originals(self, at: int) -> list[Piece]:
        """Give what the originals at version ``at`` are made of, in order."""
        self._check(at)
        return [Piece(*piece) for piece in within(self.kept, 1, at)][::-1]

    def newest(self, at: int) -> Iterator[Piece]:
        """Yield the pieces of the transcript at version ``at`` from its end, each found as it is asked for.

        A piece may hold other events than those to show, so the last N are had by fetching piece after
        piece, by type and from the greatest version down, until there are N.
        """
        self._check(at)
        before = at
        for compaction in reversed(self.compactions):
            yield from (Piece(*piece) for piece in within(self.kept, compaction.covers[1] + 1, before))
            yield from (Piece(*piece, summary=True) for piece in reversed(compaction.shown))
            before = compaction.covers[0] - 1
        yield from (Piece(*piece) for piece in within(self.kept, 1, before))

    def stands_for(self, compaction: Compaction) -> list[Interval]:
        """Give the versions that hold the originals of a compaction, through all that it replaced."""
        return self.kept_within(*compaction.covers)

    def kept_within(self, first: int, last: int) -> list[Interval]:
        """Give what is left of a range of versions: those of originals, be they shown or compacted."""
        return list(within(self.kept, first, last))[::-1]

    def overlapped(self, first: int, last: int) -> tuple[Compaction, ...]:
        """Give the compactions whose places lie in a range of versions, in part or whole."""
        start = bisect_left(self.compactions, first, key=lambda shown: shown.covers[1])
        end = bisect_right(self.compactions, last, lo=start, key=lambda shown: shown.covers[0])
        return self.compactions[start:end]

    def depth_above(self, first: int, last: int, basis: str) -> int:
        """Give the depth of a summary of a range: 1 from originals, else 1 more than the deepest in it."""
        return 1 + _deepest(self.overlapped(first, last)) if basis == "summary" else 1

    def dumps(self) -> dict[str, Json]:
        """Give a checkpoint: a JSON value of small numbers, a few bytes an interval, some 20 a compaction."""
        return {
            "format": _FORMAT,
            "control": self.control,
            "cleared": self.cleared,
            "kept": _steps(self.kept),
            "compactions": _rows(self.compactions),
        }

    @classmethod
    def loads(cls, checkpoint: Json, control: int | None = None) -> Ranges:
        """Give back the ranges of a checkpoint, which must be that of ``control`` where that is given.

        Raises:
            ValueError: it is of a format that this code does not know, or no checkpoint.
        """
        if not isinstance(checkpoint, dict) or checkpoint.get("format") != _FORMAT:
            known = checkpoint.get("format") if isinstance(checkpoint, dict) else checkpoint
            raise ValueError(f"checkpoint of ranges in format {known!r}; this code reads format {_FORMAT}")
        try:
            found = cls(
                kept=_intervals(checkpoint["kept"]),
                compactions=tuple(_compactions(checkpoint["compactions"])),
                control=checkpoint["control"],
                cleared=checkpoint["cleared"],
            )
            sound = found._sound() and control in (None, found.control)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"damaged checkpoint of ranges: {error!r}") from error
        if not sound:
            raise ValueError(f"checkpoint of ranges that can't be those of control event {control or found.control}")
        return found

    def _sound(self) -> bool:
        """Tell whether these can be the ranges of a stream."""
        shown = sorted(self.compactions, key=lambda compaction: compaction.version)
        summaries = [piece for compaction in shown for piece in (*compaction.shown, (compaction.version,) * 2)]
        depths = [compaction.depth for compaction in shown]
        return (
            all(type(number) is int for number in (self.control, self.cleared, *depths))
            and 0 <= self.cleared <= self.control < OPEN
            and self.kept[-1:] != ()
            and self.kept[-1][1] == OPEN
            and all(first <= self.control + 1 for first, _ in self.kept)
            and _ordered(self.kept)
            and _ordered([compaction.covers for compaction in self.compactions])
            and all(compaction.covers[1] < compaction.version <= self.control for compaction in shown)
            and _ordered(summaries)
            and all(depth >= 1 for depth in depths)
        )

    def _check(self, at: int) -> None:
        if at < self.control:
            raise ValueError(f"these ranges are of version {self.control} and later, asked for {at}; fold up to {at}")


EMPTY: Final = Ranges()
"""The ranges before any control event: everything is shown."""


class _Edit:
    """Ranges in lists, edited in place."""

    def __init__(self, ranges: Ranges) -> None:
        self.kept = list(ranges.kept)
        self.control, self.cleared = ranges.control, ranges.cleared
        self.shown = {compaction.version: compaction for compaction in ranges.compactions}
        self.places = [(*compaction.covers, compaction.version) for compaction in ranges.compactions]
        # A compaction's summaries lie between the control event before it and itself, so the order of
        # the compactions' versions is that of their summaries'.
        self.versions = sorted(self.shown)

    def apply(self, version: int, event_type: str, data: Mapping[str, Any]) -> None:
        if event_type == "items.retracted":
            self._retract(union((first, min(last, version - 1)) for first, last in data["ranges"]))
        elif event_type == "history.compacted":
            self._compact(version, data)
        else:
            self.kept = [(version + 1, OPEN)]
            self.shown, self.places, self.versions = {}, [], []
            self.cleared = version
        if self.kept[-1][0] == version:  # holds nothing yet: a hole before it goes on behind this event
            self.kept[-1] = (version + 1, OPEN)
        self.control = version

    def done(self) -> Ranges:
        shown = tuple(self.shown[place[-1]] for place in self.places)
        return Ranges(tuple(self.kept), shown, self.control, self.cleared)

    def _retract(self, ranges: list[Interval]) -> None:
        bare = list(ranges)
        for first, last in ranges:
            for version in self._summarized(first, last):
                before = self.shown[version]
                for piece in before.shown:
                    subtract(bare, *piece)
                rest = list(before.shown)
                subtract(rest, first, last)
                self.shown[version] = replace(before, shown=tuple(rest))
                if before.shown and not rest:
                    self._drop(version)
                    subtract(self.kept, *before.covers)
        for first, last in bare:
            for *_, version in self._placed(first, last):
                self.shown[version] = replace(self.shown[version], stale=True)
        for first, last in ranges:
            subtract(self.kept, first, last)

    def _compact(self, version: int, data: Mapping[str, Any]) -> None:
        first, last = max(data["covers"][0], self.cleared + 1), min(data["covers"][1], version - 1)
        if last < first:
            return
        replaced = self._placed(first, last)
        if replaced:
            first, last = min(first, replaced[0][0]), max(last, replaced[-1][1])
        deepest = _deepest(self.shown[place[-1]] for place in replaced) if data["basis"] == "summary" else 0
        for place in replaced:
            self._drop(place[-1])
        summaries = (max(version - data["items"], self.control + 1), version - 1)
        shown = (summaries,) if summaries[0] <= summaries[1] else ()
        self.shown[version] = Compaction(version, (first, last), shown, 1 + deepest)
        insort(self.places, (first, last, version))
        self.versions.append(version)

    def _drop(self, version: int) -> None:
        compaction = self.shown.pop(version)
        del self.places[bisect_left(self.places, (*compaction.covers, version))]
        del self.versions[bisect_left(self.versions, version)]

    def _placed(self, first: int, last: int) -> list[tuple[int, int, int]]:
        """Find the compactions whose places lie in a range, in part or whole."""
        start = bisect_left(self.places, first, key=lambda place: place[1])
        end = bisect_right(self.places, last, lo=start, key=lambda place: place[0])
        return self.places[start:end]

    def _summarized(self, first: int, last: int) -> list[int]:
        """Find the compactions that show a summary of a version in a range."""
        found = []
        for at in range(bisect_right(self.versions, first), len(self.versions)):
            version = self.versions[at]
            shown = self.shown[version].shown
            if (shown[0][0] if shown else version) > last:
                break
            if shown and shown[-1][1] >= first:
                found.append(version)
        return found


def _ordered(pieces: Iterable[Interval]) -> bool:
    before = 0
    for first, last in pieces:
        if not (type(first) is int and type(last) is int and before < first <= last):
            return False
        before = last
    return True


def _deepest(compactions: Iterable[Compaction]) -> int:
    return max((compaction.depth for compaction in compactions), default=0)


def _rows(compactions: Iterable[Compaction]) -> list[list[int]]:
    """Write each compaction in steps from the one before it, its summaries in steps from itself."""
    rows, version, last = [], 0, 0
    for c in compactions:
        steps = [c.version - version, c.covers[0] - last, c.covers[1] - c.covers[0]]
        version, last = c.version, c.covers[1]
        rows.append([*steps, c.depth, int(c.stale), *_steps(c.shown, version)])
    return rows


def _compactions(rows: Iterable[Iterable[int]]) -> Iterator[Compaction]:
    version, last = 0, 0
    for later, gap, length, depth, stale, *shown in rows:
        version, first = version + later, last + gap
        last = first + length
        yield Compaction(version, (first, last), _intervals(shown, version), depth, bool(stale))


def _steps(pieces: Iterable[Interval], before: int = 0) -> list[int]:
    """Write intervals as steps from end to end, beginning at ``before``; an open one has no last step."""
    steps = []
    for first, last in pieces:
        steps += [first - before] if last == OPEN else [first - before, last - first]
        before = last
    return steps


def _intervals(steps: Iterable[int], at: int = 0) -> tuple[Interval, ...]:
    ends = []
    for step in steps:
        at += step
        ends.append(at)
    if len(ends) % 2:
        ends.append(OPEN)
    return tuple(zip(ends[::2], ends[1::2], strict=True))
