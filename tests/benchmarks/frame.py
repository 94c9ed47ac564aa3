"""A row of the table: what it measures, against which limit, and how the rounds go.

A row makes variants; the first is its limit. They run by turns, A B C, A B C …, in short passes, so what the machine
does meanwhile hits all of them. A round is the mean of some passes; a ratio is taken within a round, and its median
over the rounds is the message.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, astuple, dataclass, field
from statistics import mean, median
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .lab import Lab


@dataclass(frozen=True, slots=True)
class Sample:
    """One variant's figures in one round, an event each: microseconds and bytes; None where not measured.

    ``wal_bare`` is the WAL without full-page images, which come after each checkpoint and belong to no single write.
    """

    value: float
    client_cpu: float | None = None
    server_cpu: float | None = None
    wal: float | None = None
    wal_bare: float | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to do a row's work. ``before`` is done ahead of each run and not measured."""

    name: str
    run: Callable[[], Sample]
    before: Callable[[], object] = lambda: None
    goal: bool = False
    """Whether the row's target is for this one; the others show where the time goes."""
    base: int = 0
    """Which of the row's variants is the limit of this one."""
    tell: Callable[[], str] = str
    """What else there is to say, once all has run; may refuse."""
    target: float | None = None
    """Its own, where a row has more than one."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table. ``ratio``: "rate" is limit ÷ value, at least ``target``; "cost" value ÷ limit, at most."""

    number: int
    title: str
    limit: str
    target: float
    setup: Callable[[Lab], AbstractContextManager[Sequence[Variant]]]
    unit: str = "µs/event"
    ratio: Literal["rate", "cost"] = "rate"
    note: str = ""
    passes: int = 1
    """Turns in a round."""
    rounds: int | None = None
    """At most so many, where another round would show the same."""

    def wanted(self, target: float | None = None) -> str:
        """Print a target, the row's if none is given."""
        return f"{'≥' if self.ratio == 'rate' else '≤'} {target or self.target:.2f}"


@dataclass(frozen=True, slots=True)
class Line:
    """A variant's medians."""

    variant: str
    value: float
    ratio: float
    ratio_low: float
    ratio_high: float
    target: str | None
    met: bool | None
    client_cpu: float | None
    server_cpu: float | None
    wal: float | None
    wal_bare: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A row's lines, the limit first."""

    row: Row
    rounds: int
    lines: list[Line] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Give what ``--json`` prints."""
        row = self.row
        head = {"row": row.number, "title": row.title, "limit": row.limit, "unit": row.unit, "ratio": row.ratio}
        return head | {"target": row.wanted(), "rounds": self.rounds, "lines": [asdict(line) for line in self.lines]}


def burst(lab: Lab, pid: int, work: Callable[[], int]) -> Callable[[], Sample]:
    """Make a run out of ``work``, which does things one after the other and returns how many events that were."""

    def run() -> Sample:
        lsn = lab.lsn()
        server = lab.cpu(pid)
        client = time.process_time()
        started = time.perf_counter()
        n = work()
        took = time.perf_counter() - started
        client = time.process_time() - client
        after = lab.cpu(pid)
        wal, images = lab.wal_since(lsn)
        return Sample(
            value=took / n * 1e6,
            client_cpu=client / n * 1e6,
            server_cpu=None if server is None or after is None else (after - server) / n * 1e6,
            wal=wal / n,
            wal_bare=None if images is None else (wal - images) / n,
        )

    return run


def measure(row: Row, lab: Lab, rounds: int) -> Outcome:
    """Run a row: one round to warm up, then those that count."""
    rounds = min(rounds, row.rounds or rounds)
    passes = 1 if lab.quick else row.passes
    with row.setup(lab) as variants:
        if row.rounds is None:
            _round(variants, passes)
        taken = [_round(variants, passes) for _ in range(rounds)]
    samples = [[one[index] for one in taken] for index in range(len(variants))]
    return Outcome(
        row,
        rounds,
        [_line(row, variant, own, samples[variant.base]) for variant, own in zip(variants, samples, strict=True)],
    )


def _round(variants: Sequence[Variant], passes: int) -> list[Sample]:
    taken: list[list[Sample]] = [[] for _ in variants]
    for _ in range(passes):
        for variant, own in zip(variants, taken, strict=True):
            variant.before()
            own.append(variant.run())
    return [_mean(own) for own in taken]


def _mean(samples: Sequence[Sample]) -> Sample:
    columns = zip(*(astuple(sample) for sample in samples), strict=True)
    value, *rest = [None if None in column else mean(column) for column in columns]
    return Sample(value or 0.0, *rest)


def _line(row: Row, variant: Variant, samples: Sequence[Sample], limit: Sequence[Sample]) -> Line:
    ratios = [
        base.value / sample.value if row.ratio == "rate" else sample.value / base.value
        for base, sample in zip(limit, samples, strict=True)
    ]
    ratio = median(ratios)
    target = row.target if variant.goal else variant.target
    return Line(
        variant=variant.name,
        value=median(sample.value for sample in samples),
        ratio=ratio,
        ratio_low=min(ratios),
        ratio_high=max(ratios),
        target=None if target is None else row.wanted(target),
        met=None if target is None else ratio >= target if row.ratio == "rate" else ratio <= target,
        client_cpu=_median([sample.client_cpu for sample in samples]),
        server_cpu=_median([sample.server_cpu for sample in samples]),
        wal=_median([sample.wal for sample in samples]),
        wal_bare=_median([sample.wal_bare for sample in samples]),
        note=variant.tell(),
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
