"""What a fork writes and what reading a branch touches: flat in length and depth, with statistics and without.

WAL is what the server says that it wrote between two looks: rows, index entries and the commit, of forks with names of
a few characters. A page's first change after a checkpoint writes the whole page, whoever makes it, so pages are warmed
first; and the server may write WAL of its own meanwhile, so the third least of some is taken. A character more of the
branch's name is 3 bytes, of the parent's 1.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import psycopg
import pytest

from eventstore import Event, EventStore

LENGTHS = (10, 2_000, 20_000)
DEPTHS = (1, 100, 1_000)
LIMIT = 1_024  # bytes of WAL a fork
FORKS = 15


@pytest.fixture(scope="module", params=["never analyzed", "analyzed"])
def log(request: pytest.FixtureRequest, server: Any, admin: psycopg.Connection, template: str) -> Any:
    """Streams of some lengths, each with a note at every tenth version, and a line of branches, one item each."""
    name = f"fork_cost_{request.param.replace(' ', '_')}"
    admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
    url = server.url_for(name)
    with psycopg.connect(url, autocommit=True, options="-c search_path=convstore") as db:
        for table in ("events", "streams", "directory"):
            db.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)".encode())
        with EventStore.open(url) as store:
            with store.transaction() as tx:
                for length in LENGTHS:
                    chat = tx.conversation(f"s{length}", context="lengths")
                    for first in range(1, length + 1, 10):
                        chat.append_events([item_or_note(v) for v in range(first, min(first + 10, length + 1))])
            store.conversation("long", context="lengths").append([{"id": f"l{v}"} for v in range(1, 2_001)])
            with store.transaction() as tx:
                tx.conversation("d0", context="depths").append([{"id": "i0"}])
                for n in range(1, max(DEPTHS) + 1):
                    tx.conversation(f"d{n - 1}").fork(f"d{n}").append([{"id": f"i{n}"}])
            if request.param == "analyzed":
                db.execute("VACUUM ANALYZE")
            with psycopg.connect(url, options="-c search_path=convstore") as conn:
                yield Log(store, db, conn)
    admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def item_or_note(version: int) -> Event:
    return Event(type="x.note" if version % 10 == 0 else "item.appended", data={"id": f"i{version}"})


class Log:
    """A store with data, and ways to see what a call costs the server."""

    def __init__(self, store: EventStore, db: psycopg.Connection, conn: psycopg.Connection) -> None:
        self.store = store
        self._db = db
        self._conn = conn
        self.mine = store.using(conn)
        self._names = count(1)

    def fork(self, parent: str, **point: Any) -> None:
        self.store.conversation(parent).fork(f"f{next(self._names)}", **point)

    def wal(self, parent: str, **point: Any) -> float:
        """Give the bytes of WAL of a fork: the third least of some."""
        lsn = "SELECT pg_current_wal_insert_lsn() - '0/0'"
        sizes = []
        for _ in range(FORKS):
            before = _one(self._db, lsn)
            self.fork(parent, **point)
            sizes.append(_one(self._db, lsn) - before)
        return sorted(sizes)[2]

    def touched(self, call: Callable[[], object]) -> dict[str, int]:
        """Give what a call, made before on this connection, touches: blocks, index entries, rows written, scans."""
        call()
        before = self._counters()
        call()
        after = self._counters()
        self._conn.rollback()
        return {name: after[name] - before[name] for name in after}

    def _counters(self) -> dict[str, int]:
        """Of the log's tables and their indexes, since this session last gave them away; exact within a transaction."""
        row = self._conn.execute("""
            SELECT sum(pg_stat_get_xact_blocks_fetched(oid)),
                   sum(pg_stat_get_xact_tuples_returned(oid)) FILTER (WHERE relkind = 'i'),
                   sum(pg_stat_get_xact_tuples_inserted(oid)),
                   sum(pg_stat_get_xact_tuples_updated(oid) + pg_stat_get_xact_tuples_deleted(oid)),
                   sum(pg_stat_get_xact_numscans(oid)) FILTER (WHERE relkind = 'r' AND relname IN ('events', 'streams'))
              FROM pg_class WHERE relnamespace = 'convstore'::regnamespace AND relkind IN ('r', 'i')
        """).fetchone()
        assert row is not None
        return dict(zip(["blocks", "entries", "inserted", "changed", "scans"], map(int, row), strict=True))

    def forking(self, parent: str, **point: Any) -> dict[str, int]:
        return self.touched(lambda: self.mine.conversation(parent).fork(f"g{next(self._names)}", **point))

    def reading(self, name: str, *args: Any, n: int, **kwargs: Any) -> dict[str, int]:
        def read() -> None:
            assert len(list(self.mine.conversation(name).events(*args, **kwargs))) == n

        return self.touched(read)


def _one(db: psycopg.Connection, query: str) -> int:
    row = db.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


