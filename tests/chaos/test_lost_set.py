"""A set of appends whose connection is lost, or whose server does not answer: each append gets its own right answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from clients import wait_until
from proxy import Moment, Proxy

from eventstore import AppendResult, AsyncEventStore, EventStore
from eventstore.errors import StoreUnavailable, VersionConflict
from eventstore.log import coalescing

N = 10
FIRST = coalescing.CALLS  # of N appends that begin at once so many find a free place; the others go in a set
SET = b"convstore.append_set"
MOMENTS: list[Moment] = ["before", "after"]
SHORT = 2.0


def play(url: str, scene: Callable[[AsyncEventStore], Awaitable[None]], timeout: float = 20.0) -> None:
    """Run a scene with a store that knows N streams."""

    async def run() -> None:
        async with AsyncEventStore.open(url, timeout=timeout) as store:
            for n in range(N):
                await store.conversation(f"s{n}").append(["before"])
            async with asyncio.timeout(90):
                await scene(store)

    asyncio.run(run())


async def all_at_once(ours: AsyncEventStore, **named: Any) -> list[Any]:
    """Append to each stream; all but the first ones go in a set."""
    calls = [ours.conversation(f"s{n}").append([n, n], **named) for n in range(N)]
    return await asyncio.gather(*calls, return_exceptions=True)


def retries(store: AsyncEventStore) -> float | None:
    return store.telemetry.registry.get_sample_value("convstore_retries_total")


def data(store: EventStore, stream: str) -> list[Any]:
    return [event.data for event in store.conversation(stream).events(2)]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("named", [{}, {"key": "k"}, {"expected": 1}])
def test_a_lost_set_is_there_once_and_does_not_show(
    proxy: Proxy, store: EventStore, moment: Moment, named: dict[str, Any]
) -> None:
    async def scene(ours: AsyncEventStore) -> None:
        proxy.cut(moment, SET)
        results = await all_at_once(ours, **named)
        assert (proxy.cuts, retries(ours)) == (1, 1)
        for n, result in enumerate(results):
            assert isinstance(result, AppendResult), result
            assert (result.first_version, result.last_version) == (2, 3)
            assert result.deduplicated == ("key" in named and moment == "after" and n >= FIRST)
            events = list(store.conversation(f"s{n}").events(2))
            assert tuple(event.event_id for event in events) == result.event_ids
            assert events[-1].position == result.position

    play(proxy.url, scene)
    assert [data(store, f"s{n}") for n in range(N)] == [[n, n] for n in range(N)]
    assert store.verify().ok


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_lost_sets_refusals_stay_refusals(proxy: Proxy, store: EventStore, moment: Moment) -> None:
    async def scene(ours: AsyncEventStore) -> None:
        proxy.cut(moment, SET)
        calls = [ours.conversation(f"s{n}").append([n], expected=1 + n % 2) for n in range(N)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(r) for r in results] == [AppendResult, VersionConflict] * (N // 2)

    play(proxy.url, scene)
    assert [data(store, f"s{n}") for n in range(N)] == [[] if n % 2 else [n] for n in range(N)]


def test_a_member_that_is_left_out_after_its_set_was_written_and_lost_finds_what_it_wrote(
    proxy: Proxy, store: EventStore, url: str
) -> None:
    """The answer is lost, and when the set is sent again somebody holds one of its streams."""

    async def scene(ours: AsyncEventStore) -> None:
        proxy.cut("after", SET, then_down=True)
        everything = asyncio.ensure_future(all_at_once(ours))
        await asyncio.to_thread(wait_until, lambda: proxy.is_down, "the set is written")
        assert store.conversation(f"s{N - 1}").head() == 3
        with EventStore.open(url) as other, psycopg.connect(url) as conn:
            other.using(conn).conversation(f"s{N - 1}").append(["theirs"])
            proxy.up()
            results = await everything
            conn.commit()
        last = results[N - 1]
        assert (last.first_version, last.last_version, last.deduplicated) == (2, 3, False)

    play(proxy.url, scene)
    assert data(store, f"s{N - 1}") == [N - 1, N - 1, "theirs"]
    assert store.verify().ok


@pytest.mark.parametrize(("moment", "written"), [("before", False), ("after", True)])
def test_where_the_server_stays_away_each_append_is_unknown_and_can_be_repeated(
    proxy: Proxy, store: EventStore, moment: Moment, written: bool
) -> None:
    async def scene(ours: AsyncEventStore) -> None:
        proxy.cut(moment, SET, then_down=True)
        results = await all_at_once(ours, key="k")
        members = results[FIRST:]
        assert [type(r) for r in members] == [StoreUnavailable] * (N - FIRST)
        assert len({id(r) for r in members}) == N - FIRST
        assert {r.outcome for r in members} == {"unknown"}
        proxy.up()
        for n in range(FIRST, N):
            result = await until_it_answers(lambda n=n: ours.conversation(f"s{n}").append([n, n], key="k"))
            assert result.deduplicated == written

    play(proxy.url, scene, timeout=SHORT)
    assert [data(store, f"s{n}") for n in range(FIRST, N)] == [[n, n] for n in range(FIRST, N)]
    assert store.verify().ok


def test_where_nobody_answers_each_append_is_unknown(proxy: Proxy, store: EventStore) -> None:
    async def scene(ours: AsyncEventStore) -> None:
        proxy.cut("never", SET)
        results = await all_at_once(ours, key="k")
        assert [getattr(r, "outcome", None) for r in results[FIRST:]] == ["unknown"] * (N - FIRST)
        again = await all_at_once(ours, key="k")
        assert [r.last_version for r in again] == [3] * N

    play(proxy.url, scene, timeout=SHORT)
    assert [data(store, f"s{n}") for n in range(N)] == [[n, n] for n in range(N)]


def test_without_a_connection_nothing_is_done(url: str, store: EventStore) -> None:
    async def scene(ours: AsyncEventStore) -> None:
        blocks = [ours.transaction() for _ in range(8)]  # all that the pool has
        for block in blocks:
            await block.__aenter__()
        results = await all_at_once(ours)
        assert [getattr(r, "outcome", None) for r in results] == ["not_done"] * N
        for block in blocks:
            await block.__aexit__(None, None, None)
        assert [r.last_version for r in await all_at_once(ours)] == [3] * N

    play(url, scene, timeout=1.0)
    assert [data(store, f"s{n}") for n in range(N)] == [[n, n] for n in range(N)]


def test_what_was_acknowledged_while_connections_were_killed_is_there_once(
    url: str, store: EventStore, db: psycopg.Connection
) -> None:
    rounds = 40

    async def scene(ours: AsyncEventStore) -> None:
        writing = True
        acknowledged = 0

        async def append(stream: int) -> None:
            nonlocal acknowledged
            for n in range(rounds):
                await ours.conversation(f"s{stream}").append([n], key=str(n) if n % 2 else None)
                acknowledged += 1

        async def kill() -> None:
            others = "datname = current_database() AND application_name = 'convstore' AND pid <> pg_backend_pid()"
            while writing:
                db.execute(
                    f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others} AND state = 'active'"
                )
                before = acknowledged
                while writing and acknowledged < before + N:  # else it could kill each new try
                    await asyncio.sleep(0.001)

        killing = asyncio.ensure_future(kill())
        await asyncio.gather(*map(append, range(N)))
        writing = False
        await killing
        assert retries(ours)

    play(url, scene)
    assert [data(store, f"s{n}") for n in range(N)] == [list(range(rounds))] * N
    assert store.verify().ok


async def until_it_answers(call: Callable[[], Awaitable[AppendResult]]) -> AppendResult:
    """Repeat a call while the store has not found its server again."""
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(0.01)
