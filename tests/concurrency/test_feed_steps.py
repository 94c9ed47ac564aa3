"""The feed beside writers in flight, stepped one statement at a time: nothing is skipped, whatever holds them up.

Every scenario is read by readers of each kind, which polled before its first event. Why it holds: docs/feed.md.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel
from stepping import Actor, last_value, stamps, until_waits

from eventstore import AsyncEventStore, EventStore
from eventstore.log.events import RecordedEvent
from eventstore.log.rows import Blocker

APPEND = (
    "convstore.append_event('default', 's', 's', '{}', NULL, NULL, NULL, NULL, false, gen_random_uuid(), 1::int2,"
    " 1::int2, 'item.appended', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '\"A\"')"
)


class Reader:
    """Follows the feed from the beginning."""

    def __init__(self, feed: Callable[..., Any], **options: Any) -> None:
        self._feed = feed
        self._options = options
        self.cursor: str | None = None
        self.blocked_by: Blocker | None = None
        self.seen: list[RecordedEvent] = []

    def polls(self) -> list[Any]:
        """Read all there is; give the data of the new events."""
        n = len(self.seen)
        while True:
            page = self._feed(self.cursor, **self._options)
            self.seen += page.events
            self.cursor = page.cursor
            self.blocked_by = page.blocked_by
            if not page.events:
                return [event.data for event in self.seen[n:]]

    def positions(self) -> list[int]:
        return [event.position for event in self.seen]


@pytest.fixture
def readers(store: EventStore, url: str) -> Iterator[list[Reader]]:
    made = [
        Reader(store.feed),
        Reader(store.feed, all_tenants=True),
        Reader(store.feed, limit=1),
        Reader(store.feed, types=["item.appended"]),
    ]
    with asyncio.Runner() as runner:
        opened = runner.run(_opened(url))
        made.append(Reader(lambda *args, **named: runner.run(opened.feed(*args, **named))))
        yield made
        runner.run(opened.close())


async def _opened(url: str) -> AsyncEventStore:
    return await AsyncEventStore.open(url)


def polled(readers: list[Reader]) -> list[Any]:
    """Let every reader poll; they have to agree."""
    first, *others = [reader.polls() for reader in readers]
    assert others == [first] * len(others)
    return first


def stored(db: psycopg.Connection) -> list[int]:
    return [position for (position,) in db.execute("SELECT position FROM events ORDER BY position")]


@pytest.fixture
def a(make_actor: Callable[..., Actor]) -> Actor:
    return make_actor(options="-c lock_timeout=15s")


@pytest.fixture
def b(make_actor: Callable[..., Actor]) -> Actor:
    return make_actor(options="-c lock_timeout=15s")


@pytest.fixture
def prepared(db: psycopg.Connection) -> Iterator[None]:
    """Leaves no prepared transaction behind."""
    yield
    for (gid,) in db.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()").fetchall():
        db.execute(f"ROLLBACK PREPARED '{gid}'")  # type: ignore[call-overload]


# --- what A does: up to the first yield it appends below B; then it ends, and gives what there is to read ---


def run(a: Actor, statement: str) -> None:
    a.begins(lambda: a.conn.execute(statement)).result(20)  # type: ignore[call-overload]


class Pipelined:
    """A's connection in pipeline mode, entered and left in A's own thread."""

    def __init__(self, a: Actor) -> None:
        self._a = a
        a.conn.autocommit = True
        self._pipeline = a.conn.pipeline()

    def __enter__(self) -> None:
        self._a.begins(self._pipeline.__enter__).result(20)

    def __exit__(self, *caught: Any) -> None:
        self._a.begins(lambda: self._pipeline.__exit__(*caught)).result(20)


def commits(a: Actor) -> Iterator[list[str]]:
    a.append("s", ["A"]).result(20)
    yield []
    a.commit()
    yield ["A", "B"]


def rolls_back(a: Actor) -> Iterator[list[str]]:
    a.append("s", ["A"]).result(20)
    yield []
    a.rollback()
    yield ["B"]


def loses_its_connection(a: Actor) -> Iterator[list[str]]:
    a.append("s", ["A"]).result(20)
    yield []
    with psycopg.connect(a.conn.info.dsn, host=a.conn.info.host) as conn:
        conn.execute("SELECT pg_terminate_backend(%s, 5000)", [a.pid])  # waits until it is gone
    yield ["B"]


def appends_again(a: Actor) -> Iterator[list[str]]:
    a.append("s", ["A"]).result(20)
    yield []
    a.append("s", ["A again", "and again"]).result(20)
    a.append("u", ["A once more"]).result(20)
    a.commit()
    yield ["A", "B", "A again", "and again", "A once more"]


def at_repeatable_read(a: Actor) -> Iterator[list[str]]:
    a.conn.isolation_level = IsolationLevel.REPEATABLE_READ
    yield from commits(a)


def at_serializable(a: Actor) -> Iterator[list[str]]:
    a.conn.isolation_level = IsolationLevel.SERIALIZABLE
    yield from appends_again(a)


def with_an_early_xid(a: Actor) -> Iterator[list[str]]:
    run(a, "SELECT pg_current_xact_id()")
    yield from appends_again(a)


def that_forges_its_stamp(a: Actor) -> Iterator[list[str]]:
    run(a, "SELECT pg_current_xact_id(), set_config('convstore.stamp', '281474976710655', false)")
    a.append("s", ["A"]).result(20)
    run(a, "SELECT set_config('convstore.stamp', '281474976710655', false), pg_advisory_unlock_all()")
    yield []
    a.append("s", ["A again"]).result(20)
    a.commit()
    yield ["A", "B", "A again"]


def prepared_and_committed(a: Actor) -> Iterator[list[str]]:
    a.append("s", ["A"]).result(20)
    run(a, f"PREPARE TRANSACTION 'feed-{a.pid}'")
    yield []
    a.conn.autocommit = True
    run(a, f"COMMIT PREPARED 'feed-{a.pid}'")
    yield ["A", "B"]


def prepared_and_rolled_back(a: Actor) -> Iterator[list[str]]:
    a.append("s", ["A"]).result(20)
    run(a, f"PREPARE TRANSACTION 'feed-{a.pid}'")
    yield []
    a.conn.autocommit = True
    run(a, f"ROLLBACK PREPARED 'feed-{a.pid}'")
    yield ["B"]


def in_a_savepoint_released(a: Actor) -> Iterator[list[str]]:
    run(a, "SAVEPOINT one")
    a.append("s", ["A"]).result(20)
    run(a, "RELEASE one")
    yield []
    a.commit()
    yield ["A", "B"]


def in_a_savepoint_rolled_back(a: Actor) -> Iterator[list[str]]:
    run(a, "SAVEPOINT one")
    a.append("s", ["A"]).result(20)
    yield []
    run(a, "ROLLBACK TO one")  # and the transaction stays open
    yield ["B"]


def in_a_savepoint_rolled_back_and_again(a: Actor) -> Iterator[list[str]]:
    run(a, "SAVEPOINT one")
    a.append("s", ["dropped"]).result(20)
    run(a, "ROLLBACK TO one")
    a.append("s", ["A"]).result(20)
    yield []
    a.commit()
    yield ["A", "B"]


def before_a_savepoint_rolled_back(a: Actor) -> Iterator[list[str]]:
    a.append("s", ["A"]).result(20)
    run(a, "SAVEPOINT one")
    a.append("s", ["dropped"]).result(20)
    yield []
    run(a, "ROLLBACK TO one")
    a.commit()
    yield ["A", "B"]


def in_an_exception_block(a: Actor) -> Iterator[list[str]]:
    run(a, f"DO $$ BEGIN BEGIN PERFORM {APPEND}; EXCEPTION WHEN division_by_zero THEN NULL; END; END $$")
    yield []
    a.commit()
    yield ["A", "B"]


def in_an_exception_block_that_fails_and_again(a: Actor) -> Iterator[list[str]]:
    caught = f"EXCEPTION WHEN division_by_zero THEN PERFORM {APPEND}"
    run(a, f"DO $$ BEGIN BEGIN PERFORM {APPEND}, 1 / 0; {caught}; END; END $$")
    yield []
    a.commit()
    yield ["A", "B"]


def in_a_pipeline(a: Actor) -> Iterator[list[str]]:
    with Pipelined(a):  # without a BEGIN: a transaction up to the sync that ends the block
        a.append("s", ["A"]).result(20)
        yield []
        a.append("u", ["A again"]).result(20)
    yield ["A", "B", "A again"]


def in_a_pipeline_that_fails(a: Actor) -> Iterator[list[str]]:
    with contextlib.suppress(psycopg.errors.DivisionByZero), Pipelined(a):
        a.append("s", ["A"]).result(20)
        yield []
        run(a, "SELECT 1 / 0")
    yield ["B"]


WAYS = [
    *(commits, rolls_back, loses_its_connection, appends_again),
    *(at_repeatable_read, at_serializable, with_an_early_xid, that_forges_its_stamp),
    *(prepared_and_committed, prepared_and_rolled_back),
    *(in_a_savepoint_released, in_a_savepoint_rolled_back, in_a_savepoint_rolled_back_and_again),
    *(in_a_pipeline, in_a_pipeline_that_fails),
    *(before_a_savepoint_rolled_back, in_an_exception_block, in_an_exception_block_that_fails_and_again),
]


@pytest.mark.parametrize("begun", [False, True], ids=["on an empty log", "on a log with events"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("prepared")
def test_the_feed_stops_below_a_writer_in_flight_and_then_gives_all_in_order(
    store: EventStore,
    db: psycopg.Connection,
    a: Actor,
    b: Actor,
    readers: list[Reader],
    way: Callable[[Actor], Iterator[list[str]]],
    begun: bool,
) -> None:
    db.execute("SELECT bind_login(current_user, 'default')")  # else B waits for A to have made the tenant
    assert polled(readers) == []  # the empty store
    if begun:
        store.conversation("before").append(["before"])
        assert polled(readers) == ["before"]
    steps = way(a)
    next(steps)
    b.append("t", ["B"]).result(20)
    b.commit()
    assert polled(readers) == []
    for reader in readers:
        assert reader.blocked_by is not None
        assert reader.blocked_by.pid in (a.pid, None)
    left = next(steps)
    assert polled(readers) == left
    store.conversation("after").append(["after"])
    assert polled(readers) == ["after"]
    for reader in readers:  # nothing came to lie below a cursor
        assert reader.positions() == stored(db)
        assert reader.blocked_by is None


def test_without_the_stamp_the_same_steps_lose_an_event(
    db: psycopg.Connection, a: Actor, b: Actor, readers: list[Reader]
) -> None:
    db.execute("CREATE OR REPLACE FUNCTION stamp(more boolean) RETURNS void LANGUAGE plpgsql AS 'BEGIN END'")
    db.execute("SELECT bind_login(current_user, 'default')")
    a.append("s", ["A"]).result(20)
    b.append("t", ["B"]).result(20)
    b.commit()
    assert polled(readers) == ["B"]
    a.commit()
    assert polled(readers) == []
    assert len(stored(db)) == 2


def test_of_many_writers_in_flight_the_lowest_holds_the_feed(
    store: EventStore, db: psycopg.Connection, make_actor: Callable[..., Actor], readers: list[Reader]
) -> None:
    db.execute("SELECT bind_login(current_user, 'default')")
    actors = [make_actor(options="-c lock_timeout=15s") for _ in range(4)]
    for number, actor in enumerate(actors):
        actor.append(f"s{number}", [number]).result(20)
        store.conversation("others").append([f"after {number}"])
    for number in (2, 1, 3, 0):
        actors[number].commit()
        if number:
            assert polled(readers) == []
            assert {reader.blocked_by.pid for reader in readers if reader.blocked_by} == {actors[0].pid}
    assert polled(readers) == [0, "after 0", 1, "after 1", 2, "after 2", 3, "after 3"]
    assert readers[0].positions() == stored(db)


# --- what holds nothing back ---


def test_a_writer_that_waits_for_its_stream_holds_nothing_back_however_old_its_xid(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, readers: list[Reader]
) -> None:
    store.conversation("s").append(["before"])
    run(a, "SELECT pg_current_xact_id()")
    b.append("s", ["B"]).result(20)
    waiting = a.append("s", ["A"])
    until_waits(db, a, for_=b)
    store.conversation("t").append(["other"])
    assert polled(readers) == ["before"]
    assert {reader.blocked_by.pid for reader in readers if reader.blocked_by} == {b.pid}
    b.commit()
    waiting.result(20)
    assert polled(readers) == ["B", "other"]
    store.conversation("t").append(["more"])
    assert polled(readers) == []
    a.commit()
    assert polled(readers) == ["A", "more"]


def test_strangers_hold_nothing_back(
    store: EventStore,
    db: psycopg.Connection,
    make_actor: Callable[..., Actor],
    readers: list[Reader],
    make_database: Callable[..., str],
    template: str,
) -> None:
    """Idle transactions, old xids and snapshots, other applications' locks, an append in another database."""
    store.conversation("s").append(["before"])
    idle, reading, locking = (make_actor() for _ in range(3))
    run(idle, "CREATE TABLE public.mine AS SELECT pg_current_xact_id()")
    reading.conn.isolation_level = IsolationLevel.SERIALIZABLE
    run(reading, "SELECT count(*) FROM convstore.events")
    run(
        locking,
        "SELECT pg_advisory_xact_lock(17750, 0), pg_advisory_xact_lock(1163264000, 0), pg_advisory_xact_lock(0)",
    )
    elsewhere = make_database(template)
    with EventStore.open(elsewhere) as other, Actor(other, elsewhere) as abroad:
        abroad.append("s", ["abroad"]).result(20)
        assert stamps(db, abroad.pid)
        store.conversation("s").append(["after"])
        assert polled(readers) == ["before", "after"]
        assert all(reader.blocked_by is None for reader in readers)


