"""Appends of one async store that wait at the same moment go together; each gets the answer it would have alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.errors import CheckViolation
from sets import SET, N, data, held, play, sets

from eventstore import AsyncEventStore, Event, EventStore
from eventstore.errors import IdempotencyConflict, StreamClosed, VersionConflict
from eventstore.log import coalescing


def test_what_waits_goes_together_and_what_is_alone_takes_the_direct_call(url: str, store: EventStore) -> None:
    async def scene(ours: AsyncEventStore) -> None:
        chats = [ours.conversation(f"s{n}") for n in range(N)]
        for chat in chats:
            await chat.append([1])
        assert sets(ours) == (0, 0)
        results = await asyncio.gather(
            *(chat.append([2, n], agent=f"a{n}", run_id="r", metadata={"n": n}) for n, chat in enumerate(chats))
        )
        assert sets(ours) == (1, SET)
        assert [(r.stream, r.first_version, r.last_version, r.deduplicated) for r in results] == [
            (f"s{n}", 3, 4, False) for n in range(N)
        ]
        for n, (chat, result) in enumerate(zip(chats, results, strict=True)):
            events = [event async for event in chat.events(3)]
            assert [e.data for e in events] == [2, n]
            assert tuple(e.event_id for e in events) == result.event_ids
            assert events[-1].position == result.position
            for e in events:
                assert (e.agent, e.run_id, e.metadata) == (f"a{n}", "r", {"n": n})

    play(url, scene)
    assert store.verify().ok


def test_branches_go_in_sets_too(url: str, store: EventStore) -> None:
    async def scene(ours: AsyncEventStore) -> None:
        branches = [await ours.conversation(f"s{n}").fork(f"b{n}") for n in range(N)]
        results = await asyncio.gather(*(branch.append([n]) for n, branch in enumerate(branches)))
        assert sets(ours) == (1, SET)
        assert [r.first_version for r in results] == [3] * N

    play(url, scene)
    assert store.verify().ok
    assert store.verify(f"b{N - 1}").checked == 3


def test_a_refused_append_does_not_touch_its_neighbours(url: str, store: EventStore) -> None:
    async def scene(ours: AsyncEventStore) -> None:
        chats = [ours.conversation(f"s{n}") for n in range(N)]
        await chats[N - 1].append_events([Event(type="stream.closed", data={})])
        await chats[N - 2].append(["k"], key="k")
        await chats[N - 3].append(["k"], key="k")
        appends = [chat.append([n]) for n, chat in enumerate(chats[: N - 4])]
        appends += [
            chats[N - 4].append([0], expected=7),
            chats[N - 3].append(["k"], key="k", expected=99),
            chats[N - 2].append(["other"], key="k"),
            chats[N - 1].append([0]),
        ]
        *fine, conflict, repeat, changed, closed = await asyncio.gather(*appends, return_exceptions=True)
        assert sets(ours) == (1, SET)
        assert [r.last_version for r in fine] == [2] * (N - 4)  # type: ignore[union-attr]
        assert isinstance(conflict, VersionConflict)
        assert (conflict.stream, conflict.expected, conflict.actual) == (f"s{N - 4}", 7, 1)
        assert not isinstance(repeat, BaseException)
        assert (repeat.deduplicated, repeat.first_version) == (True, 2)
        assert isinstance(changed, IdempotencyConflict)
        assert isinstance(closed, StreamClosed)

    play(url, scene)
    assert [data(store, f"s{n}") for n in range(N - 4)] == [[n] for n in range(N - 4)]
    assert store.verify().ok


@pytest.mark.parametrize("named", [{}, {"key": "k"}])
def test_a_stream_that_somebody_holds_is_left_out_and_its_append_waits_by_itself(
    url: str, store: EventStore, named: dict[str, Any]
) -> None:
    async def scene(ours: AsyncEventStore) -> None:
        with held(url, f"s{N - 1}", f"s{N - 2}") as commit:
            tasks = [asyncio.ensure_future(ours.conversation(f"s{n}").append([n], **named)) for n in range(N)]
            await asyncio.wait(tasks[: N - 2])
            assert sets(ours) == (1, SET)
            assert all(task.result().last_version == 2 for task in tasks[: N - 2])
            assert not tasks[N - 1].done()
            assert not tasks[N - 2].done()
            commit()
            assert [(await task).last_version for task in tasks[N - 2 :]] == [3, 3]

    play(url, scene)
    assert data(store, f"s{N - 1}") == ["theirs", N - 1]
    assert store.verify().ok


def test_nobody_waits_long_behind_calls_that_wait_for_somebody_else(url: str, store: EventStore) -> None:
    async def scene(ours: AsyncEventStore) -> None:
        with held(url, *(f"s{n}" for n in range(coalescing.CALLS))) as commit:
            stuck = [asyncio.ensure_future(ours.conversation(f"s{n}").append([n])) for n in range(coalescing.CALLS)]
            for _ in range(3):
                await asyncio.gather(*(ours.conversation(f"s{n}").append([n]) for n in range(coalescing.CALLS, N)))
            assert not any(task.done() for task in stuck)
            commit()
            await asyncio.gather(*stuck)

    play(url, scene)


def test_a_set_that_fails_is_sent_one_by_one(url: str, store: EventStore, db: psycopg.Connection) -> None:
    db.execute("""ALTER TABLE events ADD CONSTRAINT poison CHECK (data::text <> '"poison"')""")

    async def scene(ours: AsyncEventStore) -> None:
        items = ["poison" if n == N - 2 else n for n in range(N)]
        results = await asyncio.gather(
            *(ours.conversation(f"s{n}").append([item]) for n, item in enumerate(items)), return_exceptions=True
        )
        assert sets(ours) == (1, SET)
        assert isinstance(results.pop(N - 2), CheckViolation)
        assert [r.last_version for r in results] == [2] * (N - 1)  # type: ignore[union-attr]

    play(url, scene)
    assert [len(data(store, f"s{n}")) for n in range(N)] == [1] * (N - 2) + [0, 1]
    assert store.verify().ok


def test_a_database_without_the_function_is_served_one_by_one(
    url: str, store: EventStore, db: psycopg.Connection
) -> None:
    async def scene(ours: AsyncEventStore) -> None:
        db.execute("ALTER FUNCTION append_set RENAME TO append_set_of_later")
        results = await asyncio.gather(*(ours.conversation(f"s{n}").append([n]) for n in range(N)))
        assert [r.last_version for r in results] == [2] * N

    play(url, scene)


def test_appends_to_one_stream_are_written_in_the_order_in_which_they_were_made(url: str, store: EventStore) -> None:
    kinds: list[Callable[[Any, int], Awaitable[Any]]] = [
        lambda chat, n: chat.append([n]),
        lambda chat, n: chat.append([n], expected=n + 1),
        lambda chat, n: chat.append([n], key=str(n)),
        lambda chat, n: chat.append_events([Event(type="history.cleared", data={"reason": str(n)})]),
    ]

    async def scene(ours: AsyncEventStore) -> None:
        chats = [ours.conversation(f"s{n}") for n in range(4)]
        await asyncio.gather(*(kinds[(n + c) % 4](chat, n) for n in range(40) for c, chat in enumerate(chats)))
        assert sets(ours)[0] > 0
        large = ours.conversation("s5")
        await asyncio.gather(
            large.append([0]), large.append([1] * 60), large.append(["x" * 200_000]), large.append([3])
        )
        lengths = [len(str(event.data)) async for event in large.events(2)]
        assert lengths == [1] * 61 + [200_000, 1]

    play(url, scene)
    for name in ("s0", "s1", "s2", "s3"):
        stored = [int(n["reason"]) if isinstance(n, dict) else n for n in data(store, name)]
        assert stored == list(range(40))
    assert store.verify().ok


def test_a_unique_key_goes_alone_after_what_was_made_before_it(url: str, store: EventStore) -> None:
    claim = [Event(type="x.claim", data="claim", unique_key="once")]

    async def scene(ours: AsyncEventStore) -> None:
        chat = ours.conversation("s0")
        others = [ours.conversation(f"s{n}").append([n]) for n in range(1, N)]
        await asyncio.gather(chat.append([1]), *others, chat.append([2]), chat.append_events(claim), chat.append([3]))

    play(url, scene)
    stored = data(store, "s0")
    assert sorted(map(str, stored)) == ["1", "2", "3", "claim"]
    assert stored.index("claim") >= 2


def test_a_set_is_of_one_tenant(url: str, store: EventStore) -> None:
    tenants = ["default", "acme", "rival"]

    async def scene(ours: AsyncEventStore) -> None:
        chats = [ours.for_tenant(tenant).conversation(f"s{n}") for n in range(N) for tenant in tenants]
        for chat in chats:
            await chat.append(["first"])
        before = sets(ours)
        await asyncio.gather(*(chat.append([chat.tenant]) for chat in chats))
        assert sets(ours)[0] - before[0] >= len(tenants)

    play(url, scene)
    for tenant in tenants:
        scope = store.for_tenant(tenant)
        for n in range(N):
            assert list(scope.conversation(f"s{n}").events())[-1].data == tenant
        assert scope.verify().ok


def test_sets_are_bounded_in_appends_events_and_bytes(
    url: str, store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coalescing, "MAX_APPENDS", 8)
    monkeypatch.setattr(coalescing, "MAX_EVENTS", 12)
    monkeypatch.setattr(coalescing, "MAX_BYTES", 4000)

    async def scene(ours: AsyncEventStore) -> None:
        for item, appends in ((["x"], 8), (["x"] * 3, 4), (["x" * 1300], 3)):
            before = sets(ours)
            await asyncio.gather(
                *(ours.conversation(f"s{n}").append(item) for n in range(coalescing.CALLS + appends + 1))
            )
            after = sets(ours)
            assert (after[0] - before[0], after[1] - before[1]) == (1, appends), item

    play(url, scene)


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_two_stores_that_meet_on_the_same_streams_lose_and_repeat_nothing(
    url: str, store: EventStore, isolation: str
) -> None:
    """Rows that moved after a set's snapshot, rows that the other one holds, at whatever level the login is set to."""
    rounds = 60 if isolation == "read committed" else 10
    url = make_conninfo(url, options=f"-c default_transaction_isolation={isolation.replace(' ', chr(92) + ' ')}")

    async def scene(ours: AsyncEventStore) -> None:
        async def append(from_: AsyncEventStore, name: str, stream: int) -> None:
            for n in range(rounds):
                key = f"{name} {n}" if n % 2 else None
                result = await from_.conversation(f"s{stream}").append([[name, n]] * (1 + n % 3), key=key)
                assert result.last_version - result.first_version == n % 3

        async with AsyncEventStore.open(url) as other:
            for n in range(N):
                await other.conversation(f"s{n}").append(["other's first"])
            stores = [("a", ours), ("b", other)]
            await asyncio.gather(*(append(from_, name, n) for n in range(N) for name, from_ in stores))
            assert sets(ours)[1] > rounds
            assert sets(other)[1] > rounds

    play(url, scene)
    for n in range(N):
        stored = data(store, f"s{n}")[1:]
        for name in ("a", "b"):
            own = [number for who, number in stored if who == name]
            assert own == [number for number in range(rounds) for _ in range(1 + number % 3)]
    assert store.verify().ok


def test_a_reader_of_the_feed_beside_sets_sees_each_event_once_and_streams_in_order(
    url: str, store: EventStore
) -> None:
    rounds = 40

    async def scene(ours: AsyncEventStore) -> None:
        async def append(stream: int) -> None:
            for n in range(rounds):
                await ours.conversation(f"s{stream}").append([n] * (1 + n % 2))

        async def read() -> list[tuple[str, int]]:
            seen: list[tuple[str, int]] = []
            cursor = None
            total = N + N * rounds * 3 // 2
            while len(seen) < total:
                page = await ours.feed(cursor, limit=50)
                seen += [(event.stream, event.version) for event in page.events]
                cursor = page.cursor
            assert not (await ours.feed(cursor)).events
            return seen

        seen, *_ = await asyncio.gather(read(), *map(append, range(N)))
        for n in range(N):
            assert [v for name, v in seen if name == f"s{n}"] == list(range(1, 2 + rounds * 3 // 2))

    play(url, scene)
