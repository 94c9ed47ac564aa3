"""Writes that meet the end of their task, openings and publications that meet: stepped a statement at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from stepping import Actor, together, until_waits

from eventstore import Artifact, Event, EventStore
from eventstore.errors import (
    ArtifactConflict,
    TaskClosed,
    TaskExists,
    TaskNotFound,
    TaskStatusConflict,
)

URI = "file:///a"


@pytest.fixture
def task(store: EventStore) -> str:
    """A task, opened in stream s; and stream o in the same context."""
    store.conversation("s", context="c").tasks.open("t", goal="g")
    store.conversation("o", context="c").append(["before"])
    return "t"


def chat(actor: Actor, name: str) -> Any:
    return actor.store.conversation(name, context="c")


def write(actor: Actor, kind: str, task_id: str) -> Callable[[], Any]:
    """A write that names the task, in stream o."""
    return {
        "one": lambda: chat(actor, "o").append([1], task_id=task_id),
        "many": lambda: chat(actor, "o").append([1, 2], task_id=task_id),
        "keyed": lambda: chat(actor, "o").append([1], task_id=task_id, key="k"),
        "new": lambda: chat(actor, "new").append([1], task_id=task_id),
        "mixed": lambda: chat(actor, "o").append_events(
            [Event(type="x.a", data=1, task_id="label"), Event(type="x.a", data=1, task_id=task_id)]
        ),
        "artifact": lambda: chat(actor, "o").artifacts.publish(Artifact(URI, 1, "a"), task_id=task_id),
        "status": lambda: chat(actor, "o").tasks.set_status(task_id, "working"),
    }[kind]


KINDS = ["one", "many", "keyed", "new", "mixed", "artifact", "status"]


def in_order(store: EventStore, task_id: str) -> None:
    """Nothing that names the task was committed after its end: by position, which such writes draw under its lock."""
    assert store.verify().ok
    events = [e for e in store.feed().events if e.task_id == task_id]
    assert events[-1].type == "task.changed"
    assert events[-1].data["status"] == "completed"


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_that_comes_first_is_waited_for(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, task: str, kind: str
) -> None:
    a.begins(write(a, kind, task)).result(20)
    end = b.begins(lambda: chat(b, "s").tasks.set_status(task, "completed"))
    until_waits(db, b, for_=a)
    a.commit()
    end.result(20)
    b.commit()
    in_order(store, task)
    assert any(e.stream in ("o", "new") and e.task_id == task for e in store.feed().events)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ends", ["commits", "rolls back"])
def test_a_write_that_comes_second_waits_and_is_refused_where_the_end_stands(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, task: str, kind: str, ends: str
) -> None:
    before = store.conversation("o").head()
    a.begins(lambda: chat(a, "s").tasks.set_status(task, "completed")).result(20)
    late = b.begins(write(b, kind, task))
    until_waits(db, b, for_=a)
    if ends == "commits":
        a.commit()
        with pytest.raises(TaskClosed):
            late.result(20)
        b.commit()
        assert store.conversation("o").head() == before
        assert [s.name for s in store.conversations().streams] == ["o", "s"]
        in_order(store, task)
    else:
        a.rollback()
        late.result(20)
        b.commit()
        assert store.verify().ok
        assert store.conversation("s").tasks.get(task).status != "completed"  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["one", "many", "new"])
def test_a_label_in_flight_is_waited_for_when_it_is_opened_and_closed(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, task: str, kind: str
) -> None:
    a.begins(write(a, kind, "label")).result(20)
    opening = b.begins(lambda: chat(b, "s").tasks.open("label", goal="g"))
    until_waits(db, b, for_=a)
    a.commit()
    opening.result(20)
    chat(b, "s").tasks.set_status("label", "completed")
    b.commit()
    in_order(store, "label")
    with pytest.raises(TaskClosed):
        write(a, kind, "label")()


def test_a_label_that_waits_for_an_opening_sees_what_came_of_it(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, task: str
) -> None:
    a.begins(lambda: chat(a, "s").tasks.open("new", goal="g")).result(20)
    a.begins(lambda: chat(a, "s").tasks.set_status("new", "completed")).result(20)
    late = b.begins(write(b, "one", "new"))
    until_waits(db, b, for_=a)
    a.commit()
    with pytest.raises(TaskClosed):
        late.result(20)
    b.commit()
    in_order(store, "new")


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("stream", ["s", "o", "new"])
@pytest.mark.parametrize("ends", ["commits", "rolls back"])
def test_of_two_openings_one_opens(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, task: str, same: bool, stream: str, ends: str
) -> None:
    first = a.begins(lambda: chat(a, "s").tasks.open("u", goal="g")).result(20)
    second = b.begins(lambda: chat(b, stream).tasks.open("u", goal="g" if same else "h"))
    until_waits(db, b, for_=a)
    if ends == "rolls back":
        a.rollback()
        assert not second.result(20).deduplicated
    else:
        a.commit()
        if same:
            got = second.result(20)
            assert (got.deduplicated, got.stream, got.position) == (True, "s", first.position)
        else:
            with pytest.raises(TaskExists):
                second.result(20)
    b.commit()
    (opened,) = [e for e in store.feed(types=["task.opened"]).events if e.data["task_id"] == "u"]
    assert opened.data["goal"] == ("g" if same or ends == "commits" else "h")
    assert store.verify().ok


@pytest.mark.parametrize("expected", [None, "submitted"])
def test_of_two_terminal_statuses_the_first_stands(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, task: str, expected: str | None
) -> None:
    a.begins(lambda: chat(a, "s").tasks.set_status(task, "completed", expected=expected)).result(20)
    second = b.begins(lambda: chat(b, "o").tasks.set_status(task, "failed", expected=expected))
    until_waits(db, b, for_=a)
    a.commit()
    with pytest.raises(TaskClosed, match="completed"):
        second.result(20)
    b.commit()
    in_order(store, task)


def test_of_two_that_expect_the_same_state_one_wins(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, task: str
) -> None:
    a.begins(lambda: chat(a, "s").tasks.set_status(task, "working", expected="submitted")).result(20)
    second = b.begins(lambda: chat(b, "o").tasks.set_status(task, "input-required", expected="submitted"))
    until_waits(db, b, for_=a)
    a.commit()
    with pytest.raises(TaskStatusConflict):
        second.result(20)
    b.commit()
    assert store.conversation("s").tasks.get(task).status == "working"  # type: ignore[union-attr]


def test_a_repeat_while_the_first_is_in_flight_gets_its_result(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, task: str
) -> None:
    first = a.begins(lambda: chat(a, "s").tasks.set_status(task, "completed", key="end")).result(20)
    again = b.begins(lambda: chat(b, "s").tasks.set_status(task, "completed", key="end"))
    until_waits(db, b, for_=a)
    a.commit()
    got = again.result(20)
    b.commit()
    assert (got.deduplicated, got.position) == (True, first.position)


@pytest.mark.parametrize("digest", ["d", "e", None])
@pytest.mark.parametrize("ends", ["commits", "rolls back"])
def test_of_two_publications_of_a_version_one_is_published(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, task: str, digest: str | None, ends: str
) -> None:
    first = a.begins(lambda: chat(a, "s").artifacts.publish(Artifact(URI, 1, "a", "d"))).result(20)
    second = b.begins(lambda: chat(b, "o").artifacts.publish(Artifact(URI, 1, "a", digest)))
    until_waits(db, b, for_=a)
    if ends == "rolls back":
        a.rollback()
        assert not second.result(20).deduplicated
    else:
        a.commit()
        if digest == "d":
            got = second.result(20)
            assert (got.deduplicated, got.stream, got.position) == (True, "s", first.position)
        else:
            with pytest.raises(ArtifactConflict) as caught:
                second.result(20)
            assert (caught.value.stored, caught.value.given) == ("d", digest)
        assert chat(b, "o").append(["alive"]).last_version == 2
    b.commit()
    assert len(store.feed(types=["artifact.published"]).events) == 1


CONTROL = """SELECT outcome FROM convstore.append_control(
    0, NULL, 'default', 'o', NULL, false, ARRAY[gen_random_uuid()], ARRAY[1]::smallint[], ARRAY[1]::smallint[],
    ARRAY['history.cleared'], NULL, NULL, NULL, ARRAY['t'], NULL, NULL, NULL, ARRAY['{}']::json[])"""


@pytest.mark.parametrize("kind", ["one", "many", "keyed", "status", "artifact", "control"])
def test_who_waits_for_a_task_holds_no_streams_row(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, task: str, kind: str
) -> None:
    """One order of locks everywhere, tasks first: so writers of tasks and of streams don't wait in a circle."""
    a.begins(lambda: chat(a, "s").tasks.set_status(task, "working")).result(20)
    late = b.begins(lambda: b.conn.execute(CONTROL).fetchone()) if kind == "control" else b.begins(write(b, kind, task))
    until_waits(db, b, for_=a)
    db.execute("SELECT FROM streams WHERE name = 'o' FOR UPDATE NOWAIT")
    a.commit()
    late.result(20)
    b.commit()
    assert store.verify().ok


