"""The feed reads what it gives and little else: no scan, no other tenant's entries; with statistics or without."""

from __future__ import annotations

import time

import psycopg
import pytest

from eventstore import Event, EventStore

LARGE, SMALL = 20_000, 60


class Reads:
    """What the table of events was read for since the last look, once the statistics of closed connections are in."""

    def __init__(self, db: psycopg.Connection, inserted: int) -> None:
        self._db = db
        self._inserted = inserted
        self._seen: tuple[int, dict[str, int]] = (0, {})
        self._look()

    def _look(self) -> tuple[int, dict[str, int]]:
        deadline = time.monotonic() + 20
        while True:
            self._db.execute("SELECT pg_stat_clear_snapshot()")
            row = self._db.execute(
                "SELECT seq_scan, n_tup_ins FROM pg_stat_user_tables WHERE relname = 'events'"
            ).fetchone()
            assert row is not None
            if row[1] >= self._inserted:
                break
            assert time.monotonic() < deadline, f"{row[1]} of {self._inserted} inserts in the statistics"
            time.sleep(0.02)
        indexes = self._db.execute(
            "SELECT indexrelname, idx_tup_read FROM pg_stat_user_indexes WHERE relname = 'events'"
        ).fetchall()
        before, self._seen = self._seen, (row[0], dict(indexes))
        return row[0] - before[0], {name: n - before[1].get(name, 0) for name, n in indexes}

    def after(self, store: EventStore) -> tuple[int, dict[str, int]]:
        """Append one more, so that it shows when all is in; close the store; give scans and index entries read."""
        store.for_tenant("third").conversation("s").append([1])
        store.close()
        self._inserted += 1
        return self._look()


@pytest.fixture(params=["analyzed", "never analyzed"])
def reads(request: pytest.FixtureRequest, url: str, db: psycopg.Connection) -> Reads:
    """A tenant with few events, a third of them before, among and after the many of another."""
    db.execute("ALTER TABLE events SET (autovacuum_enabled = off)")
    with EventStore.open(url) as store:
        small, large = (store.for_tenant(tenant).conversation("s") for tenant in ("small", "large"))
        small.append(list(range(SMALL // 3)))
        for _ in range(2):
            for _ in range(2):
                large.append_events([Event(type="x.a", data=n) for n in range(LARGE // 4)])
            small.append(list(range(SMALL // 3)))
    if request.param == "analyzed":
        db.execute("ANALYZE")
    return Reads(db, LARGE + SMALL)


def follow(store: EventStore, *, limit: int, all_tenants: bool = False, polls: int = 0) -> tuple[int, int]:
    """Read to the end and then poll; give the numbers of events and of calls."""
    after, n, calls = None, 0, 0
    while True:
        page = store.feed(after, limit=limit, all_tenants=all_tenants)
        after = page.cursor
        n += len(page.events)
        calls += 1
        if not page.events:
            break
    for _ in range(polls):
        assert store.feed(after, limit=limit, all_tenants=all_tenants).events == []
    return n, calls + polls


def test_a_small_tenants_feed_reads_no_entries_of_a_large_one(url: str, reads: Reads) -> None:
    store = EventStore.open(url)
    n, calls = follow(store.for_tenant("small"), limit=4, polls=20)  # type: ignore[arg-type]
    assert n == SMALL
    scans, entries = reads.after(store)
    assert scans == 0
    assert entries.get("events_position", 0) <= 2 * calls
    assert sum(entries.values()) <= 4 * (n + calls), entries


def test_the_state_of_the_feed_reads_what_it_counts_and_little_else(url: str, reads: Reads) -> None:
    store = EventStore.open(url)
    small = store.for_tenant("small")
    third = small.feed(limit=SMALL // 3).cursor  # type: ignore[attr-defined]
    for _ in range(10):
        assert small.feed_state(third).lag_events == SMALL - SMALL // 3  # type: ignore[attr-defined]
    assert store.feed_state(all_tenants=True).lag_capped
    scans, entries = reads.after(store)
    assert scans == 0
    assert sum(entries.values()) <= 10_000 + 10 * SMALL + 200, entries


def test_a_small_tenants_feed_read_by_type_passes_over_its_own_events_alone(url: str, reads: Reads) -> None:
    store = EventStore.open(url)
    for _ in range(10):
        page = store.for_tenant("small").feed(types=["x.a"], limit=4)
        assert page.events == []
        assert store.for_tenant("small").feed(page.cursor, types=["x.a"]).events == []
    scans, entries = reads.after(store)
    assert scans == 0
    assert sum(entries.values()) <= 12 * SMALL + 100, entries


def test_the_feed_of_all_tenants_reads_each_entry_about_once_and_an_idle_poll_none(url: str, reads: Reads) -> None:
    store = EventStore.open(url)
    n, calls = follow(store, limit=1_000, all_tenants=True, polls=50)
    assert n == LARGE + SMALL
    scans, entries = reads.after(store)
    assert scans == 0
    assert sum(entries.values()) <= 1.1 * n + 4 * calls, entries


def test_the_watermark_reads_one_entry(url: str, db: psycopg.Connection, reads: Reads) -> None:
    store = EventStore.open(url)
    with psycopg.connect(url, autocommit=True) as conn:
        for _ in range(20):
            conn.execute("SELECT convstore.record_watermark()")
    scans, entries = reads.after(store)
    assert scans == 0
    assert sum(entries.values()) <= 60, entries
