"""16 hostile writers and three readers: what is seen is what is stored, once each, streams in version order.

That the same without a stamp fails is shown by steps, not by chance: ``test_feed_steps.py``.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
from psycopg import errors as pg
from test_feed_steps import Reader

from eventstore import Event, EventStore
from eventstore.log.events import RecordedEvent

WRITERS, TRANSACTIONS = 16, 25
TENANTS = ("one", "two")


class Commits:
    """Lets a writer keep its transaction open until others have committed more."""

    def __init__(self) -> None:
        self._n = 0
        self._changed = threading.Condition()
        self.known = 0

    def committed(self, position: int) -> None:
        with self._changed:
            self._n += 1
            self.known = max(self.known, position)
            self._changed.notify_all()

    def await_more(self, n: int) -> None:
        """Those may wait for this one, or all be waiting here: then it goes on."""
        with self._changed:
            wanted = self._n + n
            self._changed.wait_for(lambda: self._n >= wanted, 0.1)


class Writer:
    """One connection that does to its transactions whatever is allowed."""

    def __init__(self, store: EventStore, url: str, number: int, commits: Commits) -> None:
        self._conn = psycopg.connect(url, options="-c deadlock_timeout=20ms")
        self._scopes = [store.using(self._conn).for_tenant(tenant) for tenant in TENANTS]
        self._number = number
        self._dice = random.Random(number)
        self._commits = commits
        self.deadlocks = 0

    def works(self) -> None:
        with self._conn:
            for n in range(TRANSACTIONS):
                try:
                    self._transaction(n)
                except pg.DeadlockDetected:
                    self._conn.rollback()
                    self.deadlocks += 1

    def _transaction(self, n: int) -> None:
        known, last = self._commits.known, 0
        if self._dice.random() < 0.3:
            self._conn.execute("SELECT pg_current_xact_id()")
            self._may_wait()
        for _ in range(self._dice.randint(1, 4)):
            last = max(last, self._in_savepoint()) if self._dice.random() < 0.3 else self._append()
            assert last == 0 or last > known, "behind what was committed before"
            self._may_wait()
        end = self._dice.random()
        if end < 0.15:
            self._conn.rollback()
            return
        if end < 0.3:
            gid = f"soak-{self._conn.info.backend_pid}-{n}"
            self._conn.execute(f"PREPARE TRANSACTION '{gid}'")  # type: ignore[call-overload]
            self._commits.await_more(2)
            self._conn.autocommit = True
            self._conn.execute(f"COMMIT PREPARED '{gid}'")  # type: ignore[call-overload]
            self._conn.autocommit = False
        else:
            self._conn.commit()
        self._commits.committed(last)

    def _in_savepoint(self) -> int:
        self._conn.execute("SAVEPOINT one")
        last = self._append()
        if self._dice.random() < 0.5:
            self._conn.execute("RELEASE one")
            return last
        with contextlib.suppress(pg.DivisionByZero):
            self._conn.execute("SELECT 1 / 0")
        self._conn.execute("ROLLBACK TO one")
        self._may_wait()
        return self._append() if self._dice.random() < 0.5 else 0

    def _append(self) -> int:
        stream = self._dice.choice(["shared-1", "shared-2", "shared-3", f"own-{self._number}"])
        kinds = self._dice.choice([["x.a"], ["item.appended"], ["x.a", "item.appended", "x.b"] * 2, ["x.b"] * 8])
        chat = self._dice.choice(self._scopes).conversation(stream)
        return chat.append_events([Event(type=kind, data=self._number) for kind in kinds]).position

    def _may_wait(self) -> None:
        if self._dice.random() < 0.15:
            self._commits.await_more(self._dice.randint(1, 5))


def read_until(reader: Reader, done: threading.Event) -> None:
    while not done.is_set():
        reader.polls()
    reader.polls()


def check(events: list[RecordedEvent], stored: list[tuple[Any, ...]], *, whole: bool) -> None:
    positions = [event.position for event in events]
    assert positions == [position for position, *_ in stored]
    heads: dict[tuple[str, str], int] = defaultdict(int)
    for event, (_, version, hash_) in zip(events, stored, strict=True):
        assert (event.version, event.hash) == (version, hash_)
        place = (event.tenant, event.stream)
        assert event.version == heads[place] + 1 if whole else event.version > heads[place]
        heads[place] = event.version


def test_readers_beside_hostile_writers_see_each_event_once_and_streams_in_order(
    store: EventStore, db: psycopg.Connection, url: str
) -> None:
    for tenant in TENANTS:
        db.execute("SELECT bind_login(current_user, %s)", [tenant])
    commits, done = Commits(), threading.Event()
    writers = [Writer(store, url, number, commits) for number in range(WRITERS)]
    readers = {
        "": Reader(store.feed, all_tenants=True, limit=20),
        "WHERE tenant_id = (SELECT tenant_id FROM tenants WHERE name = 'two')": Reader(store.for_tenant("two").feed),
        "WHERE type = 'x.a'": Reader(store.feed, all_tenants=True, types=["x.a"], limit=7),
    }
    with ThreadPoolExecutor(WRITERS + len(readers)) as threads:
        reading = [threads.submit(read_until, reader, done) for reader in readers.values()]
        writing = [threads.submit(writer.works) for writer in writers]
        try:
            for future in writing:
                future.result(90)
        finally:
            done.set()
        for future in reading:
            future.result(30)
    for where, reader in readers.items():
        query = f"SELECT position, version, hash FROM events {where} ORDER BY position"
        check(reader.seen, db.execute(query).fetchall(), whole="type" not in where)  # type: ignore[call-overload]
    assert len(readers[""].seen) > 1_000
    assert sum(writer.deadlocks for writer in writers) > 0
    for tenant in TENANTS:
        assert store.for_tenant(tenant).verify().ok
