"""Workers and servers killed at any point: each event still counts once in the views."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from clients import wait_until
from ledger import LEDGER, fold, view
from test_feed_crash import durable, kill  # noqa: F401 - durable is a fixture

from eventstore import EventStore, embedded
from projections.models import SHIPPED

SCRIPT = str(Path(sys.executable).with_name("convstore"))
TESTS = str(Path(__file__).parent.parent)


def start(url: str, *args: str, also: str = "ledger:LEDGER") -> subprocess.Popen[str]:
    environment = {**os.environ, "CONVSTORE_URL": url, "PYTHONPATH": TESTS}
    command = [SCRIPT, "project", "run", "--also", also, "--only", "ledger", "--only", "conversations", *args]
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, text=True)


@contextmanager
def appending(store: EventStore) -> Iterator[Callable[[], int]]:
    """Append without end beside; gives how often."""
    ends, done = threading.Event(), [0]

    def work() -> None:
        pick = random.Random(1)
        while not ends.is_set():
            chat = store.for_tenant(pick.choice(["a", "b"])).conversation(f"s{pick.randrange(6)}")
            chat.append([{"n": done[0]}] * pick.randint(1, 3))
            done[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield lambda: done[0]
    finally:
        ends.set()
        thread.join(60)


def applied(db: psycopg.Connection[Any]) -> int:
    row = db.execute("SELECT coalesce(sum(applied), 0) FROM convstore.projections").fetchone()
    assert row is not None
    return int(row[0])


def finish(store: EventStore) -> None:
    store.projections.runner([LEDGER, *SHIPPED[:1]]).run(until_caught_up=True)
    with psycopg.connect(store.connections.conninfo) as conn:
        whole = fold(store)
        assert view(conn) == whole
        counted = conn.execute("SELECT tenant, stream, events, version FROM convstore_views.conversations").fetchall()
        assert {(t, s): (n, v) for t, s, n, v in counted} == {key: row[:2] for key, row in whole.items()}
        assert conn.execute("SELECT count(*) FROM convstore.parked").fetchone() == (0,)


@pytest.mark.timeout(300)
def test_workers_killed_at_random_count_each_event_once(store: EventStore, db: psycopg.Connection) -> None:
    pick = random.Random(7)
    url = store.connections.conninfo
    workers = [start(url, "--batch", "3") for _ in range(2)]
    try:
        with appending(store):
            for n in range(8):
                before = applied(db)
                if n == 4:
                    store.projections.rebuild(LEDGER)
                wait_until(lambda before=before: applied(db) > before + pick.randrange(30), "the workers work", 60)
                victim = workers.pop(pick.randrange(len(workers)))
                victim.send_signal(signal.SIGKILL)
                workers.append(start(url, "--batch", str(pick.choice([1, 3, 50]))))
                victim.wait(30)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait(30)
    finish(store)


@pytest.mark.timeout(180)
def test_a_dead_workers_claim_is_taken_over_at_once(store: EventStore, url: str, db: psycopg.Connection) -> None:
    store.conversation("a").append([1, 2])
    with psycopg.connect(url) as holder:
        holder.execute("SELECT pg_advisory_xact_lock(4711)")
        worker = start(url, also="ledger:WAITING")
        try:
            waits = (
                "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
                " WHERE a.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted)"
            )
            wait_until(lambda: db.execute(waits).fetchone() == (True,), "it waits in its batch", 60)
            other = store.projections.runner([LEDGER])
            thread = threading.Thread(target=other.run)
            thread.start()
            try:
                assert worker.poll() is None
                worker.send_signal(signal.SIGKILL)
                position = store.conversation("a").append([3]).position
                store.wait_for("ledger", position, timeout=60)
            finally:
                other.stop()
                thread.join(30)
        finally:
            worker.kill()
            worker.wait(30)
    assert view(db) == fold(store)


@pytest.mark.timeout(180)
def test_sigterm_ends_a_worker_after_its_batch(store: EventStore, db: psycopg.Connection) -> None:
    worker = start(store.connections.conninfo, "--batch", "2")
    with appending(store):
        wait_until(lambda: applied(db) > 20, "it works", 60)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    assert db.execute("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%%'").fetchone() == (0,)
    finish(store)


@pytest.mark.timeout(300)
def test_a_server_killed_beside_its_workers(durable: embedded.Server) -> None:  # noqa: F811
    with EventStore.open(durable.url, timeout=60) as store:
        worker = start(durable.url, "--batch", "5")
        try:
            with psycopg.connect(durable.url, autocommit=True) as conn:
                store.conversation("s").append([1])
                wait_until(lambda: applied(conn) > 0, "it works", 60)
            with appending(store) as done:
                for _ in range(2):
                    before = done()
                    wait_until(lambda before=before: done() > before + 30, "appends go on", 60)
                    kill(durable)
            position = store.conversation("s").append([2]).position
            store.wait_for("ledger", position, timeout=60)
            assert worker.poll() is None, "the worker ended with the server"
        finally:
            worker.kill()
            worker.wait(30)
        finish(store)
