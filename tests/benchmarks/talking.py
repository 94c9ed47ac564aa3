"""Rows 8, 9, 11 and 12: what reading and compacting a conversation cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice
from typing import Any

import orjson
import psycopg
from psycopg.types.string import ByteaBinaryLoader

from .frame import Row, Sample, Variant, burst
from .items import items
from .lab import Lab, Ours

_ITEMS = (
    "SELECT version, format, data FROM convstore.events"
    " WHERE context_id = %s AND stream_id = %s AND version > 0 AND type = 'item.appended' ORDER BY version"
)
_LAST = (
    "SELECT version, format, data FROM convstore.events"
    " WHERE context_id = %s AND stream_id = %s AND type = 'item.appended'"
    " ORDER BY context_id DESC, stream_id DESC, version DESC LIMIT 50"
)


class Bare:
    """The same rows by a plain prepared SELECT, decoded."""

    def __init__(self, conn: psycopg.Connection[Any], stream: str) -> None:
        conn.adapters.register_loader("json", ByteaBinaryLoader)  # as it comes, for orjson; in C
        self._cursor = conn.cursor(binary=True)
        found = conn.execute("SELECT context_id, stream_id FROM convstore.directory WHERE name = %s", [stream])
        self._place = found.fetchone()
        self.pid = conn.info.backend_pid

    def read(self, query: str) -> list[Any]:
        """Read and decode."""
        rows = self._cursor.execute(query.encode(), self._place, prepare=True).fetchall()
        return [orjson.loads(data) for _, _, data in rows]


def fill(who: Ours, name: str, length: int) -> None:
    """Append so many items to a stream."""
    source = items()
    for first in range(0, length, 500):
        who.store.conversation(name).append(list(islice(source, min(500, length - first))))


def reading(lab: Lab, pid: int, read: Callable[[], object], times: int) -> Callable[[], Sample]:
    """Make a run that reads so many times; the value is that of one reading."""

    def run() -> Sample:
        server, client = lab.cpu(pid), time.process_time()
        started = time.perf_counter()
        for _ in range(times):
            read()
        took, client, after = time.perf_counter() - started, time.process_time() - client, lab.cpu(pid)
        cpu = None if server is None or after is None else (after - server) / times * 1e6
        return Sample(took / times * 1e6, client / times * 1e6, cpu)

    return run


@contextmanager
def whole(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 8."""
    database, length = lab.database(), lab.size(2_000, 40)
    with lab.ours(database) as who, psycopg.connect(lab.url(database), autocommit=True) as conn:
        for name in ("plain", "changed"):
            fill(who, name, length)
        chat, changed = who.store.conversation("plain"), who.store.conversation("changed")
        changed.retract(versions=[(length // 2, length // 2)])
        bare, times = Bare(conn, "plain"), lab.size(8, 1)
        _settle(conn)
        assert len(bare.read(_ITEMS)) == len(chat.transcript()) == len(changed.transcript()) + 1
        yield [
            Variant("bare SELECT and orjson", reading(lab, bare.pid, lambda: bare.read(_ITEMS), times)),
            Variant("transcript()", reading(lab, who.pid, chat.transcript, times), goal=True),
            Variant("… after a retraction", reading(lab, who.pid, changed.transcript, times)),
            Variant("events(), whole events", reading(lab, who.pid, lambda: list(chat.events()), max(1, times // 2))),
        ]


@contextmanager
def last(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 9."""
    database, long, short = lab.database(), lab.size(20_000, 120), lab.size(200, 60)
    with lab.ours(database) as who, psycopg.connect(lab.url(database), autocommit=True) as conn:
        for name, length in (("long", long), ("short", short), ("changed", long)):
            fill(who, name, length)
        chats = {name: who.store.conversation(name) for name in ("long", "short", "changed")}
        chats["changed"].pop()
        bare, times = Bare(conn, "long"), lab.size(60, 2)
        _settle(conn)
        assert bare.read(_LAST)[::-1] == chats["long"].transcript(limit=50)

        def ours(name: str) -> Callable[[], Sample]:
            return reading(lab, who.pid, lambda: chats[name].transcript(limit=50), times)

        yield [
            Variant("bare index query, decoded", reading(lab, bare.pid, lambda: bare.read(_LAST), times)),
            Variant(f"transcript(limit=50) of {long:,}", ours("long"), goal=True),
            Variant(f"… of {short:,}", ours("short")),
            Variant("… right after a pop", ours("changed")),
        ]


@contextmanager
def branches(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 11: the same items in one stream, and spread over branches of branches."""
    database, length = lab.database(), lab.size(2_000, 40)
    depths = [lab.size(100, 4), lab.size(1_000, 8)]
    with lab.ours(database) as who:
        fill(who, "plain", length)
        for depth in depths:
            source, chat = items(), who.store.conversation(f"depth {depth} 0")
            for number in range(depth):
                chat.append(list(islice(source, length // depth)))
                if number < depth - 1:
                    chat = chat.fork(f"depth {depth} {number + 1}")
        plain = who.store.conversation("plain")
        deep = [who.store.conversation(f"depth {depth} {depth - 1}") for depth in depths]
        times = lab.size(5, 1)
        with psycopg.connect(lab.url(database), autocommit=True) as conn:
            _settle(conn)
        assert all(len(chat.transcript()) == length for chat in (plain, *deep))

        def read(chat: Any, limit: int | None, times: int) -> Callable[[], Sample]:
            return reading(lab, who.pid, lambda: chat.transcript(limit=limit), times)

        yield [
            Variant(f"transcript() of {length:,}", read(plain, None, times)),
            *(
                Variant(f"… at depth {depth:,}", read(chat, None, times), goal=depth == depths[0])
                for depth, chat in zip(depths, deep, strict=True)
            ),
            Variant("transcript(limit=20)", read(plain, 20, times * 8), base=3),
            Variant(f"… at depth {depths[1]:,}", read(deep[1], 20, times * 8), base=3),
        ]


@contextmanager
def compacting(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 12: one append; the append that a compaction comes to; and all of it, with reading what is compacted."""
    length, many = lab.size(2_000, 30), lab.size(3, 1)
    numbers = count(1)
    with lab.ours(lab.database()) as who:
        names: list[str] = []
        given = {"role": "user", "content": "A summary of what was said before. " * 15}

        def start() -> None:
            names[:] = [f"compacted {next(numbers)}" for _ in range(many)]
            for name in names:
                fill(who, name, length)

        def append() -> int:
            for name in names:
                who.store.conversation(name).append([given])
            return many

        def compact() -> int:
            for name in names:
                assert who.store.conversation(name).compact(lambda _: [given]) is not None
            return many

        def write_alone() -> Sample:
            """Measure from the compactor's return: encoding, estimating, the append."""
            took = 0.0
            for name in names:
                began: list[float] = []

                def compactor(_: Any, began: list[float] = began) -> list[Any]:
                    began.append(time.perf_counter())
                    return [given]

                who.store.conversation(name).compact(compactor)
                took += time.perf_counter() - began[0]
            return Sample(took / many * 1e6)

        def read() -> int:
            for name in names:
                who.store.conversation(name).transcript()
            return many

        yield [
            Variant("append of one item", burst(lab, who.pid, append), start),
            Variant(f"compaction of {length:,}, from the summary on", write_alone, start, goal=True),
            Variant("reading what is compacted", burst(lab, who.pid, read), start),
            Variant("the whole compaction", burst(lab, who.pid, compact), start),
        ]


def _settle(conn: psycopg.Connection[Any]) -> None:
    """Let no reading pay for hint bits, nor for missing statistics."""
    conn.execute("VACUUM ANALYZE convstore.events, convstore.streams, convstore.directory")


ROWS = [
    Row(8, "read 2,000 items, decoded", "the same rows by bare SELECT + orjson", 0.90, whole, "µs", passes=4),
    Row(9, "last 50 of 20,000", "bare index query, decoded", 1.30, last, "µs", "cost", passes=4),
    Row(11, "read 2,000 through forks", "a stream without forks", 0.95, branches, "µs", passes=3),
    Row(12, "compaction of 2,000 items", "one append", 2.00, compacting, "µs", "cost", rounds=3),
]
