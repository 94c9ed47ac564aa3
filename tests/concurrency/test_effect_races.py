"""Racers for one effect: whatever the order, the tool is called once and one outcome counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from stepping import together, until

from eventstore import EventStore
from eventstore.errors import (
    EffectCompensated,
    EffectFailed,
    EffectPending,
    EffectRefused,
    IdempotencyConflict,
)


class Tool:
    """Counts what it really did."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calls = 0

    def __call__(self) -> int:
        with self._lock:
            self.calls += 1
            return self.calls


def run(store: EventStore, stream: str, tool: Callable[[], Any], key: str = "k") -> Any:
    return store.conversation(stream).effects.run("t", tool, key=key)


def expire(db: psycopg.Connection) -> None:
    db.execute("UPDATE events SET recorded_at = recorded_at - interval '1 year' WHERE type = 'effect.intended'")


@pytest.fixture
def branches(store: EventStore) -> list[str]:
    chat = store.conversation("main", context="ctx")
    chat.append(["hello"])
    return ["main", chat.fork("a", at=1).name, chat.fork("b", at=0).name, chat.fork("c", at=1).name]


@contextmanager
def held(url: str, db: psycopg.Connection) -> Iterator[Callable[[int], None]]:
    """Keep who claims a unique key in the context waiting; the function given polls until so many do."""
    with psycopg.connect(url, options="-c search_path=convstore") as conn:
        conn.execute("SELECT FROM contexts FOR UPDATE")
        query = (
            "SELECT count(*) >= %s FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        yield lambda number: until(db, query, [number], f"{number} wait for the context")
        conn.rollback()


def outcomes(futures: list[Future[Any]]) -> list[Any]:
    return [future.exception(30) or future.result() for future in futures]


def test_of_racers_from_all_branches_held_at_the_same_step_one_calls(
    store: EventStore, url: str, db: psycopg.Connection, branches: list[str]
) -> None:
    tool = Tool()
    with ThreadPoolExecutor(len(branches)) as threads:
        with held(url, db) as waiting:
            futures = [threads.submit(run, store, branch, tool) for branch in branches]
            waiting(len(branches))
        got = outcomes(futures)
    assert tool.calls == 1
    assert 1 in got
    assert all(one == 1 or isinstance(one, EffectPending) for one in got)
    assert [run(store, branch, tool) for branch in branches] == [1] * len(branches)
    assert len(store.conversation("main").effects.find("k").versions) == 2


def test_of_racers_after_a_failure_one_makes_the_next_attempt(
    store: EventStore, url: str, db: psycopg.Connection, branches: list[str]
) -> None:
    def declined() -> None:
        raise EffectFailed

    with pytest.raises(EffectFailed):
        run(store, "main", declined)
    tool = Tool()
    with ThreadPoolExecutor(len(branches)) as threads:
        with held(url, db) as waiting:
            futures = [threads.submit(run, store, branch, tool) for branch in branches]
            waiting(len(branches))
        got = outcomes(futures)
    assert tool.calls == 1
    assert all(one == 1 or isinstance(one, EffectPending) for one in got)
    assert store.conversation("main").effects.find("k").attempt == 2


def test_stores_of_their_own_that_race_without_steps_call_each_effect_once(
    store: EventStore, url: str, branches: list[str]
) -> None:
    tools = {f"k{n}": Tool() for n in range(25)}
    with EventStore.open(url) as second, EventStore.open(url) as third:
        stores = [store, second, third, store]

        def work(own: EventStore, branch: str) -> None:
            for key, tool in tools.items():
                while True:
                    try:
                        assert run(own, branch, tool, key) == 1
                    except EffectPending:
                        continue
                    break

        assert together([lambda s=s, b=b: work(s, b) for s, b in zip(stores, branches, strict=True)]) == [None] * 4
    assert {key: tool.calls for key, tool in tools.items()} == dict.fromkeys(tools, 1)


@pytest.mark.parametrize("outcome_first", [True, False])
def test_of_a_late_outcome_and_a_resolution_one_counts_and_the_other_is_told(
    store: EventStore, url: str, db: psycopg.Connection, branches: list[str], outcome_first: bool
) -> None:
    desk = store.conversation("a").effects
    late = store.conversation("main").effects.guard("t", key="k").__enter__()
    expire(db)
    calls = [lambda: late.succeed("late"), lambda: desk.resolve("k", succeeded=False)]
    with ThreadPoolExecutor(2) as threads:
        with held(url, db) as waiting:
            futures = []
            for number, call in enumerate(calls if outcome_first else calls[::-1], 1):
                futures.append(threads.submit(call))
                waiting(number)
        got = outcomes(futures)
    outcome, resolution = got if outcome_first else got[::-1]
    effect = desk.find("k")
    if effect.state == "succeeded":
        assert outcome is None
        assert isinstance(resolution, IdempotencyConflict)
    else:
        assert effect.state == "failed"
        assert isinstance(outcome, EffectRefused)
        assert resolution.state == "failed"
    assert len(effect.versions) == 2


def test_of_two_resolutions_that_differ_one_counts(
    store: EventStore, url: str, db: psycopg.Connection, branches: list[str]
) -> None:
    store.conversation("main").effects.guard("t", key="k").__enter__()
    expire(db)
    with ThreadPoolExecutor(3) as threads:
        with held(url, db) as waiting:
            futures = [
                threads.submit(store.conversation(branch).effects.resolve, "k", said)
                for branch, said in zip(branches, (True, False, True), strict=False)
            ]
            waiting(3)
        got = outcomes(futures)
    state = store.conversation("main").effects.find("k").state
    for said, one in zip((True, False, True), got, strict=True):
        if said == (state == "succeeded"):
            assert one.state == state
        else:
            assert isinstance(one, IdempotencyConflict)


def test_beside_an_undoing_a_run_gets_the_result_or_is_told_and_never_calls_again(
    store: EventStore, url: str, db: psycopg.Connection, branches: list[str]
) -> None:
    tool = Tool()
    run(store, "main", tool)
    with ThreadPoolExecutor(4) as threads:
        with held(url, db) as waiting:
            futures = [
                threads.submit(store.conversation("a").effects.compensate, "k", "one"),
                threads.submit(store.conversation("b").effects.compensate, "k", "other"),
                threads.submit(run, store, "main", tool),
                threads.submit(run, store, "c", tool),
            ]
            waiting(4)
        one, other, *runs = outcomes(futures)
    winner, loser = (one, other) if not isinstance(one, Exception) else (other, one)
    assert winner.state == "compensated"
    assert isinstance(loser, IdempotencyConflict)
    assert all(got == 1 or isinstance(got, EffectCompensated) for got in runs)
    with pytest.raises(EffectCompensated):
        run(store, "c", tool)
    assert tool.calls == 1


def test_an_outcome_that_finds_its_context_locked_is_sent_again(
    store: EventStore, url: str, db: psycopg.Connection, branches: list[str]
) -> None:
    waiting = (
        "SELECT query_start FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock' AND query_start > %s"
    )
    impatient = make_conninfo(url, options="-c lock_timeout=100ms")
    with (
        EventStore.open(impatient) as other,
        psycopg.connect(url, options="-c search_path=convstore") as conn,
        ThreadPoolExecutor(1) as thread,
    ):

        def call() -> str:
            conn.execute("SELECT FROM contexts FOR UPDATE")
            return "ok"

        running = thread.submit(run, other, "main", call)
        try:
            since = datetime.fromtimestamp(0, UTC)
            for _ in range(3):  # each a statement of its own: those before it were refused
                began: list[datetime] = []
                while not began:
                    assert not running.done(), running.exception()
                    began = [row[0] for row in db.execute(waiting, [since]).fetchall()]
                since = began[0]
        finally:
            conn.rollback()
        assert running.result(20) == "ok"
