"""Rows 10, 31 and 32: the last events of a long stream, what a fork costs, and reading through forks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice

import orjson
import psycopg
from psycopg.types.string import ByteaBinaryLoader

from eventstore import EventStore
from eventstore.log.rows import recorded

from .frame import Row, Variant, burst
from .items import items
from .lab import Lab

COLUMNS = (
    "version, position, event_id, type, schema_version, format, data, metadata, subject, agent, call_id, task_id,"
    " run_id, unique_key, recorded_at, hash"
)


def write(store: EventStore, name: str, n: int) -> None:
    """Append ``n`` items, ten at a time."""
    source = items()
    with store.transaction() as tx:
        for first in range(0, n, 10):
            tx.conversation(name, context="bench").append(list(islice(source, min(10, n - first))))


def write_line(store: EventStore, name: str, n: int, depth: int) -> str:
    """Write a stream of ``n`` events through ``depth`` forks, and return the last branch's name."""
    source = items()
    with store.transaction() as tx:
        chat = tx.conversation(f"{name} 0", context="bench")
        written = 0
        for level in range(depth + 1):
            if level:
                chat = chat.fork(f"{name} {level}")
            upto = n * (level + 1) // (depth + 1)
            own = upto - written - (level > 0)
            for first in range(0, own, 10):
                chat.append(list(islice(source, min(10, own - first))))
            written = upto
    return chat.name


@contextmanager
def tail(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 31: row 9 of the log's events."""
    n, short, last = lab.size(20_000, 200), lab.size(200, 60), lab.size(50, 20)
    times = lab.size(40, 2)
    database = lab.database()
    with (
        lab.ours(database) as who,
        psycopg.connect(lab.url(database), autocommit=True, options="-c search_path=convstore") as conn,
    ):
        for name, length in (("long", n), ("short", short)):
            write(who.store, name, length)
        cursor = conn.cursor(binary=True)
        cursor.adapters.register_loader("json", ByteaBinaryLoader)
        (ids,) = conn.execute("SELECT context_id, stream_id FROM directory WHERE name = 'long'").fetchall()

        def bare(columns: str, decode: Callable[[tuple[object, ...]], object]) -> Callable[[], int]:
            query = (
                f"SELECT * FROM (SELECT {columns} FROM events WHERE context_id = %b AND stream_id = %b"
                f" ORDER BY version DESC LIMIT {last}) e ORDER BY version"
            )

            def work() -> int:
                for _ in range(times):
                    rows = cursor.execute(query.encode(), ids, prepare=True).fetchall()
                    assert len([decode(row) for row in rows]) == last
                return times * last

            return work

        def ours(name: str) -> Callable[[], int]:
            chat = who.store.conversation(name)

            def work() -> int:
                for _ in range(times):
                    assert len(list(chat.events(-last))) == last
                return times * last

            return work

        pid = conn.info.backend_pid
        yield [
            Variant(
                "index query, same rows decoded",
                burst(lab, pid, bare(COLUMNS, lambda row: recorded("default", ("bench", "long", *row)))),
            ),
            Variant(
                "index query, data alone", burst(lab, pid, bare("version, data", lambda row: orjson.loads(row[1])))
            ),  # type: ignore[arg-type]
            Variant(f"events(-{last}) of {n:,}", burst(lab, who.pid, ours("long")), goal=True),
            Variant(f"events(-{last}) of {short}", burst(lab, who.pid, ours("short"))),
        ]


@contextmanager
def forks(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 10: names are of a few characters, as in the promise about bytes."""
    many = lab.size(20, 3)
    lengths = [10, lab.size(2_000, 40), lab.size(20_000, 80)]
    depths = [1, lab.size(100, 3), lab.size(1_000, 5)]
    numbers = count(1)
    with lab.ours(lab.database()) as who:
        for length in lengths:
            write(who.store, f"s{length}", length)
        write(who.store, "one", 10)
        with who.store.transaction() as tx:
            chat = tx.conversation("d0", context="bench")
            chat.append([0])
            for level in range(1, max(depths) + 1):
                chat = chat.fork(f"d{level}")
        source = items()

        def append() -> int:
            chat = who.store.conversation("one")
            for item in islice(source, many):
                chat.append([item])
            return many

        def fork(name: str, at: int | None = None) -> Callable[[], int]:
            def work() -> int:
                for _ in range(many):
                    who.store.conversation(name).fork(f"f{next(numbers)}", at=at)
                return many

            return work

        def variant(name: str, work: Callable[[], int], *, goal: bool = False) -> Variant:
            return Variant(name, burst(lab, who.pid, work), goal=goal)

        middle = lengths[1]
        yield [
            variant("one append of one item", append),
            variant(f"at {middle // 2:,} of {middle:,}", fork(f"s{middle}", middle // 2), goal=True),
            *(variant(f"at the head of {length:,}", fork(f"s{length}")) for length in lengths),
            *(variant(f"at the head, {depth:,} deep", fork(f"d{depth}")) for depth in depths),
        ]


@contextmanager
def through(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 32: row 11 of the log's events."""
    n, last = lab.size(2_000, 60), 20
    depths = [lab.size(100, 3), lab.size(1_000, 10)]
    few, many = lab.size(2, 1), lab.size(100, 2)
    with lab.ours(lab.database()) as who:
        plain = write_line(who.store, "plain", n, 0)
        lines = [write_line(who.store, f"depth {depth}", n, depth) for depth in depths]

        def read(name: str, first: int, wanted: int, times: int) -> Callable[[], int]:
            def work() -> int:
                for _ in range(times):
                    assert sum(1 for _ in who.store.conversation(name).events(first)) == wanted
                return times * wanted

            return work

        def variant(name: str, work: Callable[[], int], **named: object) -> Variant:
            return Variant(name, burst(lab, who.pid, work), **named)  # type: ignore[arg-type]

        yield [
            variant(f"{n:,} without forks", read(plain, 1, n, few)),
            variant(f"{n:,}, {depths[0]:,} deep", read(lines[0], 1, n, few), goal=True),
            variant(f"{n:,}, {depths[1]:,} deep", read(lines[1], 1, n, few), target=0.70),
            variant(f"last {last} without forks", read(plain, -last, last, many)),
            variant(f"last {last}, {depths[1]:,} deep", read(lines[1], -last, last, many), target=0.80, base=3),
        ]


ROWS = [
    Row(
        31,
        "last 50 of 20,000 events (row 9 of the log)",
        "index query, decoded the same way",
        1.30,
        tail,
        ratio="cost",
        passes=4,
    ),
    Row(
        10,
        "fork at 1,000 of 2,000",
        "one append of one item",
        2.00,
        forks,
        unit="µs/fork",
        ratio="cost",
        passes=4,
        note="WAL ≤ 1,024 bytes a fork, full-page images and page splits aside",
    ),
    Row(32, "read 2,000 events through forks (row 11 of the log)", "a stream without forks", 0.95, through, passes=3),
]
