"""Row 14: what a worker adds to reading the feed; a build of many events, its memory and its slope."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice
from statistics import mean
from typing import Any

import psutil

from eventstore import EventStore
from eventstore.projecting import Build, Projection
from projections.models import Branches, Conversations

from .frame import Row, Sample, Variant
from .items import items
from .lab import Lab


class Worker:
    """Builds of a projection, one after the other, and how they went."""

    def __init__(self, lab: Lab, store: EventStore, projection: Projection, n: int) -> None:
        self._lab = lab
        self._store = store
        self._projection = projection
        self._n = n
        self._grown: list[int] = []
        self._slopes: list[float] = []

    def begin(self) -> None:
        """Register a build."""
        self._store.projections.rebuild(self._projection)

    def run(self) -> Sample:
        """Build, and look at time and memory after each batch."""
        process = psutil.Process()
        seen: list[tuple[float, int, int]] = []

        def progress(build: Build, _: int) -> None:
            seen.append((time.perf_counter(), build.position, process.memory_info().rss))

        def work() -> None:
            self._store.projections.runner([self._projection]).run(until_caught_up=True, progress=progress)

        sample = measured(self._lab, self._n, work)
        quarter = max(len(seen) // 4, 2)
        first, last = seen[:quarter], seen[-quarter:]
        pace = [(part[-1][0] - part[0][0]) / max(part[-1][1] - part[0][1], 1) for part in (first, last)]
        self._slopes.append(pace[1] / pace[0] if pace[0] else 1.0)
        self._grown.append(max(rss for *_, rss in seen) - first[-1][2])
        return sample

    def tell(self) -> str:
        """Say how a build's last quarter went, and what it took of memory after the first."""
        slope, grown = mean(self._slopes), max(self._grown) / 2**20
        return f"last quarter {slope:.2f} of the first an event; memory + {grown:.1f} MiB after the first"


def measured(lab: Lab, n: int, work: Callable[[], object]) -> Sample:
    """Measure something that is done for ``n`` events."""
    lsn, client, started = lab.lsn(), time.process_time(), time.perf_counter()
    work()
    took, client = time.perf_counter() - started, time.process_time() - client
    wal, images = lab.wal_since(lsn)
    bare = None if images is None else (wal - images) / n
    return Sample(took / n * 1e6, client_cpu=client / n * 1e6, wal=wal / n, wal_bare=bare)


def _turns() -> Iterator[list[Any]]:
    """Yield ten items without end: a question, four calls with their results, an answer."""
    kinds: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for item in islice(items(), 4_000):
        kinds[item.get("role") or item["type"]].append(item)
    pick = random.Random(1)
    for n in count():
        calls = [
            pick.choice(kinds[kind]) | {"call_id": f"call_{n}_{call}"}
            for call in range(4)
            for kind in ("function_call", "function_call_output")
        ]
        yield [pick.choice(kinds["user"]), *calls, pick.choice(kinds["assistant"])]


@contextmanager
def building(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Fill a log with what 500 conversations say in turn, ten items an append."""
    n, pick = lab.size(200_000, 200), random.Random(1)
    database, turns = lab.database(), _turns()
    with EventStore.open(lab.url(database)) as store:
        for _ in range(n // 200):
            with store.transaction() as tx:
                for _ in range(20):
                    tx.conversation(f"conversation {pick.randrange(500)}").append(next(turns))

        def read() -> None:
            cursor, events = None, 1
            while events:
                page = store.feed(cursor, all_tenants=True)
                cursor, events = page.cursor, len(page.events)

        whole = Worker(lab, store, Conversations(), n)
        none = Worker(lab, store, Branches(), n)
        yield [
            Variant("the feed, read and decoded", lambda: measured(lab, n, read)),
            Variant("build of conversations", whole.run, whole.begin, goal=True, tell=whole.tell),
            Variant("build of branches, where there is none", none.run, none.begin),
        ]


ROWS = [
    Row(
        14,
        "a projection built from 200,000 events, 1 worker",
        "reading the feed alone",
        0.50,
        building,
        rounds=3,
        note="a row of counts, title and open calls for each of 500 conversations",
    ),
]
