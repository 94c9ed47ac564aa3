"""Conversations changed by several at once, step by step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from stepping import Actor, together, until_waits

from eventstore import EventStore
from eventstore.errors import CompactionConflict


def summary(items: list[Any]) -> Any:
    return {"of": items}


def shortened(items: list[Any]) -> list[Any]:
    return [summary(items)]


class Slow:
    """A compactor that waits until it may go on; ``asked`` once it was called."""

    def __init__(self) -> None:
        self.asked, self.may_end = threading.Event(), threading.Event()

    def __call__(self, items: list[Any]) -> list[Any]:
        self.asked.set()
        assert self.may_end.wait(20)
        return [summary(items)]


@pytest.fixture
def chat(store: EventStore) -> Any:
    """The items 1 to 6."""
    made = store.conversation("a")
    made.append([1, 2, 3, 4, 5, 6])
    return made


@pytest.fixture
def started(chat: Any) -> Iterator[Callable[..., tuple[Slow, Future[Any]]]]:
    """Start compactions, each in a thread of its own."""
    with ThreadPoolExecutor(4) as threads:
        made: list[Slow] = []

        def start(**named: Any) -> tuple[Slow, Future[Any]]:
            slow = Slow()
            made.append(slow)
            future = threads.submit(chat.compact, slow, **named)
            assert slow.asked.wait(20)
            return slow, future

        yield start
        for slow in made:
            slow.may_end.set()


# --- compaction against everything else ---


def test_what_is_appended_while_a_summary_is_made_survives_it(chat: Any, started: Any) -> None:
    slow, future = started(keep_last=1)
    for n in (7, 8):
        chat.append([n])
    chat.responses.record("r", receipt=chat.model_input().receipt)
    slow.may_end.set()
    assert future.result(20).covers == (1, 5)
    assert chat.transcript() == [summary([1, 2, 3, 4, 5]), 6, 7, 8]
    assert chat.originals() == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("change", ["clear", "pop", "retract", "compact"])
def test_what_is_changed_while_a_summary_is_made_is_not_undone(chat: Any, started: Any, change: str) -> None:
    slow, future = started()
    {
        "clear": chat.clear,
        "pop": chat.pop,
        "retract": lambda: chat.retract(versions=[(2, 2)]),
        "compact": lambda: chat.compact(shortened, covers=(1, 2)),
    }[change]()
    after, head = chat.transcript(), chat.head()
    slow.may_end.set()
    with pytest.raises(CompactionConflict):
        future.result(20)
    assert (chat.transcript(), chat.head()) == (after, head)


@pytest.mark.parametrize("change", ["clear", "pop", "compact"])
def test_a_change_that_is_not_committed_yet_is_waited_for(
    store: EventStore, chat: Any, url: str, db: psycopg.Connection, change: str
) -> None:
    """The compaction is decided before the change, and reaches the server while that is in flight."""
    with Actor(store, url) as one, Actor(store, url) as other:
        mine = one.store.conversation("a")
        {"clear": mine.clear, "pop": mine.pop, "compact": lambda: mine.compact(shortened)}[change]()
        future = other.begins(lambda: other.store.conversation("a").compact(shortened))
        until_waits(db, other, for_=one)
        one.commit()
        with pytest.raises(CompactionConflict):
            future.result(20)
        other.rollback()


def test_a_compaction_that_waits_for_a_clear_that_is_rolled_back_goes_through(
    store: EventStore, chat: Any, url: str, db: psycopg.Connection
) -> None:
    with Actor(store, url) as one, Actor(store, url, autocommit=True) as other:
        one.store.conversation("a").clear()
        future = other.begins(lambda: other.store.conversation("a").compact(shortened))
        until_waits(db, other, for_=one)
        one.rollback()
        assert future.result(20).version == 8
    assert chat.transcript() == [summary([1, 2, 3, 4, 5, 6])]


def test_a_fork_while_a_summary_is_made_has_the_items_and_not_the_summary(chat: Any, started: Any) -> None:
    slow, future = started()
    branch = chat.fork("b")
    slow.may_end.set()
    done = future.result(20)
    assert branch.transcript() == [1, 2, 3, 4, 5, 6]
    assert chat.transcript() == [summary([1, 2, 3, 4, 5, 6])]
    assert chat.fork("between", at=done.version - 1).transcript() == [1, 2, 3, 4, 5, 6]
    branch.clear()
    assert chat.originals() == [1, 2, 3, 4, 5, 6]


def test_of_two_compactions_at_once_one_wins(chat: Any, started: Any) -> None:
    runs = [started(), started(keep_last=2)]
    for slow, _ in runs:
        slow.may_end.set()
    ended = [future.exception(20) for _, future in runs]
    assert sorted(type(error).__name__ for error in ended) == ["CompactionConflict", "NoneType"]
    assert chat.originals() == [1, 2, 3, 4, 5, 6]


def test_of_two_compactions_with_one_key_the_slower_gets_the_fasters_result(chat: Any, started: Any) -> None:
    runs = [started(key="k"), started(key="k")]
    results = []
    for slow, future in runs:
        slow.may_end.set()
        results.append(future.result(20))
    assert [result.version for result in results] == [8, 8]
    assert [result.deduplicated for result in results] == [False, True]
    assert chat.transcript() == [summary([1, 2, 3, 4, 5, 6])]


# --- pops ---


def test_two_pops_at_once_take_two_items(store: EventStore, chat: Any, url: str, db: psycopg.Connection) -> None:
    with Actor(store, url) as one, Actor(store, url, autocommit=True) as other:
        assert one.store.conversation("a").pop() == 6
        future = other.begins(other.store.conversation("a").pop)  # it finds 6 too, and waits
        until_waits(db, other, for_=one)
        one.commit()
        assert future.result(20) == 5
    assert chat.transcript() == [1, 2, 3, 4]
    assert [e.data for e in chat.events(1, 6)] == [1, 2, 3, 4, 5, 6]  # the log still has both


def test_a_pop_that_waits_for_one_that_is_rolled_back_takes_its_item(
    store: EventStore, chat: Any, url: str, db: psycopg.Connection
) -> None:
    with Actor(store, url) as one, Actor(store, url, autocommit=True) as other:
        assert one.store.conversation("a").pop() == 6
        future = other.begins(other.store.conversation("a").pop)
        until_waits(db, other, for_=one)
        one.rollback()
        assert future.result(20) == 6
    assert chat.transcript() == [1, 2, 3, 4, 5]


def test_a_repeat_that_waits_behind_its_first_is_that_one(
    store: EventStore, chat: Any, url: str, db: psycopg.Connection
) -> None:
    """Also where it had decided on another item: the first one came after another pop, in one transaction."""
    with Actor(store, url) as one, Actor(store, url, autocommit=True) as other:
        assert (one.store.conversation("a").pop(), one.store.conversation("a").pop(key="k")) == (6, 5)
        future = other.begins(lambda: other.store.conversation("a").pop(key="k"))  # it would take 6
        until_waits(db, other, for_=one)
        one.commit()
        assert future.result(20) == 5
    assert chat.transcript() == [1, 2, 3, 4]


def test_a_pop_beside_an_append_takes_what_was_last_when_it_looked(
    store: EventStore, chat: Any, url: str, db: psycopg.Connection
) -> None:
    with Actor(store, url) as one, Actor(store, url, autocommit=True) as other:
        one.append("a", [7]).result(20)
        future = other.begins(other.store.conversation("a").pop)
        until_waits(db, other, for_=one)
        one.commit()
        assert future.result(20) == 6
    assert chat.transcript() == [1, 2, 3, 4, 5, 7]


def test_many_pops_and_appends_at_once_lose_nothing(store: EventStore) -> None:
    chat = store.conversation("many")
    chat.append(list(range(40)))
    calls: list[Callable[[], Any]] = [chat.pop] * 20 + [lambda n=n: chat.append([f"new {n}"]) for n in range(10)]
    done = together(calls)
    popped = done[:20]
    assert not [each for each in done if isinstance(each, BaseException)]
    everything = [*popped, *chat.transcript()]
    assert sorted(map(str, everything)) == sorted(map(str, [*range(40), *(f"new {n}" for n in range(10))]))
    assert store.verify().ok


# --- clocks ---


@pytest.mark.parametrize("ahead", [timedelta(days=1), timedelta(days=1000)])
def test_a_clock_that_stands_still_or_went_back_changes_no_order(
    store: EventStore, chat: Any, db: psycopg.Connection, ahead: timedelta
) -> None:
    """The stream's time lies ahead of the server's clock, as after that was set back: what follows has equal times."""
    then = datetime.now(UTC) + ahead
    db.execute("UPDATE streams SET recorded_at = %s", [then])
    chat.append([7])
    chat.pop()
    chat.append([8, 9])
    chat.compact(shortened, keep_last=2)
    branch = chat.fork("b")
    branch.append([10])
    branch.pop()
    times = [event.recorded_at for event in branch.events(7)]
    assert set(times) == {then}
    assert [event.version for event in branch.events()] == list(range(1, branch.head() + 1))
    assert chat.transcript() == [summary([1, 2, 3, 4, 5, 6]), 8, 9]
    for stream in (chat, branch):
        assert stream.version_at(then) == stream.head()
        assert stream.transcript(at=then) == stream.transcript()
        assert stream.version_at(then - timedelta(microseconds=1)) == 6
        assert stream.transcript(at=then - timedelta(microseconds=1)) == [1, 2, 3, 4, 5, 6]
    db.execute("UPDATE streams SET recorded_at = %s", [datetime.now(UTC) - timedelta(days=1)])  # it ran ahead, once
    chat.append([11])
    assert chat.transcript()[-1] == 11
    assert chat.pop() == 11
