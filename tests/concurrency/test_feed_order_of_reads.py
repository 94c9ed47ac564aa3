"""The reader held between its reads while writers draw, commit and end: the order of reads is what makes it safe.

The function under test is the store's own with a pause put into it. Each order that the proof forbids loses an event.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from stepping import Actor, last_value, until
from test_feed_steps import Reader, stored

import eventstore
from eventstore import EventStore
from eventstore.errors import IsolationLevelError

SOURCE = (Path(eventstore.__file__).parent.parent / "sql" / "functions" / "feed_bound.sql").read_text()
SOURCE = SOURCE.replace("IF p_after = drawn THEN", "IF false THEN")  # the reads are what is looked at here
SECOND_READ = "  SELECT least(drawn"
PAUSE = "  PERFORM pg_advisory_lock_shared(7), pg_advisory_unlock_shared(7);\n"
K_BEFORE_H = f"""
CREATE OR REPLACE FUNCTION feed_bound(p_after bigint, OUT drawn bigint, OUT bound bigint)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  SELECT min((l.classid::bigint & 65535) << 32 | l.objid::bigint) INTO bound
    FROM pg_locks l WHERE l.locktype = 'advisory' AND l.classid::bigint >> 16 = 17750;
{PAUSE}
  drawn := coalesce(pg_sequence_last_value('position'), 0);
  bound := least(drawn, bound);
