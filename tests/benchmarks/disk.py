"""Row 16: what an item takes on disk."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from .frame import Row, Sample, Variant
from .items import fresh_items
from .lab import Lab

TABLES = ("tenants", "contexts", "directory", "streams", "events")


@contextmanager
def bytes_an_item(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Write the same items to both, one to three an append, in streams of about a hundred."""
    n = lab.size(20_000, 60)
    database = lab.database()
    tables = [f"convstore.{name}" for name in TABLES]
    with lab.bare(database) as bare, lab.ours(database) as ours:

        def write_bare() -> None:
            for stream, version, batch in _appends(n):
                bare.copy(stream, version, batch)

        def write_ours() -> None:
            for stream, _, batch in _appends(n):
                ours.store.conversation(f"conversation {stream}").append(batch)

        def weigh(write: Callable[[], None], *relations: str) -> Callable[[], Sample]:
            def run() -> Sample:
                before = lab.bytes_of(database, *relations)
                lsn = lab.lsn()
                write()
                wal, images = lab.wal_since(lsn)
                size = lab.bytes_of(database, *relations) - before
                return Sample(size / n, wal=wal / n, wal_bare=None if images is None else (wal - images) / n)

            return run

        yield [
            Variant("bare table and its key", weigh(write_bare, "public.bare")),
            Variant("all columns and indexes", weigh(write_ours, *tables), goal=True),
        ]


def _appends(n: int) -> Iterator[tuple[int, int, list[object]]]:
    r = random.Random(16)
    source = iter(islice(fresh_items(), n))
    stream, version = 1, 1
    while batch := list(islice(source, r.randint(1, 3))):
        yield stream, version, list(batch)
        version += len(batch)
        if version > 100:
            stream, version = stream + 1, 1


ROWS = [
    Row(
        16,
        "bytes on disk an item",
        "bare table and its primary key",
        1.30,
        bytes_an_item,
        unit="bytes/item",
        ratio="cost",
        rounds=1,
    )
]
