"""The stamp that tells readers what may be in flight: taken after the row lock, shared, held, forged in vain.

The order and its proof: docs/feed.md.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from stepping import Actor, last_value, stamps, together, until_waits

from eventstore import Event, EventStore
from eventstore.errors import UnsafeSetting


def sound(store: EventStore, name: str, n: int) -> None:
    events = list(store.conversation(name).events())
    assert [e.version for e in events] == list(range(1, n + 1))
    assert [e.position for e in events] == sorted(e.position for e in events)
    assert store.verify().ok


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("named", [{}, {"key": "k"}], ids=["plain", "key"])
def test_a_writer_that_waits_for_its_stream_holds_no_stamp_and_has_drawn_no_position(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, n: int, named: dict[str, Any]
) -> None:
    store.conversation("s").append(["before"])
    a.append("s", ["a"]).result(20)
    drawn = last_value(db)
    waiting = b.append("s", ["b"] * n, **named)
    until_waits(db, b, for_=a)
    assert stamps(db, b.pid) == []
    assert last_value(db) == drawn
    a.commit()
    assert waiting.result(20).first_version == 3
    (stamp,) = stamps(db, b.pid)
    assert stamp[0] <= drawn
    b.commit()
    sound(store, "s", 2 + n)


def test_a_stamp_is_below_every_position_drawn_under_it_and_held_until_the_end(
    store: EventStore, db: psycopg.Connection, a: Actor
) -> None:
    store.conversation("known").append([1])
    for n in (1, 3):
        before = last_value(db)
        first = a.append("s", list(range(n))).result(20)
        assert stamps(db, a.pid) == [(before, "ShareLock")]
        assert first.position == before + n
        store.conversation("elsewhere").append([1])
        a.begins(lambda: a.conn.execute("SELECT pg_advisory_unlock_all()")).result(20)
        a.begins(lambda: a.conn.execute("RESET ALL")).result(20)
        assert stamps(db, a.pid) == [(before, "ShareLock")]
        (a.commit if n == 1 else a.rollback)()
        assert stamps(db, a.pid) == []


def test_stamps_are_shared_so_that_writers_of_different_streams_never_wait(
    store: EventStore, db: psycopg.Connection, make_actor: Callable[..., Actor]
) -> None:
    store.conversation("known").append([1])
    actors = [make_actor() for _ in range(5)]
    for number, actor in enumerate(actors):
        actor.append(f"s{number}", [1]).result(20)
    held = {stamp for actor in actors for stamp in stamps(db, actor.pid)}
    assert {mode for _, mode in held} == {"ShareLock"}
    for actor in reversed(actors):
        actor.commit()
    assert store.verify().ok


@pytest.mark.parametrize("n", [1, 2])
def test_2_000_appends_in_one_transaction_hold_at_most_two_stamps(
    store: EventStore, db: psycopg.Connection, a: Actor, n: int
) -> None:
    store.conversation("others").append([1])
    before = last_value(db)

    def many() -> None:
        for number in range(2_000):
            a.store.conversation(f"s{number % 7}").append([number] * n)
            if number % 400 == 0:
                store.conversation("others").append([number])

    a.begins(many).result(60)
    held = stamps(db, a.pid)
    assert 1 <= len(held) <= 2
    assert held[0][0] == before
    a.commit()
    assert store.verify().checked == 2_000 * n + 6


def test_a_stamp_taken_in_a_savepoint_goes_with_its_rows_and_comes_back(
    store: EventStore, db: psycopg.Connection, a: Actor
) -> None:
    def run(statement: str) -> None:
        a.begins(lambda: a.conn.execute(statement)).result(20)  # type: ignore[arg-type]

    run("BEGIN" if a.conn.autocommit else "SELECT 1")
    run("SAVEPOINT one")
    a.append("s", ["dropped"]).result(20)
    assert len(stamps(db, a.pid)) == 1
    run("ROLLBACK TO one")
    assert stamps(db, a.pid) == []
    before = last_value(db)
    kept = a.append("s", ["kept"]).result(20)
    assert stamps(db, a.pid) == [(before, "ShareLock")]
    run("SAVEPOINT two")
    a.append("s", ["dropped"]).result(20)
    a.append("t", ["dropped"]).result(20)
    run("ROLLBACK TO two")
    assert stamps(db, a.pid) == [(before, "ShareLock")]
    run("SAVEPOINT three")
    a.append("s", ["kept too"]).result(20)
    run("RELEASE three")
    assert stamps(db, a.pid)[0] == (before, "ShareLock")
    a.commit()
    assert kept.first_version == 1
    assert [e.data for e in store.conversation("s").events()] == ["kept", "kept too"]
    assert store.conversation("t").head() == 0
    sound(store, "s", 2)


FORGED = ["abc", "-5", "0", "999999999999999999", "9" * 40, "281474976710655", " 7", "1e3", "", "\u0663"]


@pytest.mark.parametrize("local", [True, False], ids=["local", "session"])
@pytest.mark.parametrize("forged", FORGED, ids=ascii)
def test_a_forged_setting_never_raises_the_stamp_nor_breaks_an_append(
    store: EventStore, db: psycopg.Connection, a: Actor, forged: str, local: bool
) -> None:
    store.conversation("others").append([1, 2, 3])

    def forge() -> None:
        a.conn.execute("SELECT set_config('convstore.stamp', %s, %s)", [forged, local])

    for round_ in range(3):
        lowest = last_value(db)
        a.begins(forge).result(20)
        if round_ == 1:  # the transaction has written before its first append, so that the setting is asked
            a.begins(lambda: a.conn.execute("CREATE TEMP TABLE mine (n int) ON COMMIT DROP")).result(20)
        for number in range(4):
            result = a.append("s", [number]).result(20)
            held = stamps(db, a.pid)
            assert held
            assert held[0][0] < result.position
            assert held[0][0] <= lowest  # all that this transaction drew lies above its lowest stamp
            a.begins(forge).result(20)
        a.commit()
        sound(store, "s", 4 * (round_ + 1))


def test_a_huge_forged_setting_does_not_use_up_the_lock_table(
    store: EventStore, db: psycopg.Connection, a: Actor
) -> None:
    def many() -> None:
        a.conn.execute("SELECT set_config('convstore.stamp', '999999999999999999', true)")
        for number in range(200):
            a.store.conversation("s").append([number])

    a.begins(many).result(60)
    assert len(stamps(db, a.pid)) <= 3
    a.rollback()


def test_synchronous_commit_off_is_refused_on_every_path(store: EventStore, url: str) -> None:
    with psycopg.connect(url) as conn:
        mine = store.using(conn)
        conn.execute("SET synchronous_commit = off")
        conn.commit()
        for items in ([1], [1, 2]):
            for name in ("new", "new", "old"):
                with pytest.raises(UnsafeSetting, match="synchronous_commit"):
                    mine.conversation(name).append(items)
                conn.rollback()
        conn.execute("SET synchronous_commit = local")
        mine.conversation("s").append([1])
    assert store.conversation("s").head() == 1


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("kind", ["x.a", "history.cleared"])
def test_recorded_at_never_goes_back_even_when_the_stream_is_ahead_of_the_clock(
    store: EventStore, db: psycopg.Connection, url: str, cached: bool, n: int, kind: str
) -> None:
    store.conversation("s").append([1])
    future = dt.datetime.now(dt.UTC) + dt.timedelta(days=3)
    db.execute("UPDATE streams SET recorded_at = %s", [future])
    db.execute("UPDATE events SET recorded_at = %s", [future])
    events = [Event(type=kind, data={})] * n
    with EventStore.open(url) as fresh:
        chat = (store if cached else fresh).conversation("s")
        chat.append_events(events, key="k")
        chat.append_events(events, expected=1 + n)
        assert chat.append_events(events, key="k").deduplicated
    assert [e.recorded_at for e in store.conversation("s").events()] == [future] * (1 + 2 * n)


def test_recorded_at_never_goes_back_where_many_write(store: EventStore) -> None:
    results = together([lambda: [store.conversation("s").append([1, 2]) for _ in range(10)]] * 8)
    assert not [r for r in results if isinstance(r, BaseException)]
    times = [e.recorded_at for e in store.conversation("s").events()]
    assert times == sorted(times)
    assert [one == two for one, two in zip(times[::2], times[1::2], strict=True)] == [True] * 80  # one an append
