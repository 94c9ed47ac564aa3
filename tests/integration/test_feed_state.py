"""How far the feed is and a reader is behind: what is counted, whose, and what is told of writers in flight."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry

import eventstore.log.subscription
from eventstore import Event, EventStore
from eventstore.errors import CursorInvalid, InvalidItem, InvalidName, TenantRequired
from eventstore.log import cursors


def gap(url: str, n: int) -> None:
    """Draw positions that no event will have."""
    with psycopg.connect(url) as conn, EventStore.open(url) as store:
        store.using(conn).conversation("never").append(list(range(n)))
        conn.rollback()


@pytest.fixture
def hung(store: EventStore, url: str) -> Iterator[psycopg.Connection]:
    """A writer that appended twice, to other streams, and stays in its transaction; one event before, one since."""
    store.conversation("other").append([0])
    with psycopg.connect(url, application_name="worker-7") as conn:
        store.using(conn).conversation("hung").append(["a"])
        store.conversation("other").append([1])
        store.using(conn).conversation("hung too").append(["b"])
        yield conn
        if conn.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            conn.rollback()


def test_the_state_of_an_empty_log(store: EventStore) -> None:
    state = store.feed_state()
    assert state == store.feed_state(all_tenants=True)
    assert (state.cursor, state.position, state.lag_events, state.lag_capped) == (None, 0, 0, False)
    assert (state.lag_seconds, state.open_writers, state.blocked_by, state.blocked_seconds) == (0, 0, None, 0)


def test_the_lag_is_what_is_committed_behind_the_cursor(any_store: Any) -> None:
    other = any_store.for_tenant(f"other-{uuid.uuid4()}")
    for n in range(3):
        any_store.conversation("s").append([n, n])
        other.conversation("s").append([n])
    events = any_store.feed().events
    assert any_store.feed_state().lag_events == 6
    for n, event in enumerate(events, 1):
        state = any_store.feed_state(event.cursor)
        assert state.lag_events == 6 - n
        assert (state.lag_seconds > 0) == (n < 6)
        assert (state.cursor, state.position) == (events[-1].cursor, events[-1].position)
    # Of all tenants the other's two later ones are behind this cursor too.
    assert any_store.feed_state(events[1].cursor, all_tenants=True).lag_events >= 7


def test_positions_that_nobody_has_are_no_lag(store: EventStore, url: str) -> None:
    store.conversation("s").append([1])
    cursor = store.feed().cursor
    gap(url, 500)
    assert store.feed_state(cursor).lag_events == 0
    assert store.feed_state().position == 1
    store.conversation("s").append([2])
    assert store.feed_state(cursor).lag_events == store.feed_state(cursor, all_tenants=True).lag_events == 1


def test_the_lag_in_seconds_is_the_age_of_the_oldest_not_read(store: EventStore, db: psycopg.Connection) -> None:
    chat = store.conversation("s")
    chat.append([1, 2, 3])
    for version, hours in ((1, 3), (2, 2), (3, 1)):
        db.execute(f"UPDATE events SET recorded_at = now() - interval '{hours} hours' WHERE version = {version}")  # type: ignore[call-overload]
    first, second, _ = store.feed().events
    for after, hours in ((None, 3), (first.cursor, 2), (second.cursor, 1)):
        assert 3600 * hours <= store.feed_state(after).lag_seconds < 3600 * hours + 600
    db.execute("UPDATE events SET recorded_at = now() + interval '1 hour'")
    assert store.feed_state().lag_seconds == 0


def test_the_count_of_the_lag_ends_at_10_000(store: EventStore) -> None:
    chat = store.conversation("s")
    for _ in range(2):
        chat.append_events([Event(type="x.a", data=0)] * 5_000)
    chat.append([1])
    for options in ({}, {"all_tenants": True}):
        state = store.feed_state(**options)  # type: ignore[arg-type]
        assert (state.lag_events, state.lag_capped) == (10_000, True)
        state = store.feed_state(store.feed(limit=2).cursor, **options)  # type: ignore[arg-type]
        assert (state.lag_events, state.lag_capped) == (9_999, False)


def test_what_a_writer_holds_back_is_lag_and_the_writer_is_named(
    store: EventStore, hung: psycopg.Connection, make_login: Callable[..., str]
) -> None:
    state = store.feed_state(all_tenants=True)
    assert (state.position, state.lag_events, state.cursor) == (1, 2, store.feed().cursor)
    assert store.feed_state(state.cursor).lag_events == 1
    assert state.open_writers == 1  # it may hold two stamps
    assert state.blocked_by is not None
    assert (state.blocked_by.pid, state.blocked_by.who) == (hung.info.backend_pid, "postgres (worker-7)")
    assert state.blocked_seconds == state.blocked_by.age_s
    assert state.blocked_seconds > 0
    with EventStore.open(make_login("reader", "default")) as mine:
        told = mine.feed_state().blocked_by
        assert told is not None
        assert (told.pid, told.who, told.query) == (hung.info.backend_pid, None, None)
        with pytest.raises(TenantRequired):
            mine.feed_state(all_tenants=True)
        with pytest.raises(TenantRequired):
            mine.for_tenant("rival").feed_state()
    begin = state.cursor
    hung.commit()
    assert {event.data for event in store.feed(begin).events} == {"a", "b", 1}
    assert store.feed_state().open_writers == 0


def test_who_begins_at_the_states_cursor_gets_all_that_is_committed_later(store: EventStore, url: str) -> None:
    store.conversation("s").append([1])
    with psycopg.connect(url) as conn:
        store.using(conn).conversation("open").append(["in flight"])
        store.conversation("s").append([2])
        begin = store.feed_state().cursor
        assert begin == store.feed(limit=1).events[0].cursor
    assert [event.data for event in store.feed(begin).events] == ["in flight", 2]
    assert store.feed_state(begin).lag_events == 2


def test_a_cursor_that_the_feed_refuses_has_no_lag_either(store: EventStore, db: psycopg.Connection) -> None:
    store.conversation("s").append([1])
    cursor = store.feed().cursor
    place = cursors.decode(cursor)
    assert place.incarnation is not None
    with pytest.raises(CursorInvalid):
        store.feed_state("garbage")
    with pytest.raises(CursorInvalid, match="ahead of the log"):
        store.feed_state(cursors.encode(place.position + 1, place.incarnation))
    db.execute("UPDATE store SET incarnation = gen_random_uuid()")
    with pytest.raises(CursorInvalid, match="restored or failed over"):
        store.feed_state(cursor)


# --- metrics ---


def test_a_subscription_with_a_name_shows_how_far_it_is_behind(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry()

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"convstore_feed_lag_{name}", {"reader": "billing"})

    with EventStore.open(url, registry=registry) as store:
        chat = store.conversation("s")
        chat.append(list(range(10)))
        store.subscribe()
        assert value("events") is None
        events = store.subscribe(limit=4, name="billing", idle=0)
        assert (value("events"), value("seconds")) == (0, 0)  # it has not looked yet
        for n in range(4):
            next(events)
            assert value("events") == 10 - n  # the one in hand is not dealt with
            assert value("seconds") > 0  # type: ignore[operator]
        other = store.subscribe(name="billing")
        next(other)
        fresh = [store.subscribe(name="billing") for _ in range(12)]
        assert value("events") == 10  # of two with one name, the one that is behind most
        other.close()
        monkeypatch.setattr(eventstore.log.subscription, "LOOK_EVERY", 0.0)
        assert len(list(events)) == 6
        del other, fresh
        assert (value("events"), value("seconds")) == (0, 0)
        del events
        assert value("events") is None


def test_a_subscription_with_a_name_that_a_writer_holds_back_is_behind(url: str, hung: psycopg.Connection) -> None:
    with EventStore.open(url) as store:
        events = store.subscribe(name="billing", idle=0)
        assert [event.data for event in events] == [0]
        assert events.lag()[0] == 1
        assert events.lag()[1] > 0


@pytest.mark.parametrize("name", ["", "n" * 513, 5])
def test_a_name_that_cannot_be_is_refused(store: EventStore, name: Any) -> None:
    with pytest.raises((InvalidName, InvalidItem)):
        store.subscribe(name=name)


def test_writers_in_flight_are_asked_for_at_a_scrape_where_that_was_wanted(url: str, hung: psycopg.Connection) -> None:
    registry = CollectorRegistry()
    store = EventStore.open(url, registry=registry)

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"convstore_feed_{name}")

    assert value("open_writers") is None
    store.telemetry.observe_feed(lambda: store.feed_state(all_tenants=True))
    assert value("open_writers") == 1
    assert value("blocked_seconds") > 0  # type: ignore[operator]
    hung.rollback()
    assert (value("open_writers"), value("blocked_seconds")) == (0, 0)
    store.close()
    assert value("open_writers") is None  # and the scrape goes well
    assert registry.get_sample_value("convstore_pool_waiting") == 0
