"""Hints: they wake an idle reader, nobody waits for them, and where none come nothing is different."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from test_feed_subscribe import Pauses, take

import eventstore.log.hints
import eventstore.log.subscription
import eventstore.log.subscription_async
from eventstore import AsyncEventStore, EventStore
from eventstore.log.hints import CHANNEL
from eventstore.log.pause import Bell

NOTHING: Callable[[], object] = lambda: None  # noqa: E731


@pytest.fixture
def hinting(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventStore]:
    """A store that tells others of its appends."""
    monkeypatch.setenv("CONVSTORE_HINT", "1")
    with EventStore.open(url) as store:
        monkeypatch.delenv("CONVSTORE_HINT")
        yield store


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscriptions whose every pause is longer than a test may take."""
    for module in (eventstore.log.subscription, eventstore.log.subscription_async):
        monkeypatch.setattr(module, "SHORTEST", 600.0)
        monkeypatch.setattr(module, "LONGEST", 600.0)


@contextmanager
def taken(events: Any) -> Iterator[queue.Queue[Any]]:
    """A thread that takes event after event."""
    got: queue.Queue[Any] = queue.Queue()

    def take_all() -> None:
        for event in events:
            got.put(event.data)

    thread = threading.Thread(target=take_all)
    thread.start()
    try:
        yield got
    finally:
        events.close()
        thread.join(20)
    assert not thread.is_alive()


def test_a_hint_ends_the_pause_of_a_subscription(patient: None, hinting: EventStore, url: str) -> None:
    with EventStore.open(url) as store, taken(store.subscribe(hint=True)) as got:
        for n in range(5):
            hinting.conversation("s").append([n])
            assert got.get(timeout=20) == n
        with hinting.transaction() as tx:
            tx.conversation("s").append(["in a transaction"])
        assert got.get(timeout=20) == "in a transaction"


def test_a_hint_ends_the_pause_of_an_async_subscription(
    patient: None, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVSTORE_HINT", "1")

    async def scenario() -> None:
        async with await AsyncEventStore.open(url) as store, asyncio.timeout(30):
            events = store.subscribe(hint=True)
            for n in range(5):
                waiting = asyncio.create_task(anext(events))  # type: ignore[arg-type]
                await asyncio.sleep(0)
                await store.conversation("s").append([n])
                assert (await waiting).data == n

    asyncio.run(scenario())


def test_a_subscription_hears_again_after_its_connection_was_lost(
    patient: None, hinting: EventStore, url: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventstore.log.hints, "RETRY", 0.01)
    with EventStore.open(url) as store, taken(store.subscribe(hint=True)) as got:
        for n in range(4):
            hinting.conversation("s").append([n])
            assert got.get(timeout=20) == n
            db.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


def test_hints_are_few_say_nothing_and_come_from_another_connection(
    hinting: EventStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventstore.log.hints, "EVERY", 0.5)
    with psycopg.connect(url, autocommit=True) as listening:
        listening.execute(f"LISTEN {CHANNEL}".encode())
        pids = set()
        for n in range(200):
            hinting.for_tenant(f"secret-{n % 3}").conversation("s").append([n])
            with hinting.transaction() as tx:
                pids.add(tx._route.caller._conn.info.backend_pid)  # type: ignore[attr-defined]
        heard = list(listening.notifies(timeout=20, stop_after=1))
        heard += listening.notifies(timeout=0)
    assert 1 <= len(heard) < 40
    assert {(each.channel, each.payload) for each in heard} == {(CHANNEL, "")}
    assert not pids & {each.pid for each in heard}


def test_hints_that_cannot_be_sent_fail_no_append(
    hinting: EventStore, url: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()

    def refused() -> Any:
        failed.set()
        raise psycopg.OperationalError("no connection for hints")

    hints = hinting._route.caller.hints
    assert hints is not None
    monkeypatch.setattr(hints, "_connect", refused)
    monkeypatch.setattr(eventstore.log.hints, "RETRY", 0.001)
    for n in range(20):
        hinting.conversation("s").append([n])
    assert failed.wait(20)
    assert [event.data for event in hinting.feed().events] == list(range(20))


def test_without_the_setting_nothing_is_sent_and_no_connection_is_made(
    store: EventStore, url: str, db: psycopg.Connection
) -> None:
    with psycopg.connect(url, autocommit=True) as listening:
        listening.execute(f"LISTEN {CHANNEL}".encode())
        store.conversation("s").append([1])
        assert take(store.subscribe(idle=0), 2) == [1]
        assert list(listening.notifies(timeout=0.1)) == []
    hints = store._route.caller.hints
    assert hints is not None
    assert hints._sender is hints._listener is None


@pytest.fixture(params=["direct", "pooler"])
def route(request: pytest.FixtureRequest, url: str) -> str:
    """Where a subscription connects to."""
    return str(request.getfixturevalue("pooler").url_for(url)) if request.param == "pooler" else url


def test_a_subscription_that_hears_no_hint_asks_as_often_as_one_without(
    store: EventStore, route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = Pauses(*[NOTHING] * 14, lambda: store.conversation("s").append([1]), *[NOTHING] * 14, lambda: append(2))

    def append(n: int) -> None:
        store.conversation("s").append([n])

    with EventStore.open(route) as subscribing:
        monkeypatch.setattr(Bell, "wait", lambda _, seconds: pauses(seconds))
        assert take(subscribing.subscribe(hint=True), 2) == [1, 2]
    assert max(pauses.lengths) == 0.25


def test_pauses_are_longer_while_hints_are_heard_and_no_more_once_one_was_missing(
    store: EventStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribing = EventStore.open(url)
    hints = subscribing._route.caller.hints
    assert hints is not None
    heard = threading.Event()
    ring = hints._ring

    def noted() -> None:
        ring()
        if hints.heard:
            heard.set()

    monkeypatch.setattr(hints, "_ring", noted)

    def hint() -> None:
        with psycopg.connect(url, autocommit=True) as conn:
            while not heard.wait(0.02):  # until it listens
                conn.execute(f"NOTIFY {CHANNEL}".encode())

    def silently() -> None:
        store.conversation("s").append([1])

    def hinted() -> bool:
        silently()
        hints.heard += 1
        return True

    idle = [NOTHING] * 12
    pauses = Pauses(*idle, hint, *idle, hinted, *idle, silently, *idle, silently)
    monkeypatch.setattr(Bell, "wait", lambda _, seconds: pauses(seconds))
    with subscribing:
        assert take(subscribing.subscribe(hint=True), 3) == [1, 1, 1]
    before, trusting, still, after = (pauses.lengths[n : n + 13] for n in range(0, 52, 13))
    assert max(before) == 0.25
    assert trusting[-1] == 2.0
    assert still[0] == 0.002  # soon again after a hint
    assert still[-1] == 2.0
    assert max(after) == 0.25
