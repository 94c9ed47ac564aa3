"""SIGKILL of the server beside readers that keep their cursors elsewhere: what is committed next still reaches them."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from clients import wait_until

from eventstore import EventStore, embedded


@pytest.fixture
def durable(server: embedded.Server) -> Iterator[embedded.Server]:
    """A server that syncs, with a migrated store; the run's other server has chosen the binaries."""
    home = Path(tempfile.mkdtemp(prefix="cs-feed-", dir="/tmp"))
    home.chmod(0o755)
    with embedded.start(home, durable=True, settings={"max_prepared_transactions": "5"}) as running:
        with EventStore.open(running.url) as store:
            store.migrate()
        yield running
    embedded.down(home, force=True)
    shutil.rmtree(home)


def kill(server: embedded.Server) -> None:
    killed = server.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: server.pid not in (None, killed) and answers(server.url), "the server is back", 60)


def answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.parametrize("begun", [False, True], ids=["on an empty log", "on a log with events"])
def test_after_a_crash_that_takes_rolled_back_positions_back_the_next_event_arrives(
    durable: embedded.Server, begun: bool
) -> None:
    with EventStore.open(durable.url) as store:
        if begun:
            store.conversation("s").append(["before"])
        with psycopg.connect(durable.url) as conn:
            for _ in range(10):
                store.using(conn).conversation("t").append(list(range(50)))
                conn.rollback()
        page = store.feed()
        assert [event.data for event in page.events] == ["before"] * begun
        cursors = [page.cursor, store.feed(page.cursor).cursor, store.feed(types=["x.a"]).cursor]
        assert cursors == [page.cursor] * 3
        kill(durable)
        store.conversation("s").append(["after"])
        for cursor in cursors:
            assert [event.data for event in store.feed(cursor).events] == ["after"]


def test_a_prepared_writer_holds_the_feed_through_a_crash(durable: embedded.Server) -> None:
    with EventStore.open(durable.url) as store:
        cursor = None
        store.conversation("s").append(["before"])
        cursor = store.feed().cursor
        with psycopg.connect(durable.url) as conn:
            store.using(conn).conversation("t").append(["prepared"])
            conn.execute("PREPARE TRANSACTION 'held'")
        store.conversation("s").append(["after"])
        for _ in range(2):
            page = store.feed(cursor)
            assert page.events == []
            assert page.blocked_by is not None
            assert page.blocked_by.who == "prepared transaction held"
            kill(durable)
        with psycopg.connect(durable.url, autocommit=True) as conn:
            conn.execute("COMMIT PREPARED 'held'")
        assert [event.data for event in store.feed(cursor).events] == ["prepared", "after"]
