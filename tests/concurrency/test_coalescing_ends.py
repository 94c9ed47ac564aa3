"""Appends that are cancelled, run out of time, or whose store closes while others wait with them."""

from __future__ import annotations

import asyncio
import gc

import psycopg
import pytest
from sets import FOREVER, SET, WAIT_FOR_A_LOCK, N, data, held, play, sets

from eventstore import AsyncEventStore, Event, EventStore
from eventstore.errors import StoreUnavailable
from eventstore.log import coalescing


@pytest.mark.parametrize("victim", [0, N // 2, N - 1])
def test_a_cancelled_append_is_whole_or_absent_and_its_neighbours_are_written_once(
    url: str, store: EventStore, victim: int
) -> None:
    rounds = 40

    async def scene(ours: AsyncEventStore) -> None:
        for steps in range(rounds):
            tasks = [asyncio.create_task(ours.conversation(f"s{n}").append([[steps, 0], [steps, 1]])) for n in range(N)]
            for _ in range(steps):
                await asyncio.sleep(0)
            tasks[victim].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [n for n, r in enumerate(results) if isinstance(r, BaseException) and n != victim] == []
        await asyncio.gather(*(ours.conversation(f"s{n}").append(["end"]) for n in range(N)))

    play(url, scene)
    whole = [[steps, part] for steps in range(rounds) for part in range(2)]
    for n in range(N):
        stored = data(store, f"s{n}")
        if n != victim:
            assert stored == [*whole, "end"]
        else:
            assert stored == [entry for entry in whole if [entry[0], 0] in stored] + ["end"]
    assert store.verify().ok


def test_an_append_cancelled_while_it_waits_is_not_sent(
    url: str, store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coalescing, "PATIENCE", FOREVER)

    async def scene(ours: AsyncEventStore) -> None:
        with held(url, *(f"s{n}" for n in range(coalescing.CALLS))) as commit:
            tasks = [asyncio.create_task(ours.conversation(f"s{n}").append([n])) for n in range(N)]
            behind = asyncio.create_task(ours.conversation(f"s{N - 1}").append(["behind"]))
            await asyncio.sleep(0)
            tasks[N - 1].cancel()
            tasks[N - 2].cancel()
            await asyncio.wait(tasks[N - 2 :])
            commit()
            await asyncio.gather(*tasks[: N - 2], behind)

    play(url, scene)
    assert data(store, f"s{N - 1}") == ["behind"]
    assert data(store, f"s{N - 2}") == []
    assert data(store, f"s{N - 3}") == [N - 3]


def test_a_turn_that_comes_at_the_moment_of_the_cancellation_goes_to_the_next(url: str, store: EventStore) -> None:
    async def scene(ours: AsyncEventStore) -> None:
        async def first() -> None:
            await ours.conversation("s0").append([0])
            victim.cancel()  # whose turn it is since this append ended, and who does not know it yet

        with held(url, *(f"s{n}" for n in range(1, coalescing.CALLS))) as commit:
            going = [asyncio.create_task(first())]
            going += [asyncio.create_task(ours.conversation(f"s{n}").append([n])) for n in range(1, coalescing.CALLS)]
            victim = asyncio.create_task(ours.conversation("s5").append(["victim"]))
            behind = asyncio.create_task(ours.conversation("s5").append(["behind"]))
            assert (await behind).last_version == 2
            assert victim.cancelled()
            commit()
            await asyncio.gather(*going)

    play(url, scene)
    assert data(store, "s5") == ["behind"]


def test_a_held_streams_append_that_is_cancelled_in_its_set_lets_the_next_one_go(url: str, store: EventStore) -> None:
    async def scene(ours: AsyncEventStore) -> None:
        with held(url, f"s{N - 1}") as commit:
            tasks = [asyncio.create_task(ours.conversation(f"s{n}").append([n])) for n in range(N)]
            behind = asyncio.create_task(ours.conversation(f"s{N - 1}").append(["behind"]))
            while sets(ours) == (0, 0):
                await asyncio.sleep(0)
            assert tasks[N - 1].cancel()
            await asyncio.wait(tasks)
            commit()
            assert (await behind).last_version == 3

    play(url, scene)
    assert data(store, f"s{N - 1}") == ["theirs", "behind"]


def test_what_changes_a_transcript_or_closes_is_in_no_set(url: str, store: EventStore) -> None:
    async def scene(ours: AsyncEventStore) -> None:
        for kind in ("history.cleared", "stream.closed"):
            event = Event(type=kind, data={"reason": "done"})
            await asyncio.gather(*(ours.conversation(f"s{n}").append_events([event]) for n in range(N)))
        assert sets(ours) == (0, 0)

    play(url, scene)
    assert store.verify().ok


def test_what_waits_when_the_store_closes_is_not_done_and_what_is_on_its_way_is_answered(
    url: str, store: EventStore, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coalescing, "PATIENCE", FOREVER)

    async def scene() -> None:
        ours = await AsyncEventStore.open(url)
        for n in range(N):
            await ours.conversation(f"s{n}").append(["before"])
        with held(url, *(f"s{n}" for n in range(coalescing.CALLS))) as commit:
            tasks = [asyncio.create_task(ours.conversation(f"s{n}").append([n])) for n in range(N)]
            tasks += [asyncio.create_task(ours.conversation("s0").append(["behind"]))]
            while len(db.execute(WAIT_FOR_A_LOCK).fetchall()) < coalescing.CALLS:
                await asyncio.sleep(0.005)
            await ours.close()
            waited = await asyncio.gather(*tasks[coalescing.CALLS :], return_exceptions=True)
            assert [type(e) for e in waited] == [StoreUnavailable] * (SET + 1)
            assert {e.outcome for e in waited} == {"not_done"}  # type: ignore[union-attr]
            commit()
            assert [(await task).last_version for task in tasks[: coalescing.CALLS]] == [3] * coalescing.CALLS
        late = ours.conversation("s0").append(["late"])
        with pytest.raises(StoreUnavailable, match="closed"):
            await late

    asyncio.run(scene())
    assert [data(store, f"s{n}") for n in range(coalescing.CALLS, N)] == [[]] * SET
    assert data(store, "s0") == ["theirs", 0]


def test_appends_behind_one_that_is_stuck_end_with_the_time_out_not_one_after_the_other(
    url: str, store: EventStore
) -> None:
    async def scene(ours: AsyncEventStore) -> None:
        chat = ours.conversation("s0")
        with held(url, "s0"):
            results = await asyncio.gather(*(chat.append([n]) for n in range(30)), return_exceptions=True)
            assert {type(r) for r in results} == {StoreUnavailable}
            assert [r.outcome for r in results[2:]] == ["not_done"] * 28  # type: ignore[union-attr]
        assert (await chat.append(["end"])).last_version == 2

    play(url, scene, timeout=1.0)
    assert data(store, "s0") == ["end"]


def test_no_warning_of_asyncio_is_left(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(ours: AsyncEventStore) -> None:
        for _ in range(5):
            tasks = [asyncio.create_task(ours.conversation(f"s{n}").append([n], expected=99)) for n in range(N)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        gc.collect()

    play(url, scene)
    assert [r.getMessage() for r in caplog.records if r.name == "asyncio"] == []
