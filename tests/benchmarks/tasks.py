"""Row 6: 64 tasks in one process, whose appends go together where they wait at the same moment."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count, islice, pairwise
from unittest import mock

from psycopg.conninfo import make_conninfo

from eventstore import AsyncEventStore

from .frame import Row, Sample, Variant
from .items import items
from .lab import Lab

TASKS = 64
CONNECTIONS = 4
SIZES = [0, 2, 4, 8, 16, 32, 64]


class Tasks:
    """An async store, and tasks that each append to a stream of their own, one append after the other."""

    def __init__(self, lab: Lab, stack: ExitStack, *, together: bool, keyed: bool = False, size: int = 1) -> None:
        self._lab = lab
        self._keyed = keyed
        self._size = size
        self._source = items()
        self._number = count(1)
        self._run = stack.enter_context(asyncio.Runner()).run
        name = f"bench tasks {id(self)}"
        chosen = {"CONVSTORE_POOL_SIZE": str(CONNECTIONS), "CONVSTORE_PREPARE": "true"}
        with mock.patch.dict(os.environ, chosen):
            store = self._run(self._opened(make_conninfo(lab.url(lab.database()), application_name=name)))
        stack.callback(lambda: self._run(store.close()))
        if not together and store._pooled is not None:
            store._pooled.writer = None
        self._registry = store.telemetry.registry
        self._chats = [store.conversation(f"task {n}") for n in range(TASKS)]
        self._run(self._appends(2))
        self._pids = lab.backends(name)

    async def _opened(self, url: str) -> AsyncEventStore:
        return await AsyncEventStore.open(url)

    async def _appends(self, n: int) -> None:
        async def one(number: int) -> None:
            for _ in range(n):
                key = f"step {next(self._number)}" if self._keyed else None
                await self._chats[number].append(list(islice(self._source, self._size)), key=key)

        await asyncio.gather(*map(one, range(TASKS)))

    def run(self, n: int) -> Sample:
        """Have each task append ``n`` times; the figures are those of one append."""
        lab, appends = self._lab, TASKS * n
        lsn, server, client, started = lab.lsn(), self._cpu(), time.process_time(), time.perf_counter()
        self._run(self._appends(n))
        took, client, after = time.perf_counter() - started, time.process_time() - client, self._cpu()
        wal, images = lab.wal_since(lsn)
        return Sample(
            value=took / appends * 1e6,
            client_cpu=client / appends * 1e6,
            server_cpu=None if server is None or after is None else (after - server) / appends * 1e6,
            wal=wal / appends,
            wal_bare=None if images is None else (wal - images) / appends,
        )

    def shares(self) -> str:
        """Say how many appends went alone, and how large the sets of the others were."""
        total, together = self._value("convstore_append_events_count"), self._value("convstore_append_set_appends_sum")
        sets = self._value("convstore_append_set_appends_count") or 1.0
        upto = [self._value("convstore_append_set_appends_bucket", le=f"{size}.0") for size in SIZES]
        shown = [
            f"{low + 1}-{high}: {(b - a) / sets:.0%}"
            for (low, high), (a, b) in zip(pairwise(SIZES), pairwise(upto), strict=True)
            if b > a
        ]
        return f"{1 - together / total:.1%} of the appends alone; sets of {', '.join(shown)}"

    def _value(self, name: str, **labels: str) -> float:
        return self._registry.get_sample_value(name, labels) or 0.0

    def _cpu(self) -> float | None:
        taken = [self._lab.cpu(pid) for pid in self._pids]
        return None if None in taken else sum(seconds or 0.0 for seconds in taken)


@contextmanager
def tasks(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 6."""
    n = lab.size(10, 2)
    with ExitStack() as stack:

        def variant(name: str, *, together: bool = True, keyed: bool = False, goal: bool = False) -> Variant:
            who = Tasks(lab, stack, together=together, keyed=keyed)
            return Variant(name, lambda: who.run(n), goal=goal, tell=who.shares if together else str)

        yield [
            variant("each append its own call", together=False),
            variant("together", goal=True),
            variant("each its own, with key=", together=False, keyed=True),
            variant("together, with key=", keyed=True),
        ]


ROWS = [
    Row(
        6,
        "64 tasks in one process",
        "our own append, each its own call, 4 connections",
        2.5,
        tasks,
        passes=4,
        note="client CPU ≤ 60 µs an append",
    )
]
