"""Tasks: one in its context, whatever branch speaks of it; what names a closed one is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from contract import Driver, Untouched
from psycopg import errors as pg

from eventstore import ANY, EXISTS, NO_STREAM, Artifact, Event
from eventstore.errors import (
    IdempotencyConflict,
    InvalidEvent,
    InvalidItem,
    TaskClosed,
    TaskExists,
    TaskNotFound,
    TaskStatusConflict,
    VersionConflict,
)

TERMINAL = ["completed", "canceled", "failed", "rejected"]
LONG = "t" * 600
ODD = "\x00\ud800"


class Unmoved(Untouched):
    """Within the block nothing at all is written, tasks included."""

    def _state(self) -> Any:
        rows = "SELECT md5(string_agg(t::text || xmin, '' ORDER BY context_id, task_id)) FROM convstore.tasks t"
        return super()._state(), self._db.execute(rows).fetchone()


def writes(store: Any, chat: Any, task_id: str) -> list[Callable[[], Any]]:
    """Every way to write something that names a task."""
    other = store.conversation("other", context="c")
    fresh = store.conversation("fresh", context="c")
    named = Event(type="x.mine", data=1, task_id=task_id)
    claim = Event(type="x.mine", data=1, task_id=task_id, unique_key="mine")
    return [
        lambda: chat.append([1], task_id=task_id),
        lambda: chat.append([1, 2], task_id=task_id),
        lambda: chat.append([1], task_id=task_id, key="new"),
        lambda: chat.append([1, 2], task_id=task_id, key="new"),
        lambda: chat.append([1], task_id=task_id, expected=chat.head()),
        lambda: other.append([1], task_id=task_id),
        lambda: fresh.append([1], task_id=task_id),
        lambda: fresh.append([1, 2], task_id=task_id, key="new"),
        lambda: chat.append_events([named]),
        lambda: chat.append_events([claim]),
        lambda: chat.append_events([Event(type="x.mine", data=0), named, Event(type="x.mine", data=2)]),
        lambda: chat.append_events([Event(type="history.cleared", data={}, task_id=task_id)]),
        lambda: chat.append_events([Event(type="stream.closed", data={}, task_id=task_id)]),
        lambda: chat.artifacts.publish(Artifact("file:///a", 1, "a"), task_id=task_id),
        *[
            lambda status=status: chat.tasks.set_status(task_id, status)  # type: ignore[misc]
            for status in [*TERMINAL, "submitted", "working", "input-required", "auth-required"]
        ],
        lambda: fresh.tasks.set_status(task_id, "working"),
    ]


@pytest.fixture
def chat(any_store: Any) -> Any:
    """A conversation with an item."""
    chat = any_store.conversation("s", context="c")
    chat.append(["before"])
    any_store.conversation("other", context="c").append(["before"])
    return chat


@pytest.mark.parametrize("status", TERMINAL)
def test_whatever_names_a_closed_task_is_refused_and_changes_nothing(
    any_store: Any, chat: Any, contract_db: psycopg.Connection, status: str
) -> None:
    chat.tasks.open("t", goal="g")
    chat.append([1], task_id="t")
    chat.tasks.set_status("t", status)
    branch = chat.fork("branch", at=1)
    for write in [*writes(any_store, chat, "t"), *writes(any_store, branch, "t")]:
        with Unmoved(contract_db), pytest.raises(TaskClosed) as caught:
            write()
        assert (caught.value.task_id, caught.value.status, caught.value.context) == ("t", status, "c")
        assert "follows='t'" in str(caught.value)
    assert chat.append([2]).last_version == 5
    assert any_store.verify().ok


def test_what_was_written_before_the_end_is_still_repeated(chat: Any, contract_db: psycopg.Connection) -> None:
    chat.tasks.open("t", goal="g", key="open")
    chat.append([1], task_id="t", key="one")
    chat.append([1, 2], task_id="t", key="two")
    chat.tasks.set_status("t", "completed", key="end")
    with Unmoved(contract_db):
        assert chat.append([1], task_id="t", key="one").first_version == 3
        assert chat.append([1, 2], task_id="t", key="two").last_version == 5
        assert chat.tasks.open("t", goal="g", key="open").deduplicated
        assert chat.tasks.open("t", goal="g").deduplicated
        again = chat.tasks.set_status("t", "completed", key="end")
        assert (again.deduplicated, again.last_version) == (True, 6)
        with pytest.raises(IdempotencyConflict):
            chat.append(["changed"], task_id="t", key="one")
        with pytest.raises(IdempotencyConflict):
            chat.tasks.set_status("t", "failed", key="end")


def test_the_history_tells_who_when_why_and_where(chat: Any) -> None:
    assert chat.tasks.list() == []
    opened = chat.tasks.open("t", goal="find it", owner="ann", compensates=["k1", "k2"], agent="boss")
    branch = chat.fork("branch")
    branch.tasks.set_status("t", "working", agent="ann")
    chat.tasks.set_status("t", "input-required", reason="which one?", agent="bob", expected="working")
    for view in (chat, branch):
        (task,) = view.tasks.list()
        assert (task.task_id, task.goal, task.owner, task.compensates) == ("t", "find it", "ann", ["k1", "k2"])
        assert (task.status, task.closed, task.follows) == ("input-required", False, None)
        assert [(c.status, c.stream, c.version, c.agent, c.reason) for c in task.changes] == [
            ("submitted", "s", opened.last_version, "boss", None),
            ("working", "branch", 4, "ann", None),
            ("input-required", "s", 3, "bob", "which one?"),
        ]
        times = [c.recorded_at for c in task.changes]
        assert None not in times
        assert view.tasks.get("t") == task
    assert chat.tasks.get("other") is None
    event = next(iter(chat.events(2, 2)))
    assert (event.type, event.subject, event.task_id) == ("task.opened", "t", "t")


def test_list_at_is_what_the_context_had_said_by_then(any_store: Any, chat: Any) -> None:
    chat.tasks.open("t", goal="g")  # 2
    branch = chat.fork("branch")
    branch.tasks.set_status("t", "working")
    chat.append(["between"])  # 3
    branch.tasks.set_status("t", "completed")
    chat.tasks.open("u", goal="g", follows="t")  # 4
    states = [[(t.task_id, t.status) for t in chat.tasks.list(at=at)] for at in range(5)]
    assert states == [
        [],
        [],
        [("t", "submitted")],
        [("t", "working")],
        [("t", "completed"), ("u", "submitted")],
    ]
    assert [(t.task_id, t.status) for t in branch.tasks.list(at=2)] == states[2]
    first = chat.tasks.list()[0].changes[0].recorded_at
    assert [t.status for t in chat.tasks.list(at=first)] == ["submitted"]
    assert chat.tasks.list(at=first - timedelta(seconds=1)) == []
    for bad in (5, -1, "2", first.replace(tzinfo=None)):
        with pytest.raises(InvalidItem, match="at"):
            chat.tasks.list(at=bad)


def test_opening_again_is_a_repeat_with_the_same_facts_and_refused_with_others(
    chat: Any, contract_db: psycopg.Connection
) -> None:
    first = chat.tasks.open("t", goal="g", compensates=["k"], owner="ann")
    branch = chat.fork("branch", at=1)
    with Unmoved(contract_db):
        for view in (chat, branch):
            again = view.tasks.open("t", goal="g", compensates=["k"], owner="ann", agent="somebody", key="x")
            assert again.deduplicated
            assert (again.stream, again.last_version, again.position) == ("s", first.last_version, first.position)
            for facts in ({"goal": "h"}, {"goal": "g", "owner": "bob"}, {"goal": "g", "compensates": ["k", "l"]}):
                with pytest.raises(TaskExists, match="'goal': 'g'") as caught:
                    view.tasks.open("t", **({"compensates": ["k"], "owner": "ann"} | facts))
                assert caught.value.task_id == "t"
    chat.tasks.set_status("t", "failed")
    assert branch.tasks.open("t", goal="g", compensates=["k"], owner="ann").deduplicated
    assert branch.tasks.open("again", goal="g", follows="t").last_version == 3
    assert branch.tasks.get("again").follows == "t"


def test_what_a_task_follows_has_to_be_there(any_store: Any, chat: Any, contract_db: psycopg.Connection) -> None:
    chat.append([1], task_id="label")
    elsewhere = any_store.conversation("elsewhere", context="d")
    elsewhere.tasks.open("d", goal="g")
    with Unmoved(contract_db):
        for follows in ("label", "d", "none", "self"):
            with pytest.raises(TaskNotFound) as caught:
                chat.tasks.open("self", goal="g", follows=follows)
            assert (caught.value.task_id, caught.value.context) == (follows, "c")
            with pytest.raises(TaskNotFound):
                any_store.conversation("fresh", context="c").tasks.open("self", goal="g", follows=follows)


def test_a_status_is_refused_by_name(chat: Any, contract_db: psycopg.Connection) -> None:
    chat.tasks.open("t", goal="g")
    with Unmoved(contract_db):
        for status in ("done", "Completed", "", None, 1, "input_required"):
            with pytest.raises(InvalidItem, match="completed, canceled"):
                chat.tasks.set_status("t", status)
        with pytest.raises(InvalidItem, match="expected"):
            chat.tasks.set_status("t", "working", expected="open")
        with pytest.raises(TaskNotFound, match=r"tasks\.open"):
            chat.tasks.set_status("none", "working")
        with pytest.raises(TaskStatusConflict) as caught:
            chat.tasks.set_status("t", "completed", expected="working")
        assert (caught.value.expected, caught.value.actual) == ("working", "submitted")
        for bad in (
            {"goal": ""},
            {"goal": "  "},
            {"goal": None},
            {"goal": "g", "follows": ""},
            {"goal": "g", "owner": ""},
        ):
            with pytest.raises(InvalidEvent, match="data"):
                chat.tasks.open("u", **bad)
        for compensates in ("k", None, {"k"}):
            with pytest.raises(InvalidItem, match="compensates"):
                chat.tasks.open("u", goal="g", compensates=compensates)
    for status in ("working", "working", "auth-required", "input-required", "submitted", "rejected"):
        assert not chat.tasks.set_status("t", status).deduplicated


def test_a_task_that_nobody_opened_is_a_label(any_store: Any, chat: Any) -> None:
    chat.append([1], task_id="label")
    chat.append([1, 2], task_id="label")
    any_store.conversation("other", context="c").append([1], task_id="label")
    assert chat.tasks.list() == []
    assert chat.tasks.get("label") is None
    assert any_store.verify().ok
    assert not chat.tasks.open("label", goal="g").deduplicated
    chat.tasks.set_status("label", "completed")
    with pytest.raises(TaskClosed):
        chat.append([1], task_id="label")


@pytest.mark.parametrize("task_id", [LONG, ODD, "é" * 300, "completed x", " "])
def test_any_id_and_any_text_will_do(any_store: Any, chat: Any, task_id: str) -> None:
    chat.tasks.open(task_id, goal=ODD + "g", compensates=[ODD], owner=LONG)
    chat.tasks.set_status(task_id, "working", reason=ODD)
    (task,) = chat.tasks.list()
    assert (task.task_id, task.goal, task.owner, task.changes[1].reason) == (task_id, ODD + "g", LONG, ODD)
    chat.tasks.open("next", goal="g", follows=task_id)
    chat.append([1], task_id=task_id)
    chat.tasks.set_status(task_id, "completed")
    with pytest.raises(TaskClosed):
        chat.append([1], task_id=task_id)
    assert any_store.verify().ok


def test_the_same_id_is_another_task_in_another_context_or_tenant(any_store: Any, chat: Any) -> None:
    chat.tasks.open("t", goal="g")
    chat.tasks.set_status("t", "completed")
    elsewhere = any_store.conversation("elsewhere", context="d")
    assert elsewhere.tasks.list() == []
    elsewhere.append([1], task_id="t")
    assert not elsewhere.tasks.open("t", goal="other").deduplicated
    rival = any_store.for_tenant(any_store.tenant + "-rival").conversation("s", context="c")
    assert rival.tasks.list() == []
    with pytest.raises(TaskNotFound):
        rival.tasks.set_status("t", "working")
    rival.tasks.open("t", goal="theirs")
    assert [t.goal for t in rival.tasks.list()] == ["theirs"]
    assert [t.status for t in chat.tasks.list()] == ["completed"]


def test_a_first_append_can_open_a_task_and_lists_those_of_its_context(any_store: Any, chat: Any) -> None:
    chat.tasks.open("t", goal="g")
    fresh = any_store.conversation("fresh", context="c")
    assert [t.task_id for t in fresh.tasks.list()] == ["t"]
    assert fresh.tasks.set_status("t", "working").last_version == 1
    alone = any_store.conversation("alone")
    assert alone.tasks.list() == []
    assert alone.tasks.open("a", goal="g").last_version == 1
    assert [t.task_id for t in alone.tasks.list()] == ["a"]


def test_a_refused_first_append_that_names_a_task_leaves_no_trace(
    any_store: Any, chat: Any, contract_db: psycopg.Connection
) -> None:
    fresh = any_store.conversation("fresh", context="new")
    with Unmoved(contract_db):
        for expected in (1, EXISTS):
            for items in ([1], [1, 2]):
                with pytest.raises(VersionConflict):
                    fresh.append(items, task_id="t", expected=expected)
        with pytest.raises(TaskNotFound):
            fresh.tasks.set_status("t", "working")
    assert fresh.append([1], task_id="t", expected=NO_STREAM).last_version == 1


class Back(Exception):
    """Ends a transaction without its effects."""


def test_a_rollback_leaves_the_task_as_it_was(any_store: Any, chat: Any, driver: Driver) -> None:
    chat.tasks.open("t", goal="g")
    with pytest.raises(Back), any_store.transaction() as tx:
        inside = tx.conversation("s")
        inside.tasks.open("u", goal="g")
        inside.tasks.set_status("t", "completed")
        with pytest.raises(TaskClosed):
            inside.append([1], task_id="t")
        inside.append(["the refusal left it alive"])
        raise Back
    assert [(t.task_id, t.status) for t in chat.tasks.list()] == [("t", "submitted")]
    assert chat.append([1], task_id="t").last_version == 3
    with driver.connect() as conn:
        mine = any_store.using(conn).conversation("s")
        mine.tasks.set_status("t", "completed")
        mine.tasks.open("u", goal="g", follows="t")
        conn.rollback()
        assert [(t.task_id, t.status) for t in mine.tasks.list()] == [("t", "submitted")]
        mine.append([1], task_id="t")
        mine.tasks.set_status("t", "completed")
        with pytest.raises(TaskClosed):
            mine.append([1], task_id="t")
        conn.commit()
    assert [(t.task_id, t.status) for t in chat.tasks.list()] == [("t", "completed")]
    assert any_store.verify().ok


@pytest.mark.parametrize("level", [2, 3])
def test_at_other_isolation_levels_a_write_works_or_fails_cleanly(
    any_store: Any, chat: Any, driver: Driver, level: int
) -> None:
    chat.tasks.open("t", goal="g")
    for change in (
        lambda: chat.tasks.set_status("t", "completed"),
        lambda: (chat.tasks.open("new", goal="g"), chat.tasks.set_status("new", "failed")),
    ):
        with driver.connect() as conn:
            conn.execute(f"SET TRANSACTION ISOLATION LEVEL {('', '', 'REPEATABLE READ', 'SERIALIZABLE')[level]}")
            conn.execute("SELECT 1 FROM convstore.store")  # the snapshot is taken
            change()
            mine = any_store.using(conn).conversation("other")
            with pytest.raises(pg.SerializationFailure):
                mine.append([1], task_id="t" if not chat.tasks.get("new") else "new")
            conn.rollback()
    with driver.connect() as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        mine = any_store.using(conn).conversation("other")
        mine.tasks.open("mine", goal="g")
        mine.append([1], task_id="mine")
        mine.tasks.set_status("mine", "completed")
        with pytest.raises(TaskClosed):
            mine.append([1], task_id="mine")
        conn.commit()
    assert any_store.verify().ok


def test_events_of_tasks_appended_by_hand_keep_the_rules(chat: Any, contract_db: psycopg.Connection) -> None:
    def opened(task_id: str, **more: Any) -> Event:
        return Event(type="task.opened", data={"task_id": task_id, "goal": "g", **more})

    def changed(task_id: str, status: str) -> Event:
        return Event(type="task.changed", data={"task_id": task_id, "status": status})

    item = Event(type="item.appended", data=1, task_id="t")
    chat.append_events(
        [opened("t"), item, changed("t", "working"), opened("u", follows="t"), changed("t", "completed")]
    )
    assert [(t.task_id, t.status) for t in chat.tasks.list()] == [("t", "completed"), ("u", "submitted")]
    with Unmoved(contract_db):
        with pytest.raises(TaskClosed):
            chat.append_events([changed("u", "working"), changed("t", "working")])
        with pytest.raises(TaskExists):
            chat.append_events([opened("v"), opened("u")])
        with pytest.raises(TaskNotFound):
            chat.append_events([changed("v", "working"), opened("v")])
        for late in (Event(type="x.mine", data=1, task_id="v"), changed("v", "failed")):
            with pytest.raises(TaskClosed):
                chat.append_events([opened("v"), changed("v", "completed"), late])
        with pytest.raises(VersionConflict):
            chat.append_events([changed("u", "working")], expected=3)
        with pytest.raises(InvalidEvent, match="task_id"):
            chat.append_events([Event(type="task.changed", data={"task_id": "u", "status": "failed"}, task_id="v")])
        with pytest.raises(InvalidEvent, match="subject"):
            chat.append_events([Event(type="task.changed", data={"task_id": "u", "status": "failed"}, subject="v")])
    assert chat.append_events([changed("u", "failed")], expected=ANY).last_version == 7
