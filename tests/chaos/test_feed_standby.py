"""A hot stand-by, which can't see the writers' stamps: its feed has every event up to the watermark, and no other."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from clients import wait_until

from eventstore import EventStore, embedded
from eventstore.embedded import binaries, places
from eventstore.errors import StoreUnavailable

WRITERS, EACH = 6, 25
SETTINGS = {"max_prepared_transactions": "5", "max_connections": "100", "max_wal_senders": "5", "wal_level": "replica"}


class Pair(NamedTuple):
    """A primary and its stand-by."""

    primary: EventStore
    standby: EventStore
    db: psycopg.Connection[Any]
    at_standby: psycopg.Connection[Any]

    def recorded(self) -> int:
        """Record the watermark and wait until the stand-by has it."""
        row = self.db.execute("SELECT convstore.record_watermark()").fetchone()
        lsn = self.db.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
        assert row is not None
        assert lsn is not None
        replayed = "SELECT pg_last_wal_replay_lsn() >= %s"
        wait_until(lambda: self.at_standby.execute(replayed, [lsn[0]]).fetchone() == (True,), "it has replayed")
        return int(row[0])


@pytest.fixture
def pair(server: embedded.Server) -> Iterator[Pair]:
    """Two servers of our own; the run's other server has chosen the binaries."""
    home = Path(tempfile.mkdtemp(prefix="cs-standby-", dir="/tmp"))
    home.chmod(0o755)
    with embedded.start(home, durable=True, settings=SETTINGS) as running:
        with EventStore.open(running.url) as store:
            store.migrate()
        programs = binaries.reachable(binaries.find(running.data), places.find_home(home)).folder
        owner = running.data.stat()
        other = home / "standby"
        other.mkdir(mode=0o700)
        os.chown(other, owner.st_uid, owner.st_gid)
        as_user: dict[str, Any] = {"cwd": other, "stdin": subprocess.DEVNULL}
        if os.geteuid() == 0:
            as_user |= {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
        socket = parse_qs(urlsplit(running.url).query)["host"][0]
        copy = [programs / "pg_basebackup", "-h", socket, "-U", "postgres", "-D", other / "data", "-R", "-c", "fast"]
        subprocess.run(copy, check=True, capture_output=True, **as_user)
        chosen = SETTINGS | {"listen_addresses": "", "unix_socket_directories": str(other), "hot_standby": "on"}
        options = [part for name, value in chosen.items() for part in ("-c", f"{name}={value}")]
        with (home / "standby.log").open("wb") as log:
            command = [programs / "postgres", "-D", other / "data", *options]
            process = subprocess.Popen(command, stdout=log, stderr=log, **as_user)
        url = running.url.replace(urlsplit(running.url).query, f"host={other}&port={places.PORT}")
        try:
            wait_until(lambda: answers(url), "the stand-by answers")
            with (
                EventStore.open(running.url) as primary,
                psycopg.connect(running.url, autocommit=True) as db,
                EventStore.open(url) as standby,
                psycopg.connect(url, autocommit=True) as at_standby,
            ):
                yield Pair(primary, standby, db, at_standby)
        finally:
            process.terminate()
            process.wait(30)
    embedded.down(home, force=True)
    shutil.rmtree(home)


def answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def follow(store: EventStore, after: str | None, seen: list[Any], limit: int = 1_000) -> str | None:
    """Read to the end; add what was found and give the cursor."""
    while True:
        page = store.feed(after, all_tenants=True, limit=limit)
        seen += page.events
        after = page.cursor
        if not page.events:
            return after


def test_a_stand_by_reads_up_to_the_watermark_and_its_readers_miss_nothing(pair: Pair) -> None:
    seen: list[Any] = []
    cursor = follow(pair.standby, None, seen)
    assert (seen, cursor) == ([], None)

    # Stepped: what is committed above a writer in flight comes when that has ended and was recorded.
    pair.primary.conversation("s").append(["before"])
    assert follow(pair.standby, None, seen) is None
    pair.recorded()
    cursor = follow(pair.standby, None, seen)
    assert [event.data for event in seen] == ["before"]
    with psycopg.connect(pair.db.info.dsn, host=pair.db.info.host) as conn:
        pair.primary.using(conn).conversation("a").append(["A"])
        pair.primary.conversation("b").append(["B"])
        pair.recorded()
        cursor = follow(pair.standby, cursor, seen)
        assert len(seen) == 1
        state = pair.standby.feed_state(cursor)
        assert (state.cursor, state.lag_events, state.open_writers, state.blocked_by) == (cursor, 1, None, None)
    pair.recorded()
    cursor = follow(pair.standby, cursor, seen)
    assert [event.data for event in seen] == ["before", "A", "B"]
    assert pair.standby.feed(pair.primary.feed().cursor).events == []
    heard = pair.standby.subscribe(
        all_tenants=True, hint=True, idle=0
    )  # which a stand-by can't, and reads all the same
    assert [event.data for event in heard] == ["before", "A", "B"]
    with pytest.raises(StoreUnavailable, match="primary"):
        pair.standby.conversation("s").append([1])

    # All at once: writers, one who records, and a reader.
    done = threading.Event()

    def write(number: int) -> None:
        with psycopg.connect(pair.db.info.dsn, host=pair.db.info.host) as conn:
            mine = pair.primary.using(conn)
            for n in range(EACH):
                mine.conversation(f"w{number}").append([n])
                if n % 5 == number % 5:  # stay open while another commits
                    pair.primary.conversation(f"others-{number}").append([n])
                (conn.rollback if n % 7 == 6 else conn.commit)()

    def record() -> None:
        with psycopg.connect(pair.db.info.dsn, host=pair.db.info.host, autocommit=True) as conn:
            while not done.is_set():
                conn.execute("SELECT convstore.record_watermark()")

    def read() -> str | None:
        after = cursor
        while not done.is_set():
            after = follow(pair.standby, after, seen, 10)
        return after

    with ThreadPoolExecutor(WRITERS + 2) as threads:
        recording, reading = threads.submit(record), threads.submit(read)
        try:
            for future in [threads.submit(write, number) for number in range(WRITERS)]:
                future.result(60)
        finally:
            done.set()
        recording.result(30)
        cursor = reading.result(30)
    last = pair.recorded()
    follow(pair.standby, cursor, seen)
    stored = pair.db.execute("SELECT position, hash FROM convstore.events ORDER BY position").fetchall()
    assert [(event.position, event.hash) for event in seen] == stored
    assert last == stored[-1][0]
