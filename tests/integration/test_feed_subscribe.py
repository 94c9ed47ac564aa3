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

import eventstore.log.subscription
import eventstore.log.subscription_async
from eventstore import AsyncEventStore, Event, EventStore
from eventstore.errors import CursorInvalid, InvalidItem, StoreUnavailable
from eventstore.log.pause import AsyncBell, Bell


class Pauses:
    """Stands for the pause of an idle subscription: notes how long it would be and does what comes next meanwhile."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.lengths: list[float] = []
        self._steps = list(steps)

    def __call__(self, seconds: float) -> bool:
        """Tell whether the step rang the bell."""
        self.lengths.append(seconds)
        assert self._steps, "it polls on with nothing left to come"
        return self._steps.pop(0)() is True

    async def paused(self, seconds: float) -> bool:
        return self(seconds)


@pytest.fixture(params=["sync", "async"])
def subscribed(
    request: pytest.FixtureRequest, url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Iterator[Any]]]:
    """Subscribe by either client; its pauses are the steps given."""
    runner = asyncio.Runner()
    stores: list[Any] = []

    def of(pauses: Pauses, after: str | None = None, *, timeout: float = 20, **options: Any) -> Iterator[Any]:
        if request.param == "sync":
            monkeypatch.setattr(Bell, "wait", lambda _, seconds: pauses(seconds))
            stores.append(EventStore.open(url, timeout=timeout))
            return stores[-1].subscribe(after, **options)
        monkeypatch.setattr(AsyncBell, "wait", lambda _, seconds: pauses.paused(seconds))

        async def opened() -> AsyncEventStore:
            return await AsyncEventStore.open(url, timeout=timeout)

        stores.append(runner.run(opened()))
        events = stores[-1].subscribe(after, **options)

        async def one() -> Any:
            return await anext(events, None)

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


def test_an_idle_subscription_asks_less_and_less_often_and_soon_again_after_an_event(
    store: EventStore, subscribed: Callable[..., Iterator[Any]]
) -> None:
    chat = store.conversation("s")
    nothing = lambda: None  # noqa: E731
    pauses = Pauses(*[nothing] * 11, lambda: chat.append([1]), *[nothing] * 3, lambda: chat.append([2]))
    assert take(subscribed(pauses), 2) == [1, 2]
    idle, later = pauses.lengths[:12], pauses.lengths[12:]
    assert idle[0] == 0.002
    assert [two / one for one, two in itertools.pairwise(idle[:7])] == [2] * 6
    assert idle[-4:] == [0.25] * 4
    assert later == [0.002, *idle[1:4]]  # never at once again after a page that wasn't cut short


def test_a_subscription_behind_reads_page_after_page_without_a_pause(
    store: EventStore, subscribed: Callable[..., Iterator[Any]]
) -> None:
    store.conversation("s").append(list(range(10)))
    assert take(subscribed(Pauses(), limit=3), 10) == list(range(10))


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


def test_a_slow_consumer_holds_one_page_and_no_more(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.conversation("s").append(list(range(10)))
    read: list[int] = []

    def counted(*args: Any) -> Any:
        page = feed(*args)
        read.append(len(page.events))
        return page

    feed = eventstore.log.subscription.feed
    monkeypatch.setattr(eventstore.log.subscription, "feed", counted)
    events = store.subscribe(limit=3)
    assert read == []
    for n in range(7):
        assert next(events).data == n
        assert read == [3] * (n // 3 + 1)


def test_the_cursor_of_a_subscription_is_that_of_what_was_given_and_passes_over_the_rest(
    store: EventStore, subscribed: Callable[..., Iterator[Any]]
) -> None:
    chat = store.conversation("s")
    chat.append([1, 2, 3])
    events = store.subscribe(limit=2, idle=0)
    assert events.cursor is None
    for n, event in enumerate(events, 1):
        assert events.cursor == event.cursor
        assert [e.data for e in store.feed(events.cursor).events] == [1, 2, 3][n:]
    wanted = store.subscribe(types=["x.wanted"], idle=0)
    assert list(wanted) == []
    assert wanted.cursor == events.cursor


def test_a_subscription_with_idle_0_ends_where_there_is_no_more(
    subscribed: Callable[..., Iterator[Any]], url: str
) -> None:
    with EventStore.open(url) as store:
        assert list(store.subscribe(idle=0)) == []
        store.conversation("s").append([1, 2, 3])
        assert take(subscribed(Pauses(lambda: None), limit=2, idle=0), 9) == [1, 2, 3]


def test_a_subscription_ends_after_its_idle_time_and_no_pause_is_longer_than_what_is_left(
    store: EventStore, subscribed: Callable[..., Iterator[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    for module in (eventstore.log.subscription, eventstore.log.subscription_async):
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    class Clock(Pauses):
        def __call__(self, seconds: float) -> bool:
            self.lengths.append(seconds)
            now[0] += seconds
            if len(self.lengths) == 4:
                store.conversation("s").append([1])
            return False

    clock = Clock()
    assert take(subscribed(clock, idle=1.0), 9) == [1]
    assert sum(clock.lengths[:4]) + 1.0 == pytest.approx(now[0] - 100.0)
    assert max(clock.lengths) == 0.25


def test_a_subscription_with_an_idle_time_says_so_where_the_store_cannot_be_reached(
    url: str, db: psycopg.Connection, admin: psycopg.Connection
) -> None:
    with EventStore.open(url, timeout=0.2) as store:
        events = store.subscribe(idle=0)
        name = sql.Identifier(db.info.dbname)
        admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(name))
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [db.info.dbname]
        )
        with pytest.raises(StoreUnavailable):
            list(events)
        admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))


@pytest.mark.parametrize("idle", [-1, "1", True, float("inf"), float("nan")])
def test_an_idle_time_that_is_none_is_refused(store: EventStore, idle: Any) -> None:
    with pytest.raises(InvalidItem, match="seconds from 0"):
        store.subscribe(idle=idle)


class Waiting:
    """A thread that is in its subscription's pause, where nothing but the bell ends it."""

    def __init__(self, events: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paused = threading.Event()
        self.got: list[Any] = []
        wait = Bell.wait

        def waits(bell: Bell, _: float) -> bool:
            self.paused.set()
            return wait(bell, 60)

        monkeypatch.setattr(Bell, "wait", waits)
        self.thread = threading.Thread(target=lambda: self.got.extend(events))
        self.thread.start()
        assert self.paused.wait(20)

    def ended(self) -> bool:
        self.thread.join(20)
        return not self.thread.is_alive()


def test_closing_the_subscription_or_the_store_ends_who_waits_in_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = EventStore.open(url)
    one, two = store.subscribe(), store.for_tenant("other").subscribe()
    with monkeypatch.context() as patch:
        waiting = Waiting(one, patch)
        one.close()
        assert waiting.ended()
    waiting = Waiting(two, monkeypatch)
    store.close()
    assert waiting.ended()
    assert waiting.got == []
    with pytest.raises(StoreUnavailable, match="store is closed"):
        next(store.subscribe())


def test_an_async_subscription_ends_with_its_store(url: str) -> None:
    async def scenario() -> None:
        store = await AsyncEventStore.open(url)
        await store.conversation("s").append([1])
        events = store.subscribe()
        assert (await anext(events)).data == 1
        waiting = asyncio.create_task(anext(events, None))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        await store.close()
        async with asyncio.timeout(20):
            assert await waiting is None
        with pytest.raises(StoreUnavailable, match="store is closed"):
            await anext(store.subscribe())

    asyncio.run(scenario())


def test_a_call_that_was_timed_out_can_be_made_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHORTEST", "LONGEST"):
        monkeypatch.setattr(eventstore.log.subscription_async, name, 600.0)

    async def scenario() -> None:
        async with await AsyncEventStore.open(url) as store:
            events = store.subscribe()
            for n in range(30):  # in the middle of a read, or of the pause after it
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(events), 0.004 * (n % 6))
            await store.conversation("s").append([1, 2])
            async with asyncio.timeout(20):  # whoever asks again does not wait for a pause that was cut off
                assert [(await anext(events)).data for _ in range(2)] == [1, 2]

    asyncio.run(scenario())


def test_two_cannot_wait_for_one_subscriptions_next_event(url: str) -> None:
    async def scenario() -> None:
        async with await AsyncEventStore.open(url) as store:
            events = store.subscribe()
            waiting = asyncio.create_task(anext(events))  # type: ignore[arg-type]
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="subscribe once for each"):
                await anext(events)
            waiting.cancel()

    asyncio.run(scenario())


def test_a_closed_subscription_leaves_the_store_as_it_was(store: EventStore) -> None:
    store.conversation("s").append([1, 2])
    for _ in range(20):  # more than the pool has connections
        events = store.subscribe()
        assert next(events).data == 1
        events.close()
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