def test_appends_of_one_task_in_two_streams_do_not_wait_for_each_other(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, task: str
) -> None:
    a.begins(lambda: chat(a, "s").append([1], task_id=task)).result(20)
    b.begins(lambda: chat(b, "o").append([1], task_id=task)).result(20)
    b.commit()
    a.commit()
    assert store.verify().ok


def test_who_comes_after_a_waiting_change_does_not_pass_it(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, make_actor: Callable[..., Actor], task: str
) -> None:
    """Shared row locks are handed on past who waits to change the row: busy writers would never let a task end."""
    c = make_actor()
    a.begins(lambda: chat(a, "o").append([1], task_id=task)).result(20)
    end = b.begins(lambda: chat(b, "s").tasks.set_status(task, "completed"))
    until_waits(db, b, for_=a)
    late = c.begins(lambda: chat(c, "other").append([1], task_id=task))
    until_waits(db, c, for_=b)
    a.begins(lambda: chat(a, "o").append([2], task_id=task)).result(20)  # who was there before goes on
    a.commit()
    end.result(20)
    b.commit()
    with pytest.raises(TaskClosed):
        late.result(20)
    in_order(store, task)


def test_writers_beside_the_end_of_their_task_never_pass_it_nor_deadlock(store: EventStore, url: str) -> None:
    """Many writers on many streams, each with several tasks in its batches; one ends the tasks one after the other."""
    names = [f"t{n}" for n in range(6)]
    for name in names:
        store.conversation("s", context="c").tasks.open(name, goal="g")
    refused: set[str] = set()

    def writes(number: int) -> None:
        mine = store.conversation(f"w{number}", context="c")
        for turn in range(60):
            given = [names[(number + turn) % 6], names[(number * 5 + turn * 3) % 6]]
            try:
                mine.append_events([Event(type="x.a", data=turn, task_id=name) for name in given])
                mine.append([turn], task_id=given[0])
            except TaskClosed as e:
                refused.add(e.task_id)

    def ends() -> None:
        for name in names:
            store.conversation("ender", context="c").tasks.set_status(name, "working")
            store.conversation("ender", context="c").tasks.set_status(name, "completed")

    results = together([*(lambda number=number: writes(number) for number in range(6)), ends])  # type: ignore[misc]
    assert [r for r in results if r is not None] == []
    assert refused
    report = store.verify()
    assert report.ok, report.first_bad
    after: str | None = None
    closed: set[str] = set()
    while (page := store.feed(after)).events:
        for event in page.events:
            assert event.task_id not in closed
            if event.type == "task.changed" and event.data["status"] == "completed":
                closed.add(event.data["task_id"])
        after = page.cursor
    assert closed == set(names)


def test_a_task_of_another_context_is_not_touched(store: EventStore, task: str) -> None:
    with pytest.raises(TaskNotFound):
        store.conversation("x", context="d").tasks.set_status(task, "failed")
