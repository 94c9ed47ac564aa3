"""Writers and a reader in processes of their own, told by pipes what to do; times are of the machine's one clock."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from multiprocessing.connection import Connection
from typing import Any, Literal

import psycopg
from psycopg.conninfo import make_conninfo

from eventstore import EventStore

from .items import items
from .lab import Bare, Lab

Kind = Literal["bare", "append"]
_number = count(1)


@dataclass(frozen=True, slots=True)
class Work:
    """What writers did in one run."""

    events: int
    seconds: float
    client_cpu: float
    acknowledged: dict[int, float]
    """Position → when its append returned; empty for a bare table."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the reader was given: (position, stream, version, when), and its CPU time."""

    events: list[tuple[int, str, int, float]] = field(default_factory=list)
    client_cpu: float = 0.0

    def faults(self, stored: list[int]) -> tuple[int, int]:
        """Count the events that it missed, and those given twice or out of order."""
        missed = len(set(stored) - {position for position, *_ in self.events})
        heads: dict[str, int] = {}
        wrong, last = 0, 0
        for position, stream, version, _ in self.events:
            if position <= last or version != heads.get(stream, version - 1) + 1:
                wrong += 1
            last, heads[stream] = position, version
        return missed, wrong


class Crew:
    """Writers, a connection each, in some processes."""

    def __init__(self, pipes: list[Connection], name: str) -> None:
        self._pipes = pipes
        self.name = name

    def start(self) -> None:
        """Have each begin a new stream, unmeasured."""
        self._all("start", 0)

    def write(self, n: int) -> Work:
        """Have each write ``n`` items, one a commit, all at once."""
        done = self._all("write", n)
        began, ended = min(began for began, *_ in done), max(ended for _, ended, *_ in done)
        acknowledged: dict[int, float] = {}
        for *_, own in done:
            acknowledged |= own
        return Work(sum(e for *_, e, _ in done), ended - began, sum(cpu for _, _, cpu, _, _ in done), acknowledged)

    def _all(self, what: str, n: int) -> list[Any]:
        for pipe in self._pipes:
            pipe.send((what, n))
        return [pipe.recv() for pipe in self._pipes]


class Follower:
    """A reader of the feed of one database, from when it is told to begin."""

    def __init__(self, pipe: Connection, name: str) -> None:
        self._pipe = pipe
        self.name = name

    def begin(self) -> None:
        """Have it follow, from now on."""
        self._pipe.send("begin")
        self._pipe.recv()

    def end(self) -> Seen:
        """Have it read to the end and say what it was given."""
        self._pipe.send("end")
        seen: Seen = self._pipe.recv()
        return seen


@contextmanager
def crew(lab: Lab, database: str, kind: Kind, *, processes: int, threads: int = 1) -> Iterator[Crew]:
    """Start writers: ``threads`` connections in each of ``processes``."""
    name = f"crew {next(_number)}"
    url = make_conninfo(lab.url(database), application_name=name)
    with ExitStack() as stack:
        tasks = [partial(_writers, url, kind, number * threads, threads) for number in range(processes)]
        yield Crew([stack.enter_context(_process(task)) for task in tasks], name)


@contextmanager
def follower(lab: Lab, database: str) -> Iterator[Follower]:
    """Start a reader."""
    name = f"follower {next(_number)}"
    with _process(partial(_follows, make_conninfo(lab.url(database), application_name=name))) as pipe:
        yield Follower(pipe, name)


@contextmanager
def _process(task: Callable[[Connection], None]) -> Iterator[Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=task, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        ours.recv()  # it is ready
        yield ours
        ours.send(None)
        process.join(30)
    finally:
        process.kill()
        ours.close()


# --- in the processes ---


def _writers(url: str, kind: Kind, first: int, threads: int, pipe: Connection) -> None:
    os.environ |= {"CONVSTORE_POOL_SIZE": "1", "CONVSTORE_PREPARE": "true"}
    with ExitStack() as stack:
        if kind == "bare":
            conns = [stack.enter_context(psycopg.connect(url, autocommit=True)) for _ in range(threads)]
            writers: list[Any] = [_BareWriter(Bare(conn), first + n) for n, conn in enumerate(conns)]
        else:
            stores = [stack.enter_context(EventStore.open(url)) for _ in range(threads)]
            writers = [_Writer(store, first + n) for n, store in enumerate(stores)]
        pool = stack.enter_context(ThreadPoolExecutor(threads))
        list(pool.map(lambda writer: writer.start(), writers))
        pipe.send("ready")
        while (told := pipe.recv()) is not None:
            what, n = told
            cpu, began = time.process_time(), time.monotonic()
            if what == "start":
                list(pool.map(lambda writer: writer.start(), writers))
                pipe.send(None)
                continue
            acknowledged: dict[int, float] = {}
            for own in pool.map(lambda writer: writer.write(n), writers):  # noqa: B023
                acknowledged |= own
            pipe.send((began, time.monotonic(), time.process_time() - cpu, n * threads, acknowledged))


class _BareWriter:
    def __init__(self, bare: Bare, number: int) -> None:
        self._bare = bare
        self._stream = number * 1_000_000
        self._items = items()

    def start(self) -> None:
        self._stream += 1
        self._bare.insert(self._stream, 1, {})

    def write(self, n: int) -> dict[int, float]:
        for version, item in enumerate(islice(self._items, n), 2):
            self._bare.insert(self._stream, version, item)
        return {}


class _Writer:
    def __init__(self, store: EventStore, number: int) -> None:
        self._store = store
        self._number = number
        self._run = 0
        self._items = items()

    def start(self) -> None:
        self._run += 1
        self._chat = self._store.conversation(f"w{self._number} {self._run}")
        self._chat.append({})

    def write(self, n: int) -> dict[int, float]:
        acknowledged = {}
        for item in islice(self._items, n):
            position = self._chat.append([item]).position
            acknowledged[position] = time.monotonic()
        return acknowledged


def _follows(url: str, pipe: Connection) -> None:
    os.environ |= {"CONVSTORE_POOL_SIZE": "1", "CONVSTORE_PREPARE": "true"}
    with EventStore.open(url) as store:
        pipe.send("ready")
        while pipe.recv() is not None:
            after = store.feed_state().cursor
            cpu = time.process_time()
            seen = Seen()
            pipe.send(None)
            told = False
            while True:
                for event in store.subscribe(after, idle=0.1):
                    seen.events.append((event.position, event.stream, event.version, time.monotonic()))
                    after = event.cursor
                if told:
                    break
                told = pipe.poll()
            pipe.recv()
            pipe.send(Seen(seen.events, time.process_time() - cpu))
