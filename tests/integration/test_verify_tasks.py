"""The tasks' rows against the log: any row that does not follow from the events is found."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from eventstore import EventStore


@pytest.fixture
def kept(store: EventStore) -> EventStore:
    """t, changed on two branches; u, open; a label; two contexts and two tenants."""
    for scope in (store, store.for_tenant("rival")):
        chat = scope.conversation("s", context="c")
        chat.tasks.open("t", goal="g")
        branch = chat.fork("b")
        branch.tasks.set_status("t", "working")
        chat.tasks.set_status("t", "completed")
        chat.tasks.open("u", goal="g", follows="t")
        chat.append([1], task_id="label")
        scope.conversation("z", context="d").tasks.open("t", goal="another")
    return store


T = "task_id = 't' AND status = 'completed'"


@pytest.mark.parametrize(
    ("change", "stream", "version", "reason"),
    [
        (f"UPDATE tasks SET status = 'working' WHERE {T}", "s", 2, "'t' says working, the event completed"),
        (f"UPDATE tasks SET status = 'failed' WHERE {T}", "s", 2, "says failed, the event completed"),
        (f"UPDATE tasks SET status = NULL WHERE {T}", "s", 2, "has lost its status"),
        (f"DELETE FROM tasks WHERE {T}", "s", 2, "has no row"),
        (f"UPDATE tasks SET event_id = gen_random_uuid() WHERE {T}", "s", 0, "no event made task 't' completed"),
        (f"UPDATE tasks SET event_id = NULL WHERE {T}", "s", 0, "no event made task 't' completed"),
        (
            "UPDATE tasks t SET status = 'working', event_id = e.event_id, stream_id = e.stream_id FROM events e"
            f" WHERE e.context_id = t.context_id AND t.{T} AND e.data->>'status' = 'working'",
            "s",
            2,
            "knows nothing of this event",
        ),
        (
            "UPDATE tasks t SET event_id = u.event_id FROM tasks u"
            " WHERE u.context_id = t.context_id AND u.task_id = 'u' AND t.task_id = 't' AND t.status = 'completed'",
            "s",
            3,
            "says completed, the event None",
        ),
        ("UPDATE tasks SET status = 'rejected' WHERE task_id = 'label'", "#", 0, "no event made task 'label' rejected"),
        (
            "UPDATE tasks SET status = 'failed' WHERE status = 'submitted'",
            "s",
            3,
            "'u' says failed, the event submitted",
        ),
        (f"UPDATE tasks SET tenant_id = 99 WHERE {T}", "s", 0, "tenant"),
    ],
)
def test_a_tasks_row_that_does_not_follow_from_the_log_is_found(
    kept: EventStore, db: psycopg.Connection, change: str, stream: str, version: int, reason: str
) -> None:
    assert kept.verify().ok
    assert kept.verify("s").ok
    db.execute(change)  # type: ignore[call-overload]
    for tenant in ("default", "rival"):
        bad = kept.for_tenant(tenant).verify().first_bad
        assert bad is not None
        assert bad.stream.startswith(stream)
        assert bad.version == version
        assert reason in bad.reason
    alone = kept.verify("s").first_bad
    assert alone is not None
    assert reason in alone.reason


def test_one_stream_is_checked_with_its_contexts_tasks_only(kept: EventStore, db: psycopg.Connection) -> None:
    db.execute("UPDATE tasks SET status = 'failed' WHERE status = 'submitted' AND task_id = 't'")
    assert kept.verify("s").ok
    assert kept.verify("b").ok
    assert not kept.verify("z").ok
    assert not kept.verify().ok


def test_a_task_that_changes_while_it_is_verified_is_no_fault(kept: EventStore) -> None:
    chat = kept.conversation("s")
    changes: list[Callable[[], object]] = [
        lambda: chat.tasks.set_status("u", "working"),
        lambda: kept.conversation("z").tasks.set_status("t", "failed"),
        lambda: chat.tasks.open("v", goal="g"),
    ]
    met: list[str] = []

    def meanwhile(name: str, checked: int) -> None:
        if met[-1:] != [name]:
            met.append(name)
            if changes:
                changes.pop()()

    report = kept.verify(progress=meanwhile)
    assert report.ok, report.first_bad
    assert not changes


def test_more_tasks_than_a_page_holds(
    store: EventStore, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventstore.log.verify.PAGE", 3)
    for n in range(8):
        store.conversation("s", context="c").tasks.open(f"t{n}", goal="g")
        store.conversation("z", context="d").tasks.open(f"t{n}", goal="g")
    assert store.verify().ok
    assert store.verify("z").ok
    db.execute(
        "UPDATE tasks SET status = 'failed' WHERE task_id = 't7' AND context_id = (SELECT max(context_id) FROM tasks)"
    )
    assert not store.verify().ok
    assert not store.verify("z").ok
    assert store.verify("s").ok