PLACES: list[tuple[str, dict[str, Any]]] = [
    *((f"s{length}", {}) for length in LENGTHS),
    *((f"s{length}", {"at": length // 2 + 1}) for length in LENGTHS),
    *((f"s{length}", {"at": 0}) for length in LENGTHS),
    *((f"d{depth}", {}) for depth in DEPTHS),
]


def test_a_fork_writes_no_more_than_1_kb_whatever_the_length_and_depth(log: Log) -> None:
    log._db.execute("CHECKPOINT")
    for parent, point in PLACES:
        log.fork(parent, **point)
    sizes = {(parent, *point.items()): log.wal(parent, **point) for parent, point in PLACES}
    assert max(sizes.values()) <= LIMIT, sizes
    assert max(sizes.values()) - min(sizes.values()) <= 64, sizes
    sizes = {
        point: log.wal("s20000", **{point: given}) for point, given in (("after_items", 9_000), ("at_item", "i9001"))
    }
    assert max(sizes.values()) <= LIMIT, sizes


def test_a_fork_inserts_one_row_in_each_table_and_changes_none(log: Log) -> None:
    for parent, point in PLACES:
        cost = log.forking(parent, **point)
        assert (cost["inserted"], cost["changed"], cost["scans"]) == (3, 0, 0), (parent, point, cost)


def test_a_fork_touches_as_much_whatever_the_length_and_depth(log: Log) -> None:
    costs = {(parent, *point.items()): log.forking(parent, **point) for parent, point in PLACES}
    assert max(cost["blocks"] for cost in costs.values()) <= 80, costs
    assert max(cost["entries"] for cost in costs.values()) <= 30, costs


def test_a_fork_by_an_items_id_touches_as_much_whatever_the_length(log: Log) -> None:
    costs = {n: log.forking(f"s{n}", at_item=f"i{n // 2 + 1}") for n in LENGTHS}
    assert max(cost["blocks"] for cost in costs.values()) <= 90, costs
    assert max(cost["entries"] for cost in costs.values()) <= 30, costs


def test_a_fork_inside_of_an_append_reads_that_appends_rows_up_to_there(log: Log) -> None:
    """Twice: to find where it begins and to fold them."""
    for at in (10, 1_000, 1_999):
        assert log.forking("long", at=at)["entries"] <= 2 * at + 30


def test_a_repeat_is_answered_without_a_look_at_what_came_after(log: Log) -> None:
    log.store.conversation("s2000").fork("again", at=5).append(list(range(2_000)))
    cost = log.touched(lambda: log.mine.conversation("s2000").fork("again", at=5))
    assert (cost["inserted"], cost["changed"]) == (0, 0)
    assert cost["entries"] <= 20, cost


def test_a_fork_after_so_many_items_reads_what_is_no_item(log: Log) -> None:
    """One entry of an index for each; the items are not looked at."""
    costs = {n: log.forking(f"s{n}", after_items=n // 2) for n in LENGTHS}
    for n, cost in costs.items():
        assert cost["entries"] <= n // 10 + 40, costs


def test_a_fork_at_a_version_far_up_walks_there_by_one_look_up_a_level(log: Log) -> None:
    for up in (10, 100, 500):
        cost = log.forking("d1000", at=2_001 - 2 * up)
        assert cost["entries"] <= up + 40, cost


def test_the_last_20_of_a_deep_branch_touch_only_themselves(log: Log) -> None:
    costs = {depth: log.reading(f"d{depth}", -20, n=20 if depth > 10 else 3) for depth in DEPTHS}
    assert costs[1_000]["entries"] <= 20 + 2 * 12 + 20, costs
    assert costs[1_000]["blocks"] <= costs[100]["blocks"] + 20, costs
    assert all(cost["scans"] == 0 for cost in costs.values()), costs
    flat = {n: log.reading(f"s{n}", -20, n=20) for n in (2_000, 20_000)}
    assert flat[20_000]["entries"] <= 40, flat


def test_a_page_in_the_middle_of_a_deep_branch_reads_no_more_than_it_has(log: Log) -> None:
    """And one look-up for each level between the head and its first version."""
    for first, levels in ((1_901, 51), (1_001, 501), (1, 1_001)):
        cost = log.reading("d1000", first, first + 19, n=20)
        assert cost["entries"] <= levels + 20 + 2 * 12 + 20, (first, cost)
        assert cost["scans"] == 0


def test_all_of_a_deep_branch_is_read_once(log: Log) -> None:
    cost = log.reading("d1000", n=2_001)
    # Three pages, which look up their levels again, and begin a part for each: its end is one entry more.
    assert cost["entries"] <= 2_001 + 2 * 1_001 + (1_001 + 501 + 1) + 60, cost
    cost = log.reading("d1000", n=1_000, types=["stream.forked"])
    assert cost["entries"] <= 2 * (2_001 + 2 * 1_001) + 60, cost
