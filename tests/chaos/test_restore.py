"""The drills of docs/restore.md: a log that was restored hides no event from a reader that keeps its place elsewhere.

Each is run with the documented step and without it. Without it positions are drawn again, below the reader's: a reader
that keeps bare positions skips them, which is shown; the cursor of this one is refused.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from clients import wait_until
from clusters import Cluster, primary

from eventstore import EventStore, embedded
from eventstore.adapters.cli import main
from eventstore.errors import CursorInvalid, SequencesUnsafe, StoreUnavailable
from eventstore.log import cursors

LOST = 100  # more than the 32 that a sequence is ahead in the WAL
pytestmark = pytest.mark.usefixtures("server")  # which has chosen the binaries


class Reader:
    """One that keeps its cursors outside, and knows which events it dealt with."""

    def __init__(self) -> None:
        self.seen: dict[int, bytes] = {}
        self.cursors: list[str] = []

    @property
    def position(self) -> int:
        return max(self.seen)

    def reads(self, store: EventStore, after: str | None) -> list[Any]:
        """Read to the end; the data that it had not seen."""
        fresh = []
        while (page := store.feed(after, limit=1_000)).events:
            for event in page.events:
                if self.seen.get(event.position) != event.hash:
                    fresh.append(event.data)
                self.seen[event.position] = event.hash
            after = page.cursor
            assert after is not None
            self.cursors.append(after)
        return fresh


@contextmanager
def writers(url: str) -> Iterator[None]:
    """Four that append all the while, some of it rolled back."""
    done = threading.Event()

    def write(number: int, store: EventStore) -> None:
        with psycopg.connect(url) as conn:
            n = 0
            while not done.is_set():
                store.using(conn).conversation(f"w{number}").append([n, n])
                (conn.rollback if n % 5 == 4 else conn.commit)()
                store.conversation("shared").append([n])
                n += 1

    with EventStore.open(url) as store, ThreadPoolExecutor(4) as threads:
        writing = [threads.submit(write, number, store) for number in range(4)]
        try:
            wait_until(lambda: store.feed(limit=200).events[199:], "they have written")
            yield
        finally:
            done.set()
        for each in writing:
            each.result(30)


def goes_on(url: str, reader: Reader) -> None:
    """The documented way: the step before the first writer; then the reader finds its place."""
    result = CliRunner().invoke(main, ["repair", "sequence"], env={"CONVSTORE_URL": url})
    assert result.exit_code == 0, result.output
    with EventStore.open(url) as store:
        for cursor in reader.cursors:
            with pytest.raises(CursorInvalid, match=r"another life"):
                store.feed(cursor)
        kept = [event.data for event in store.feed(limit=10_000).events]
        after = store.cursor_at(reader.position)
        new = [f"new {n}" for n in range(2 * LOST)]
        store.conversation("after").append(new[:-1])
        store.conversation("shared").append(new[-1:])
        assert reader.reads(store, after)[-len(new) :] == new
        whole = Reader()
        assert whole.reads(store, None) == kept + new
        assert whole.seen.items() <= reader.seen.items(), "it was not given an event that is there"
        assert store.verify().ok
    verified = CliRunner().invoke(main, ["verify"], env={"CONVSTORE_URL": url})
    assert verified.exit_code == 0, verified.output


def is_refused(url: str, reader: Reader) -> None:
    """The step is left out."""
    last = reader.cursors[-1]
    place = cursors.decode(last)
    assert place.incarnation is not None
    with EventStore.open(url) as store:
        head = store.conversation("after").append(["new 0"]).position
        with pytest.raises(CursorInvalid, match=r"ahead of the log|not in this log"):
            store.feed(last)
        new = [f"new {n}" for n in range(place.position - head + LOST)]
        for start in range(1, len(new), LOST):
            store.conversation("after").append(new[start : start + LOST])
        bare = cursors.encode(place.position, place.incarnation)
        assert 0 < len(Reader().reads(store, bare)) < len(new), "nothing was skipped, so the drill shows nothing"
        with pytest.raises(CursorInvalid, match=r"not in this log.*older cursor"):
            store.feed(last)
        # An older cursor goes through where its event is there, and hides nothing.
        assert reader.reads(store, reader.cursors[0])[-len(new) :] == new
        assert store.verify().ok


END: list[Callable[[str, Reader], None]] = [goes_on, is_refused]


@pytest.fixture(params=END, ids=["with the step", "without the step"])
def end(request: pytest.FixtureRequest) -> Callable[[str, Reader], None]:
    """How the drill ends."""
    return request.param  # type: ignore[no-any-return]


def lose(store: EventStore, reader: Reader) -> None:
    """Append what will not be in what is restored, and let the reader deal with it."""
    for n in range(LOST):
        store.conversation("shared" if n % 2 else "lost").append([f"lost {n}"])
    assert f"lost {LOST - 1}" in reader.reads(store, reader.cursors[-1])


# --- dump and restore ---


@pytest.fixture
def dump_into(server: embedded.Server, tmp_path: Path) -> Callable[..., None]:
    """Dump a database, or what the options say, and load it into another."""

    def move(source: str, target: str, *options: str) -> None:
        file = tmp_path / "dump"
        run = partial(subprocess.run, check=True, capture_output=True)
        run([server.bin("pg_dump"), "--format=custom", f"--file={file}", *options, f"--dbname={source}"])
        run([server.bin("pg_restore"), "--exit-on-error", f"--dbname={target}", file])

    return move


def test_a_dump_under_load(
    url: str,
    make_database: Callable[..., str],
    dump_into: Callable[..., None],
    end: Callable[[str, Reader], None],
) -> None:
    target, reader = make_database(), Reader()
    with EventStore.open(url) as source:
        with writers(url):
            reader.reads(source, None)
            dump_into(url, target)
        reader.reads(source, reader.cursors[-1])
        lose(source, reader)
    end(target, reader)


def test_a_dump_of_tables_alone_leaves_the_sequence_behind_and_is_refused(
    url: str, make_database: Callable[..., str], template: str, dump_into: Callable[..., None]
) -> None:
    target, reader = make_database(template), Reader()
    with EventStore.open(url) as source, writers(url):
        reader.reads(source, None)
        tables = [f"--table=convstore.{name}" for name in ("tenants", "contexts", "directory", "streams", "events")]
        dump_into(url, target, "--data-only", *tables)
    with EventStore.open(target) as store:
        for call in (store.feed, lambda: store.conversation("shared").append([1])):
            with pytest.raises(SequencesUnsafe, match=r"position is at 0, below position \d+ of an event; run: conv"):
                call()
    goes_on(target, reader)


# --- base backup and recovery to a point in time ---

ARCHIVING = {"archive_mode": "on", "archive_command": "cp %p {home}/archive/%f"}


def test_recovery_to_a_point_in_time(end: Callable[[str, Reader], None]) -> None:
    reader = Reader()
    with primary(ARCHIVING) as cluster, EventStore.open(cluster.url) as store:
        archive = cluster.folder("archive")
        with writers(cluster.url):
            data = cluster.base_backup("restored")
        reader.reads(store, None)
        with psycopg.connect(cluster.url, autocommit=True) as db:
            db.execute("SELECT pg_create_restore_point('good')")
            lose(store, reader)
            row = db.execute("SELECT pg_walfile_name(pg_switch_wal())").fetchone()
            assert row is not None
            wait_until((archive / str(row[0])).exists, "the WAL is archived")
        (data / "recovery.signal").touch()
        recovery = {
            "restore_command": f"cp {archive}/%f %p",
            "recovery_target_name": "good",
            "recovery_target_action": "promote",
        }
        with cluster.running(data, recovery) as url:
            wait_until(lambda: primary_at(url), "it has recovered")
            end(url, reader)


def primary_at(url: str) -> bool:
    with psycopg.connect(url) as conn:
        return conn.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)


# --- a stand-by takes over ---


@contextmanager
def standby(cluster: Cluster) -> Iterator[str]:
    with cluster.running(cluster.base_backup("standby", "-R"), {"hot_standby": "on"}) as url:
        yield url


def promote(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        assert conn.execute("SELECT pg_promote()").fetchone() == (True,)


def caught_up(cluster: Cluster, url: str) -> bool:
    with psycopg.connect(cluster.url) as db, psycopg.connect(url) as at:
        lsn = db.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
        assert lsn is not None
        return at.execute("SELECT pg_last_wal_replay_lsn() >= %s", lsn).fetchone() == (True,)


def test_a_planned_promotion_needs_no_step_and_its_readers_go_on() -> None:
    reader = Reader()
    with primary() as cluster, standby(cluster) as url:
        with EventStore.open(cluster.url) as store:
            with writers(cluster.url):
                reader.reads(store, None)
            reader.reads(store, reader.cursors[-1])
        with EventStore.open(url) as reading:
            assert reading.sequence_faults() == []
            with pytest.raises(StoreUnavailable, match="primary"):
                reading.repair_sequence()
        wait_until(lambda: caught_up(cluster, url), "it has caught up")
        cluster.stop()
        promote(url)
        with EventStore.open(url) as store:
            assert store.sequence_faults() == []
            new = [f"new {n}" for n in range(2 * LOST)]
            store.conversation("shared").append(new)
            assert reader.reads(store, reader.cursors[-1]) == new
            assert store.verify().ok


def test_a_promotion_that_lost_commits(end: Callable[[str, Reader], None]) -> None:
    reader = Reader()
    with primary() as cluster, standby(cluster) as url:
        with EventStore.open(cluster.url) as store:
            with writers(cluster.url):
                pass
            reader.reads(store, None)
            wait_until(lambda: caught_up(cluster, url), "it has caught up")
            with psycopg.connect(url, autocommit=True) as at:
                at.execute("ALTER SYSTEM SET primary_conninfo = ''")
                at.execute("SELECT pg_reload_conf()")
                receiver = "SELECT FROM pg_stat_wal_receiver"
                wait_until(lambda: at.execute(receiver).fetchone() is None, "it receives no more")
            lose(store, reader)
        cluster.stop()
        promote(url)
        end(url, reader)


# --- a logical subscriber takes over ---

PUBLISHED: Sequence[str] = ("tenants", "contexts", "directory", "streams", "events")


def test_a_logical_subscriber_that_takes_over_is_refused_until_the_step() -> None:
    reader = Reader()
    with primary() as cluster:
        other = cluster.server.url_for("upgraded")
        with (
            psycopg.connect(cluster.url, autocommit=True) as db,
            EventStore.open(cluster.url) as store,
        ):
            db.execute("CREATE DATABASE upgraded TEMPLATE template0")
            with EventStore.open(other) as made:
                made.migrate()
            early = EventStore.open(other)
            with psycopg.connect(other, autocommit=True) as at, writers(cluster.url):
                tables = ", ".join(f"convstore.{name}" for name in PUBLISHED)
                db.execute(f"CREATE PUBLICATION moving FOR TABLE {tables}")
                db.execute("SELECT pg_create_logical_replication_slot('moving', 'pgoutput')")
                at.execute(
                    f"CREATE SUBSCRIPTION moving CONNECTION 'host={cluster.socket} user=postgres dbname=convstore'"
                    " PUBLICATION moving WITH (create_slot = false)"
                )
                synced = "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel"
                wait_until(lambda: at.execute(synced).fetchone() == (True,), "the tables are copied")
                reader.reads(store, None)
            with psycopg.connect(other, autocommit=True) as at:
                head = "SELECT count(*), max(position) FROM convstore.events"
                wait_until(lambda: at.execute(head).fetchone() == db.execute(head).fetchone(), "all is applied")
                at.execute("ALTER SUBSCRIPTION moving DISABLE")
                running = "SELECT FROM pg_stat_subscription WHERE pid IS NOT NULL"
                wait_until(lambda: at.execute(running).fetchone() is None, "it applies no more")
                reader.reads(store, reader.cursors[-1])
                lose(store, reader)
                at.execute("DROP SUBSCRIPTION moving")
            with pytest.raises(SequencesUnsafe, match="drew a value twice"):  # it was opened before there was a fault
                early.conversation("shared").append([1])
            early.close()
        with EventStore.open(other) as taken:
            for call in (taken.feed, lambda: taken.conversation("shared").append([1])):
                with pytest.raises(
                    SequencesUnsafe, match=r"position is at .*, below.*contexts_context_id_seq.*run: conv"
                ):
                    call()
        goes_on(other, reader)
