"""Appends that meet: two or three connections stepped one statement at a time, and many at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from stepping import Actor, last_value, together, until, until_waits

from eventstore import NO_STREAM, Event, EventStore
from eventstore.errors import IdempotencyConflict, StoreUnavailable, UniqueKeyConflict, VersionConflict


def stored(store: Any, name: str) -> list[Any]:
    return [e.data for e in store.conversation(name).events()]


def sound(store: Any, name: str, n: int) -> None:
    """Versions are 1 to n, and everything verifies."""
    assert [e.version for e in store.conversation(name).events()] == list(range(1, n + 1))
    assert store.conversation(name).head() == n
    report = store.verify()
    assert report.ok, report.first_bad


@pytest.fixture(params=["cold", "warm"])
def warm(request: pytest.FixtureRequest, store: EventStore) -> int:
    """Whether the stream exists, with its ids cached; gives its head."""
    if request.param == "cold":
        return 0
    return store.conversation("s").append(["before"]).last_version


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("stale", [None, "exact"])
def test_a_repeat_while_the_first_is_in_flight_waits_and_gets_its_result(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, warm: int, n: int, stale: str | None
) -> None:
    named: dict[str, Any] = {"key": "k"} | ({"expected": warm} if stale else {})
    first = a.append("s", list(range(n)), **named).result(20)
    again = b.append("s", list(range(n)), **named)
    until_waits(db, b, for_=a)
    a.commit()
    got = again.result(20)
    drawn = last_value(db)
    b.commit()
    assert got.deduplicated
    assert (got.first_version, got.last_version, got.position) == (
        first.first_version,
        first.last_version,
        first.position,
    )
    assert drawn == first.position
    sound(store, "s", warm + n)


@pytest.mark.parametrize("n", [1, 3])
def test_a_repeat_while_the_first_is_in_flight_takes_its_place_if_that_rolls_back(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, warm: int, n: int
) -> None:
    a.append("s", list(range(n)), key="k", expected=warm).result(20)
    again = b.append("s", list(range(n)), key="k", expected=warm)
    until_waits(db, b, for_=a)
    a.rollback()
    got = again.result(20)
    b.commit()
    assert (got.deduplicated, got.first_version, got.last_version) == (False, warm + 1, warm + n)
    sound(store, "s", warm + n)


@pytest.mark.parametrize("n", [1, 3])
def test_a_changed_repeat_while_the_first_is_in_flight_is_refused(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, warm: int, n: int
) -> None:
    a.append("s", list(range(n)), key="k").result(20)
    changed = b.append("s", ["changed"] * n, key="k")
    until_waits(db, b, for_=a)
    a.commit()
    with pytest.raises(IdempotencyConflict):
        changed.result(20)
    with pytest.raises(IdempotencyConflict):
        b.append("s", [*range(n), "more"], key="k").result(20)
    assert b.append("s", ["alive"]).result(20).first_version == warm + n + 1
    b.commit()
    sound(store, "s", warm + n + 1)


@pytest.mark.parametrize("kind", ["item", "control", "closing"])
def test_a_repeat_found_after_waiting_leaves_the_streams_row_as_it_was(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, kind: str
) -> None:
    event = {
        "item": Event(type="item.appended", data=1),
        "control": Event(type="history.cleared", data={}),
        "closing": Event(type="stream.closed", data={}),
    }[kind]
    for batch in ([event], [Event(type="x.a", data=0), event]):
        name = f"s{len(batch)}"
        store.conversation(name).append(["before"])
        a.begins(lambda name=name, batch=batch: a.store.conversation(name).append_events(batch, key="k")).result(20)
        again = b.begins(lambda name=name, batch=batch: b.store.conversation(name).append_events(batch, key="k"))
        until_waits(db, b, for_=a)
        a.commit()
        row = "SELECT s::text FROM streams s WHERE name = %s"
        before = db.execute(row, [name]).fetchone()
        assert again.result(20).deduplicated
        b.commit()
        assert db.execute(row, [name]).fetchone() == before
        sound(store, name, 1 + len(batch))


def test_a_repeat_waits_behind_its_first_and_a_stranger(
    store: EventStore, db: psycopg.Connection, make_actor: Callable[..., Actor]
) -> None:
    """The stream moves twice while the repeat waits: its first is not the last append any more."""
    a, b, c = make_actor(), make_actor(), make_actor()
    store.conversation("s").append(["before"])
    first = a.append("s", [1, 2], key="k").result(20)
    stranger = b.append("s", ["stranger"])
    until_waits(db, b, for_=a)
    again = c.append("s", [1, 2], key="k")
    until_waits(db, c)
    a.commit()
    if not stranger.done():
        stranger.result(20)
    b.commit()
    got = again.result(20)
    c.commit()
    assert got.deduplicated
    assert got.position == first.position
    sound(store, "s", 4)


@pytest.mark.parametrize("n", [1, 3])
def test_of_two_racers_with_the_same_version_one_wins_and_the_loser_draws_no_position(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, warm: int, n: int
) -> None:
    a.append("s", ["a"] * n, expected=warm).result(20)
    loser = b.append("s", ["b"] * n, expected=warm)
    until_waits(db, b, for_=a)
    drawn = last_value(db)
    a.commit()
    with pytest.raises(VersionConflict) as caught:
        loser.result(20)
    assert caught.value.actual == warm + n
    assert last_value(db) == drawn
    assert b.append("s", ["b"], expected=warm + n).result(20).first_version == warm + n + 1
    b.commit()
    sound(store, "s", warm + n + 1)


def test_a_racer_whose_rival_rolls_back_wins(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, warm: int
) -> None:
    a.append("s", ["a"], expected=warm).result(20)
    racer = b.append("s", ["b"], expected=warm)
    until_waits(db, b, for_=a)
    a.rollback()
    assert racer.result(20).first_version == warm + 1
    b.commit()
    sound(store, "s", warm + 1)


def test_who_expects_the_version_that_a_waiting_append_makes_gets_it(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor
) -> None:
    store.conversation("s").append([1])
    a.append("s", [2]).result(20)
    b.append("s", [3], expected=1)  # seen as of now it fits, seen as of the lock it does not
    until_waits(db, b, for_=a)
    a.commit()
    b.rollback()
    a.append("s", [3]).result(20)
    hopeful = b.append("s", [4], expected=2)
    until_waits(db, b, for_=a)
    a.rollback()
    assert hopeful.result(20).first_version == 3
    b.commit()
    sound(store, "s", 3)


def test_20_writers_append_50_times_each_to_one_stream_without_conflict(store: EventStore) -> None:
    def writer(number: int) -> Callable[[], list[int]]:
        return lambda: [
            store.conversation("s").append([[number, n]], key=f"{number}-{n}" if n % 2 else None).first_version
            for n in range(50)
        ]

    results = together([writer(n) for n in range(20)])
    errors = [r for r in results if isinstance(r, BaseException)]
    assert not errors
    assert sorted(v for r in results for v in r) == list(range(1, 1001))
    assert all(versions == sorted(versions) for versions in results)
    log = stored(store, "s")
    assert [[data for data in log if data[0] == number] for number in range(20)] == [
        [[number, n] for n in range(50)] for number in range(20)
    ]
    sound(store, "s", 1000)


def test_of_many_racers_with_the_same_version_exactly_one_wins_each_round(
    store: EventStore, db: psycopg.Connection
) -> None:
    for round_ in range(10):
        before = last_value(db)
        results = together([lambda: store.conversation("s").append([1], expected=round_)] * 8)  # noqa: B023
        assert sum(not isinstance(r, BaseException) for r in results) == 1
        losers = [r for r in results if isinstance(r, VersionConflict)]
        assert [r.actual for r in losers] == [round_ + 1] * 7
        assert last_value(db) == before + 1
    sound(store, "s", 10)


@pytest.mark.parametrize("what", ["stream", "context", "tenant"])
def test_ten_first_appends_at_once_make_one(store: EventStore, db: psycopg.Connection, what: str) -> None:
    scope = store.for_tenant("new") if what == "tenant" else store
    scope.conversation("known").append([1]) if what != "tenant" else None
    context = {"stream": "known", "context": "fresh", "tenant": None}[what]
    names = ["s"] * 10 if what != "context" else [f"s{n}" for n in range(10)]
    results = together([lambda name=name: scope.conversation(name, context=context).append([1]) for name in names])
    assert not [r for r in results if isinstance(r, BaseException)]
    expected = [1] * 10 if what == "context" else list(range(1, 11))
    assert sorted(r.first_version for r in results) == expected
    for table, column in (("tenants", "name"), ("contexts", "name"), ("directory", "name")):
        twice = f"SELECT {column} FROM {table} GROUP BY {column} HAVING count(*) > 1"
        assert db.execute(twice).fetchall() == []  # type: ignore[call-overload]
    assert scope.verify().ok


def test_one_first_append_with_no_stream_wins_of_ten(store: EventStore) -> None:
    results = together([lambda: store.conversation("s").append([1, 2], expected=NO_STREAM)] * 10)
    assert [r.actual for r in results if isinstance(r, VersionConflict)] == [2] * 9
    sound(store, "s", 2)


def test_ten_equal_calls_with_one_key_make_one_append(store: EventStore) -> None:
    results = together([lambda: store.conversation("s").append([1, 2], key="k")] * 10)
    assert not [r for r in results if isinstance(r, BaseException)]
    assert sum(not r.deduplicated for r in results) == 1
    assert len({r.position for r in results}) == 1
    sound(store, "s", 2)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("same_stream", [True, False])
def test_of_two_events_with_one_unique_key_in_flight_one_is_written(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, n: int, same_stream: bool
) -> None:
    def claim(actor: Actor, name: str) -> Callable[[], Any]:
        events = [Event(type="x.a", data=i) for i in range(n - 1)] + [Event(type="x.a", data=0, unique_key="u")]
        return lambda: actor.store.conversation(name, context="ctx").append_events(events)

    for name in ("s", "t"):
        store.conversation(name, context="ctx").append([1])
    a.begins(claim(a, "s")).result(20)
    other = b.begins(claim(b, "s" if same_stream else "t"))
    until_waits(db, b, for_=a)
    a.commit()
    with pytest.raises(UniqueKeyConflict) as caught:
        other.result(20)
    assert (caught.value.unique_key, caught.value.context) == ("u", "ctx")
    b.rollback()
    sound(store, "s", 1 + n)


def test_a_unique_key_is_free_again_when_its_holder_rolls_back(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor
) -> None:
    for name in ("s", "t"):
        store.conversation(name, context="ctx").append([1])
    event = [Event(type="x.a", data=0, unique_key="u")]
    a.begins(lambda: a.store.conversation("s").append_events(event)).result(20)
    other = b.begins(lambda: b.store.conversation("t").append_events(event))
    until_waits(db, b, for_=a)
    a.rollback()
    assert other.result(20).first_version == 2
    b.commit()
    sound(store, "t", 2)


def test_one_of_ten_claims_of_a_unique_key_wins(store: EventStore) -> None:
    event = [Event(type="x.a", data=0, unique_key="u")]
    results = together([lambda n=n: store.conversation(f"s{n}", context="ctx").append_events(event) for n in range(10)])
    assert sum(not isinstance(r, BaseException) for r in results) == 1
    assert sum(isinstance(r, UniqueKeyConflict) for r in results) == 9
    assert store.verify().ok
    assert sum(s.head for s in store.conversations().streams) == 1


def test_a_deadlock_of_two_transactions_is_told_as_not_done_and_harms_neither_stream(
    store: EventStore, db: psycopg.Connection
) -> None:
    for name in ("s", "t"):
        store.conversation(name).append([0])

    def crossed(one: str, two: str, barrier: Any) -> Callable[[], None]:
        def run() -> None:
            with store.transaction() as tx:
                tx.conversation(one).append([one + two])
                barrier.wait(20)
                tx.conversation(two).append([one + two])

        return run

    barrier = threading.Barrier(2)
    results = together([crossed("s", "t", barrier), crossed("t", "s", barrier)])
    lost = [r for r in results if r is not None]
    assert len(lost) == 1
    assert isinstance(lost[0], StoreUnavailable)
    assert lost[0].outcome == "not_done"
    assert isinstance(lost[0].__cause__, psycopg.errors.DeadlockDetected)
    won = "st" if results[0] is None else "ts"
    assert stored(store, "s") == stored(store, "t") == [0, won]
    sound(store, "s", 2)


def test_a_plain_append_that_loses_a_deadlock_is_sent_again(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor
) -> None:
    """A trigger of the owner takes a lock that a transaction holds which waits for our stream."""
    store.conversation("s").append([0])
    db.execute("CREATE TABLE public.busy (n int); INSERT INTO public.busy VALUES (0)")
    db.execute(
        "CREATE FUNCTION public.touch() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS"
        " $$ BEGIN UPDATE public.busy SET n = n + 1; RETURN NULL; END $$"
    )
    db.execute("GRANT ALL ON public.busy TO convstore_owner")
    db.execute("CREATE TRIGGER touch AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION public.touch()")
    a.begins(lambda: a.conn.execute("SET deadlock_timeout = '100s'; UPDATE public.busy SET n = n + 1")).result(20)
    call = b.begins(lambda: store.conversation("s").append([1]))
    waits = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid)))"
    until(db, waits, [a.pid], "the append waits in the trigger, with the stream's row locked")
    assert a.append("s", [2]).result(20).last_version == 2  # the append gave way
    a.commit()
    result = call.result(20)
    assert (result.first_version, result.deduplicated) == (3, False)
    assert stored(store, "s") == [0, 2, 1]
    sound(store, "s", 3)
