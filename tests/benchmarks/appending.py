"""Rows 1, 4, 5 and 7: what an append costs, one item or many, on a short stream or a long one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count, islice

from .frame import Row, Variant, burst
from .items import items
from .lab import Bare, Lab, Ours

EMPTY = r"SELECT '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea"


class Writer:
    """Writes the same items as every other writer of the row, each run into a stream of its own."""

    def __init__(self, start: Callable[[int], None], write: Callable[[int, int], int]) -> None:
        self._start = start
        self._write = write
        self._stream = 0

    def start(self) -> None:
        """Make the next stream, unmeasured: its first append is a rarer and dearer one."""
        self._stream += 1
        self._start(self._stream)

    def write(self, n: int) -> int:
        """Write ``n`` times and return how many events that were."""
        return self._write(self._stream, n)


def one_by_one(who: Bare | Ours, *, keyed: bool = False) -> Writer:
    """Write one item a commit."""
    source = items()

    if isinstance(who, Bare):

        def insert(stream: int, n: int) -> int:
            for version, item in enumerate(islice(source, n), 2):
                who.insert(stream, version, item)
            return n

        return Writer(lambda stream: who.insert(stream, 1, {}), insert)

    def append(stream: int, n: int) -> int:
        chat = who.store.conversation(f"one {stream} {keyed}")
        for number, item in enumerate(islice(source, n)):
            chat.append([item], key=f"step {number}" if keyed else None)
        return n

    return Writer(lambda stream: _begin(who, f"one {stream} {keyed}"), append)


def batches(who: Bare | Ours, size: int) -> Writer:
    """Write ``size`` items a commit."""
    source = items()

    if isinstance(who, Bare):

        def copy(stream: int, n: int) -> int:
            for number in range(n):
                who.copy(stream, 2 + number * size, list(islice(source, size)))
            return n * size

        return Writer(lambda stream: who.insert(stream, 1, {}), copy)

    def append(stream: int, n: int) -> int:
        chat = who.store.conversation(f"batch {stream}")
        for _ in range(n):
            chat.append(list(islice(source, size)))
        return n * size

    return Writer(lambda stream: _begin(who, f"batch {stream}"), append)


def _begin(who: Ours, name: str) -> None:
    who.store.conversation(name).append({})


@contextmanager
def one_item(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 1, and where its time goes: the same append with one part taken out."""
    n = lab.size(30, 5)
    with ExitStack() as stack:
        plain = lab.database()

        def variant(name: str, who: Bare | Ours, *, keyed: bool = False, goal: bool = False) -> Variant:
            writer = one_by_one(who, keyed=keyed)
            return Variant(name, burst(lab, who.pid, lambda: writer.write(n)), writer.start, goal)

        def ours(database: str, *, prepare: bool = True) -> Ours:
            return stack.enter_context(lab.ours(database, prepare=prepare))

        whole = ours(plain)
        yield [
            variant("bare INSERT, prepared", stack.enter_context(lab.bare(plain))),
            variant("append, prepared", whole, goal=True),
            variant("append, nothing prepared", ours(lab.database(), prepare=False)),
            variant("append with key=", ours(lab.database()), keyed=True),
            variant("… without the stamp", ours(lab.without(stamp="SELECT NULL::void"))),
            variant(
                "… without hash and chain", ours(lab.without(event_hash=EMPTY, content_hash=EMPTY, append_chain=EMPTY))
            ),
            variant(
                "… with the primary key alone",
                ours(lab.database("DROP INDEX events_position, events_event_id, events_unique_key, events_subject")),
            ),
        ]


@contextmanager
def ten(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 4."""
    with _batched(lab, 10, lab.size(6, 2)) as variants:
        yield variants


@contextmanager
def thousand(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 5."""
    with _batched(lab, lab.size(1_000, 100), 1) as variants:
        yield variants


@contextmanager
def _batched(lab: Lab, size: int, n: int) -> Iterator[Sequence[Variant]]:
    database = lab.database()
    with (
        lab.bare(database) as bare,
        lab.ours(database) as prepared,
        lab.ours(lab.database(), prepare=False) as plain,
    ):

        def variant(name: str, who: Bare | Ours, *, goal: bool = False) -> Variant:
            writer = batches(who, size)
            return Variant(name, burst(lab, who.pid, lambda: writer.write(n)), writer.start, goal)

        yield [
            variant(f"COPY of {size:,} rows", bare),
            variant(f"append of {size:,}, prepared", prepared, goal=True),
            variant(f"append of {size:,}, nothing prepared", plain),
        ]


@contextmanager
def long_stream(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 7: streams of 10 items that are new in each run, and a few of 2,000 that grow by some."""
    long = lab.size(2_000, 50)
    many = lab.size(32, 4)
    numbers = count(1)
    with lab.ours(lab.database()) as who:

        def stream(name: str, length: int) -> str:
            source = items()
            for first in range(0, length, 100):
                who.store.conversation(name).append(list(islice(source, min(100, length - first))))
            return name

        long_names = [stream(f"long {number}", long) for number in range(4)]
        names: list[str] = []

        def make_short() -> None:
            names[:] = [stream(f"short {next(numbers)}", 10) for _ in range(many)]

        def append_to(targets: Sequence[str]) -> Callable[[], int]:
            source = items()

            def work() -> int:
                for number, item in enumerate(islice(source, many)):
                    who.store.conversation(targets[number % len(targets)]).append([item])
                return many

            return work

        yield [
            Variant("one more at 10", burst(lab, who.pid, append_to(names)), make_short),
            Variant(f"one more at {long:,}", burst(lab, who.pid, append_to(long_names)), goal=True),
        ]


ROWS = [
    Row(1, "one-item durable append, 1 writer", "psycopg bare INSERT", 0.80, one_item, passes=10),
    Row(4, "batch of 10", "COPY text, bare table", 1.10, ten, passes=10),
    Row(5, "batch of 1,000 (import)", "COPY text, bare table", 0.60, thousand, passes=5),
    Row(
        7,
        "one more item at 2,000 against at 10",
        "the same at 10",
        1.10,
        long_stream,
        ratio="cost",
        passes=4,
        note="WAL ≤ 1,700 bytes an append, full-page images aside",
    ),
]
