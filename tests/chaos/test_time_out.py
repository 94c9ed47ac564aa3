"""A stream that somebody else holds locked, a task that is cancelled: the call ends, and the store goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from clients import Client, wait_until, waits_for_a_lock

from eventstore import AsyncEventStore, EventStore
from eventstore.errors import StoreUnavailable

SHORT = 1.0


@contextmanager
def locked(url: str, stream: str) -> Iterator[None]:
    """Hold a stream as an open transaction that appended to it does."""
    with EventStore.open(url) as other, psycopg.connect(url) as conn:
        other.using(conn).conversation(stream).append(["never committed"])
        yield
        conn.rollback()


@pytest.mark.parametrize(("write", "times"), [("one", 9), ("batch", 1), ("key", 1)])  # the pool has 8 connections
def test_an_append_to_a_locked_stream_ends_with_the_time_out_and_harms_nobody(
    make_client: Callable[..., Client], url: str, write: str, times: int
) -> None:
    client = make_client(url, timeout=SHORT)
    client.append("s", [1])
    items: list[Any] = [2, 3] if write == "batch" else [2]
    key = "k" if write == "key" else None
    with locked(url, "s"):
        for _ in range(times):
            with pytest.raises(StoreUnavailable) as caught:
                client.append("s", items, key=key)
            assert caught.value.outcome in ("not_done", "unknown")
            assert client.append("another", [0]).last_version > 0
        assert client.data("s") == [1]
    assert not client.append("s", items, key=key).deduplicated
    assert client.data("s") == [1, *items]


def test_a_sync_append_that_was_cancelled_at_the_server_is_not_done(store: EventStore, url: str) -> None:
    store.conversation("s").append([1])
    with locked(url, "s"), EventStore.open(url, timeout=SHORT) as hasty:
        with pytest.raises(StoreUnavailable) as caught:
            hasty.conversation("s").append([2])
        assert caught.value.outcome == "not_done"


def test_threads_that_wait_for_a_locked_stream_leave_the_pool_whole(url: str) -> None:
    with EventStore.open(url, timeout=SHORT) as store:
        store.conversation("s").append([1])
        outcomes: list[str] = []

        def append() -> None:
            try:
                store.conversation("s").append([2])
            except StoreUnavailable as e:
                outcomes.append(e.outcome)

        with locked(url, "s"):
            threads = [threading.Thread(target=append) for _ in range(24)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert outcomes == ["not_done"] * 24
        for n in range(24):
            assert store.conversation("s").append([n]).last_version == n + 2


def test_a_pool_that_is_used_up_is_not_done(url: str) -> None:
    with EventStore.open(url, timeout=SHORT) as store:
        store.conversation("s").append([1])
        blocks = [store.transaction() for _ in range(8)]
        for block in blocks:
            block.__enter__()
        with pytest.raises(StoreUnavailable) as caught:
            store.conversation("s").append([2])
        assert caught.value.outcome == "not_done"
        for block in blocks:
            block.__exit__(None, None, None)
        assert store.conversation("s").append([2]).last_version == 2


def test_a_task_that_is_cancelled_while_it_waits_leaves_nothing(url: str, db: psycopg.Connection) -> None:
    async def play() -> None:
        async with AsyncEventStore.open(url) as store:
            chat = store.conversation("s")
            await chat.append([1])
            with locked(url, "s"):
                for _ in range(10):
                    task = asyncio.create_task(chat.append([2], key="k"))
                    await asyncio.to_thread(wait_until, lambda: waits_for_a_lock(db), "the append waits")
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
            assert await chat.head() == 1
            assert not (await chat.append([2], key="k")).deduplicated
            await all_connections_work(store)

    asyncio.run(play())


@pytest.mark.parametrize("size", [1, 3])
def test_a_task_that_is_cancelled_at_any_point_leaves_a_whole_append_or_none(url: str, size: int) -> None:
    async def play() -> list[Any]:
        async with AsyncEventStore.open(url) as store:
            chat = store.conversation("s")
            for steps in range(60):
                task = asyncio.create_task(chat.append([[steps, part] for part in range(size)]))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await all_connections_work(store)
            assert (await store.verify()).ok
            return [event.data async for event in chat.events()]

    stored = asyncio.run(play())
    whole = sorted({step for step, _ in stored})
    assert stored == [[step, part] for step in whole for part in range(size)]


async def all_connections_work(store: AsyncEventStore) -> None:
    """Use each connection that the store may have at once: one that a cancelled call kept would be missing."""
    async with asyncio.timeout(20):
        blocks = [store.transaction() for _ in range(8)]
        for block in blocks:
            await block.__aenter__()
        for block in blocks:
            await block.__aexit__(None, None, None)
        await asyncio.gather(*(store.conversation(f"fresh {n}").append([n]) for n in range(40)))