END $$
"""
ORDERS = {
    "between H and K": SOURCE.replace(SECOND_READ, PAUSE + SECOND_READ),
    "between K and the events": SOURCE.replace("END $$", PAUSE + "END $$"),
}


class Held:
    """A reader that was stopped in the middle of its reads."""

    def __init__(self, db: psycopg.Connection, actor: Actor, reader: Reader) -> None:
        self._db = db
        db.execute("SELECT pg_advisory_lock(7)")
        self._reading = actor.begins(reader.polls)
        waiting = (
            "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = %s AND objid = 7 AND NOT granted"
        )
        until(db, waiting, [actor.pid], "the reader pauses")

    def goes_on(self) -> list[str]:
        self._db.execute("SELECT pg_advisory_unlock(7)")
        return self._reading.result(20)


@pytest.fixture
def actors(store: EventStore, make_actor: Callable[..., Actor]) -> tuple[Actor, Actor, Actor]:
    store.conversation("before").append(["before"])
    a, b, reading = (make_actor(options="-c lock_timeout=15s") for _ in range(3))
    reading.conn.autocommit = True
    return a, b, reading


def replace(db: psycopg.Connection, function: str) -> None:
    db.execute(function)  # type: ignore[call-overload]


def both_come_meanwhile(
    db: psycopg.Connection, actors: tuple[Actor, Actor, Actor], reader: Reader
) -> tuple[list[str], list[str]]:
    """A draws and stays open, B draws and commits, all while the reader pauses; what it reads then, and later."""
    a, b, reading = actors
    held = Held(db, reading, reader)
    a.append("s", ["A"]).result(20)
    b.append("t", ["B"]).result(20)
    b.commit()
    first = held.goes_on()
    a.commit()
    return first, reader.polls()


def one_ends_meanwhile(
    db: psycopg.Connection, actors: tuple[Actor, Actor, Actor], reader: Reader
) -> tuple[list[str], list[str]]:
    """A has drawn and B committed before; A commits while the reader pauses."""
    a, b, reading = actors
    a.append("s", ["A"]).result(20)
    b.append("t", ["B"]).result(20)
    b.commit()
    held = Held(db, reading, reader)
    a.commit()
    return held.goes_on(), reader.polls()


@pytest.mark.parametrize("meanwhile", [both_come_meanwhile, one_ends_meanwhile])
@pytest.mark.parametrize("where", ORDERS)
def test_a_reader_held_between_its_reads_skips_nothing(
    db: psycopg.Connection,
    actors: tuple[Actor, Actor, Actor],
    where: str,
    meanwhile: Callable[..., tuple[list[str], ...]],
) -> None:
    assert ORDERS[where] != SOURCE
    reader = Reader(actors[2].store.feed)
    reader.polls()
    replace(db, ORDERS[where])
    first, later = meanwhile(db, actors, reader)
    assert first + later == ["A", "B"]
    assert reader.positions() == stored(db)


def test_reading_the_stamps_before_the_sequence_loses_an_event(
    db: psycopg.Connection, actors: tuple[Actor, Actor, Actor]
) -> None:
    reader = Reader(actors[2].store.feed)
    reader.polls()
    replace(db, K_BEFORE_H)
    assert both_come_meanwhile(db, actors, reader) == (["B"], [])


def test_one_snapshot_for_all_reads_loses_an_event(db: psycopg.Connection, actors: tuple[Actor, Actor, Actor]) -> None:
    reader = Reader(actors[2].store.feed)
    reader.polls()
    replace(db, ORDERS["between H and K"])
    replace(db, "ALTER FUNCTION read_feed STABLE")
    assert one_ends_meanwhile(db, actors, reader) == (["B"], [])


READS = """
CREATE FUNCTION reads(n integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  before bigint := 0;
  now    bigint;
  back   integer := 0;
BEGIN
  FOR i IN 1..n LOOP
    now := pg_sequence_last_value('convstore.position');
    back := back + (now < before)::integer;
    before := now;
  END LOOP;
  RETURN back;
END $$"""


def test_of_a_million_reads_beside_draws_none_exceeds_a_later_one(db: psycopg.Connection, url: str) -> None:
    replace(db, READS)
    done = threading.Event()

    def draw() -> int:
        with psycopg.connect(url, autocommit=True) as conn:
            while not done.is_set():
                conn.execute("SELECT count(nextval('convstore.position')) FROM generate_series(1, 5000)")
        return 0

    with ThreadPoolExecutor(2) as threads:
        drawing = [threads.submit(draw) for _ in range(2)]
        try:
            first = last_value(db)
            until(db, "SELECT pg_sequence_last_value('position') > %s", [first], "they draw")
            assert db.execute("SELECT reads(1000000)").fetchone() == (0,)
        finally:
            done.set()
        for each in drawing:
            each.result(20)


@pytest.mark.parametrize("where", ORDERS)
def test_a_hung_reader_holds_up_neither_writers_nor_readers(
    store: EventStore, db: psycopg.Connection, actors: tuple[Actor, Actor, Actor], where: str
) -> None:
    a, b, reading = actors
    hung, other = Reader(reading.store.feed), Reader(store.feed)
    replace(db, ORDERS[where])
    held = Held(db, reading, hung)
    replace(db, SOURCE)
    for writer in (a, b):
        writer.append("before", ["same stream"]).result(20)
        writer.append(f"s{writer.pid}", ["its own"]).result(20)
        writer.commit()
    assert other.polls() == ["before"] + ["same stream", "its own"] * 2
    assert other.blocked_by is None
    held.goes_on()
    hung.polls()
    assert hung.positions() == other.positions() == stored(db)


# --- the watermark: the same bound, kept for those who can't see stamps ---


def mark(conn: psycopg.Connection) -> int:
    row = conn.execute("SELECT convstore.record_watermark()").fetchone()
    assert row is not None
    return int(row[0])


def test_the_watermark_is_the_last_event_below_which_nothing_is_in_flight_and_never_goes_down(
    store: EventStore, db: psycopg.Connection, actors: tuple[Actor, Actor, Actor]
) -> None:
    a, b, _ = actors
    assert mark(db) == last_value(db)
    before = store.conversation("s").append([1, 2]).position
    assert mark(db) == before
    b.append("t", ["rolled back"]).result(20)
    b.rollback()
    assert mark(db) == before  # that of an event, not the bound
    a.append("s", ["A"]).result(20)
    after = store.conversation("t").append(["after"]).position
    assert mark(db) == before
    a.commit()
    assert mark(db) == after
    db.execute("SELECT pg_advisory_lock_shared(4996180836614144000)")  # a stamp of long ago
    assert mark(db) == after
    assert db.execute("SELECT position FROM watermark").fetchall() == [(after,)]


def test_the_watermark_of_an_empty_log_is_0(db: psycopg.Connection) -> None:
    assert mark(db) == 0


def test_two_who_record_the_watermark_at_once_leave_the_higher(
    store: EventStore, db: psycopg.Connection, actors: tuple[Actor, Actor, Actor]
) -> None:
    a, b, _ = actors
    mark(db)
    low = a.begins(lambda: mark(a.conn)).result(20)
    high = store.conversation("s").append(["more"]).position
    waiting = b.begins(lambda: mark(b.conn))
    until(db, "SELECT %s = ANY (pg_blocking_pids(%s))", [a.pid, b.pid], "it waits for the other")
    a.commit()
    assert waiting.result(20) == high > low
    b.commit()
    assert mark(db) == high


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_neither_feed_nor_watermark_is_read_in_one_snapshot(store: EventStore, url: str, level: str) -> None:
    store.conversation("s").append(["before"])
    with psycopg.connect(url) as conn:
        conn.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")  # type: ignore[call-overload]
        with pytest.raises(IsolationLevelError, match=f"{level}.*READ COMMITTED"):
            store.using(conn).feed()
        conn.rollback()
        conn.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")  # type: ignore[call-overload]
        with pytest.raises(psycopg.Error, match=level) as caught:
            mark(conn)
        assert caught.value.sqlstate == "CV003"
        conn.rollback()
        assert [event.data for event in store.using(conn).feed().events] == ["before"]
