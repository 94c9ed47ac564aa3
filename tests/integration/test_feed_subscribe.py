"""Subscriptions: events as they come, after each kind of trouble; driven from the pauses between their polls."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

import eventstore.log.feed
import eventstore.log.feed_async
from eventstore import AsyncEventStore, Event, EventStore
from eventstore.errors import CursorInvalid, InvalidItem

END = -1


class Pauses:
    """Stands for the pause of an idle subscription: notes how long it would be and does what comes next meanwhile."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.lengths: list[float] = []
        self._steps = list(steps)

    def __call__(self, seconds: float) -> None:
        self.lengths.append(seconds)
        assert self._steps, "it polls on with nothing left to come"
        self._steps.pop(0)()

    async def paused(self, seconds: float) -> None:
        self(seconds)


@pytest.fixture(params=["sync", "async"])
def subscribed(
    request: pytest.FixtureRequest, url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Iterator[Any]]]:
    """Subscribe by either client; its pauses are the steps given."""
    runner = asyncio.Runner()
    stores: list[Any] = []

    def of(pauses: Pauses, after: str | None = None, *, timeout: float = 20, **options: Any) -> Iterator[Any]:
        if request.param == "sync":
            monkeypatch.setattr(eventstore.log.feed, "pause", pauses)
            stores.append(EventStore.open(url, timeout=timeout))
            return stores[-1].subscribe(after, **options)
        monkeypatch.setattr(eventstore.log.feed_async, "pause_async", pauses.paused)

        async def opened() -> AsyncEventStore:
            return await AsyncEventStore.open(url, timeout=timeout)

        stores.append(runner.run(opened()))
        events = stores[-1].subscribe(after, **options)

        async def one() -> Any:
            return await anext(events)

        return iter(lambda: runner.run(one()), None)

    yield of
    for store in stores:
        closed = store.close()
        if closed is not None:
            runner.run(closed)
    runner.close()


def take(events: Iterator[Any], n: int) -> list[Any]:
    return [event.data for event in itertools.islice(events, n)]


def test_a_subscription_gives_what_is_there_and_then_what_comes(
    store: EventStore, subscribed: Callable[..., Iterator[Any]]
) -> None:
    chat = store.conversation("s")
    chat.append([1, 2])
    pauses = Pauses(lambda: None, lambda: chat.append([3]), lambda: chat.append([4, 5]))
    events = list(itertools.islice(subscribed(pauses), 5))
    assert [event.data for event in events] == [1, 2, 3, 4, 5]
    again = Pauses(lambda: chat.append([6]))
    assert take(subscribed(again, events[1].cursor), 4) == [3, 4, 5, 6]


def test_a_subscription_by_type_goes_on_past_what_it_leaves_out(
    store: EventStore, subscribed: Callable[..., Iterator[Any]]
) -> None:
    chat = store.conversation("s")
    wanted = [Event(type="x.wanted", data="wanted")]
    pauses = Pauses(lambda: chat.append([1]), lambda: chat.append_events(wanted), lambda: chat.append_events(wanted))
    assert take(subscribed(pauses, types=["x.wanted"]), 2) == ["wanted"] * 2


def test_a_subscription_stops_below_a_writer_in_flight(
    store: EventStore, url: str, subscribed: Callable[..., Iterator[Any]]
) -> None:
    store.conversation("s").append([0])
    with psycopg.connect(url) as conn:
        mine = store.using(conn).conversation("mine")
        pauses = Pauses(
            lambda: mine.append([1]), lambda: store.conversation("s").append([2]), lambda: None, conn.commit
        )
        assert take(subscribed(pauses), 3) == [0, 1, 2]


def test_an_idle_subscription_asks_less_and_less_often_and_at_once_again_after_an_event(
    store: EventStore, subscribed: Callable[..., Iterator[Any]]
) -> None:
    chat = store.conversation("s")
    pauses = Pauses(*[lambda: None] * 11, lambda: chat.append([1]), lambda: None, lambda: chat.append([2]))
    assert take(subscribed(pauses), 2) == [1, 2]
    idle, later = pauses.lengths[:12], pauses.lengths[12:]
    assert idle == sorted(idle)
    assert idle[0] < 0.01
    assert [two / one for one, two in itertools.pairwise(idle[:6])] == [2] * 5
    assert idle[-3:] == [0.25] * 3
    assert later == idle[:2]


def test_a_subscription_survives_its_connections(
    store: EventStore, db: psycopg.Connection, subscribed: Callable[..., Iterator[Any]]
) -> None:
    chat = store.conversation("s")
    chat.append([0])

    def kill() -> None:
        db.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        chat.append([1])

    assert take(subscribed(Pauses(kill, kill, kill)), 4) == [0, 1, 1, 1]


def test_a_subscription_waits_for_a_store_that_cannot_be_reached(
    store: EventStore, db: psycopg.Connection, admin: psycopg.Connection, subscribed: Callable[..., Iterator[Any]]
) -> None:
    store.conversation("s").append([0])
    name = sql.Identifier(db.info.dbname)

    def away() -> None:
        admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(name))
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [db.info.dbname]
        )

    def back() -> None:
        admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))
        store.conversation("s").append([1])

    assert take(subscribed(Pauses(away, back), timeout=1), 2) == [0, 1]


def test_a_subscription_beside_writers_has_all_in_order(store: EventStore) -> None:
    """Threads write, with real pauses between polls; the last event ends it."""
    writers, each = 4, 40

    def write(number: int) -> None:
        for n in range(each):
            store.conversation(f"s{number}").append([n])

    threads = [threading.Thread(target=write, args=[number]) for number in range(writers)]
    events = store.subscribe()
    for thread in threads:
        thread.start()
    got = list(itertools.islice(events, writers * each))
    for thread in threads:
        thread.join()
    assert [event.position for event in got] == sorted({event.position for event in got})
    for number in range(writers):
        assert [event.data for event in got if event.stream == f"s{number}"] == list(range(each))


def test_a_closed_subscription_leaves_the_store_as_it_was(store: EventStore) -> None:
    store.conversation("s").append([1, 2])
    for _ in range(20):  # more than the pool has connections
        events = store.subscribe()
        assert next(events).data == 1
        events.close()  # type: ignore[attr-defined]
        with pytest.raises(StopIteration):
            next(events)
    store.conversation("s").append([3])
    assert len(store.feed().events) == 3


def test_a_cancelled_subscription_ends_and_leaves_the_store_usable(url: str) -> None:
    async def scenario() -> None:
        async with await AsyncEventStore.open(url) as store:
            await store.conversation("s").append([1])
            for _ in range(20):
                got = asyncio.Event()

                async def follow(got: asyncio.Event = got) -> None:
                    async for _ in store.subscribe():
                        got.set()

                task = asyncio.create_task(follow())
                await got.wait()
                await asyncio.sleep(0)  # into its next poll, or its pause
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await store.conversation("s").append([2])
            assert len((await store.feed()).events) == 2

    asyncio.run(scenario())


def test_a_subscription_refuses_at_once_what_the_feed_refuses(store: EventStore) -> None:
    with pytest.raises(CursorInvalid):
        store.subscribe("garbage")
    with pytest.raises(InvalidItem, match="list of event types"):
        store.subscribe(types="x.a")
