"""Rows 2, 3 and 15: many writers at once and a reader beside them, which must miss nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import mean

import psycopg

from .crew import Crew, Follower, Work, crew, follower
from .frame import Row, Sample, Variant
from .lab import Lab

NO_STAMP = "SELECT NULL::void"
NO_LOCKS = "SELECT h, h FROM coalesce(pg_sequence_last_value('position'), 0) h"


class Beside:
    """A crew's runs, with a reader beside them or without, and what the reader did wrong in all of them."""

    def __init__(self, lab: Lab, database: str, writers: Crew, reader: Follower | None, n: int) -> None:
        self._lab = lab
        self._database = database
        self._writers = writers
        self._reader = reader
        self._n = n
        self.missed = self.wrong = 0
        self.delays: list[float] = []

    def start(self) -> None:
        """Begin new streams, and the reading."""
        self._writers.start()
        if self._reader is not None:
            self._reader.begin()

    def rate(self) -> Sample:
        """Measure the writers."""
        return self._run(lambda work: work.seconds / work.events * 1e6)

    def delay(self) -> Sample:
        """Measure from an append's return to when its event was given; the CPU is the reader's."""
        return self._run(lambda _: mean(self.delays), of_reader=True)

    def _run(self, value: Callable[[Work], float], *, of_reader: bool = False) -> Sample:
        lab, last = self._lab, self._position()
        pids = lab.backends(self._reader.name if of_reader and self._reader is not None else self._writers.name)
        lsn, before = lab.lsn(), [lab.cpu(pid) for pid in pids]
        work = self._writers.write(self._n)
        seen = self._reader.end() if self._reader is not None else None
        after = [lab.cpu(pid) for pid in pids]
        wal, images = lab.wal_since(lsn)
        if seen is not None:
            missed, wrong = seen.faults(self._stored(last))
            self.missed += missed
            self.wrong += wrong
            given = {position: when for position, *_, when in seen.events}
            self.delays = [
                max(given[position] - when, 0) * 1e6
                for position, when in work.acknowledged.items()
                if position in given
            ]
        spent = [b - a for a, b in zip(before, after, strict=True) if a is not None and b is not None]
        client = seen.client_cpu if of_reader and seen is not None else work.client_cpu
        return Sample(
            value=value(work),
            client_cpu=client / work.events * 1e6,
            server_cpu=sum(spent) / work.events * 1e6 if len(spent) == len(pids) else None,
            wal=wal / work.events,
            wal_bare=None if images is None else (wal - images) / work.events,
        )

    def tell(self) -> str:
        """Say what the reader missed."""
        return "" if self._reader is None else f"{self.missed} missed, {self.wrong} twice or out of order"

    def must_be_right(self) -> str:
        """Refuse figures of a feed that lost something."""
        if self.missed or self.wrong:
            raise AssertionError(f"the feed is wrong: {self.tell()}")
        return self.tell()

    def _position(self) -> int:
        return self._stored(-1)[-1] if self._reader is not None else 0

    def _stored(self, after: int) -> list[int]:
        with psycopg.connect(self._lab.url(self._database)) as conn:
            query = "SELECT position FROM convstore.events WHERE position > %s ORDER BY position"
            return [position for (position,) in conn.execute(query, [after])]


@contextmanager
def eight(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 2."""
    processes, n = lab.size(8, 2), lab.size(150, 5)
    plain, read, alone = lab.database(), lab.database(), lab.database()
    with ExitStack() as stack:
        with lab.bare(plain):
            pass  # the table
        bare = Beside(lab, plain, stack.enter_context(crew(lab, plain, "bare", processes=processes)), None, n)
        ours = Beside(
            lab,
            read,
            stack.enter_context(crew(lab, read, "append", processes=processes)),
            stack.enter_context(follower(lab, read)),
            n,
        )
        unread = Beside(lab, alone, stack.enter_context(crew(lab, alone, "append", processes=processes)), None, n)
        yield [
            Variant("bare INSERT", bare.rate, bare.start),
            Variant("append, and a reader of the feed", ours.rate, ours.start, goal=True, tell=ours.must_be_right),
            Variant("append, and no reader", unread.rate, unread.start),
        ]


@contextmanager
def ordering(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 3: the same function without the stamp, in a database of its own; a reader beside all."""
    variants: list[Variant] = []
    processes = lab.size(4, 2)
    with ExitStack() as stack:
        for writers, n in ((16, lab.size(60, 3)), (64, lab.size(15, 2))):
            base = len(variants)
            for name, database in (("without the stamp", lab.without(stamp=NO_STAMP)), ("append", lab.database())):
                team = crew(lab, database, "append", processes=processes, threads=lab.size(writers // processes, 2))
                beside = Beside(
                    lab, database, stack.enter_context(team), stack.enter_context(follower(lab, database)), n
                )
                goal = name == "append"
                tell = beside.must_be_right if goal else beside.tell
                variants.append(
                    Variant(f"{name}, {writers} writers", beside.rate, beside.start, goal=goal, base=base, tell=tell)
                )
        yield variants


@contextmanager
def delay(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 15: the same reader, which once looks at no lock."""
    processes, n = lab.size(4, 2), lab.size(60, 3)
    variants = []
    with ExitStack() as stack:
        for name, database in (
            ("reader that looks at no lock", lab.without(feed_bound=NO_LOCKS)),
            ("reader of the feed", lab.database()),
        ):
            team = crew(lab, database, "append", processes=processes, threads=lab.size(4, 2))
            beside = Beside(lab, database, stack.enter_context(team), stack.enter_context(follower(lab, database)), n)
            goal = name == "reader of the feed"
            tell = beside.must_be_right if goal else beside.tell
            variants.append(Variant(name, beside.delay, beside.start, goal=goal, tell=tell))
        yield variants


ROWS = [
    Row(
        2,
        "one-item durable append, 8 writer processes, with a feed that misses nothing",
        "bare INSERT by 8 processes",
        0.70,
        eight,
        passes=3,
    ),
    Row(
        3,
        "what ordering costs at 16 and 64 writers",
        "our own append without the stamp",
        0.90,
        ordering,
        passes=3,
        note="a reader beside each",
    ),
    Row(
        15,
        "from an append's return to the reader, 16 writers",
        "a reader that looks at no lock and misses events",
        1.50,
        delay,
        unit="µs",
        ratio="cost",
        passes=3,
        note="mean of a run; CPU is the reader's",
    ),
]