def test_rolled_back_draws_cost_nothing(
    store: EventStore, db: psycopg.Connection, a: Actor, readers: list[Reader]
) -> None:
    store.conversation("s").append(["before"])
    for _ in range(20):
        a.append("s", list(range(10))).result(20)
        a.rollback()
    db.execute("SELECT nextval('position') FROM generate_series(1, 100000)")
    assert polled(readers) == ["before"]
    assert [reader.cursor for reader in readers] == [readers[0].seen[0].cursor] * len(readers)  # never the bound
    store.conversation("s").append(["after"])
    assert store.feed(readers[0].cursor, limit=1).events[0].data == "after"
    assert polled(readers) == ["after"]


def test_a_writer_that_reads_the_feed_in_its_own_transaction_does_not_see_past_itself(
    store: EventStore, db: psycopg.Connection, a: Actor, readers: list[Reader]
) -> None:
    store.conversation("s").append(["before"])
    a.append("s", ["A"]).result(20)
    store.conversation("t").append(["other"])
    mine = Reader(a.store.feed)
    assert a.begins(mine.polls).result(20) == ["before"]
    assert mine.blocked_by is not None
    assert mine.blocked_by.pid == a.pid
    a.rollback()
    assert a.begins(mine.polls).result(20) == ["other"]
    assert polled(readers) == ["before", "other"]
    assert mine.positions() == stored(db)
    assert last_value(db) == mine.positions()[-1]
