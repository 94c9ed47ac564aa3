"""A writer's login with plain SQL gets round no rule of tasks, and a lie in the data shows."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg
from psycopg.types.json import Json

from eventstore import EventStore

ID = uuid.UUID(int=7)


def events(
    types: list[str],
    task_ids: list[str | None] | None,
    ids: list[uuid.UUID] | None = None,
    datas: list[Any] | None = None,
) -> dict[str, Any]:
    """The parameters of a batch that are arrays."""
    n = len(types)
    return {
        "p_event_ids": ids or [uuid.uuid4() for _ in types],
        "p_schema_versions": [1] * n,
        "p_formats": [1] * n,
        "p_types": types,
        "p_subjects": task_ids,
        "p_agents": None,
        "p_call_ids": None,
        "p_task_ids": task_ids,
        "p_run_ids": None,
        "p_unique_keys": None,
        "p_metadatas": None,
        "p_datas": [Json(data) for data in datas or [{}] * n],
    }


class Hostile:
    """Calls the append functions with what it likes; ``opened`` is the id of the event that opened u."""

    opened: uuid.UUID

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn

    def call(self, name: str, **given: Any) -> Any:
        casts = {
            "p_event_ids": "uuid[]",
            "p_schema_versions": "smallint[]",
            "p_formats": "smallint[]",
            "p_datas": "json[]",
        }
        casts |= {"p_schema_version": "smallint", "p_format": "smallint", "p_metadatas": "json[]", "p_ranges": "json"}
        casts |= {"p_expected": "bigint", "p_tags": "jsonb", "p_context_id": "bigint", "p_stream_id": "bigint"}
        casts |= {"p_origin": "bytea", "p_metadata": "json", "p_data": "json", "p_control": "bigint"}
        params = ", ".join(
            f"{key} => %({key})s::{casts.get(key, 'text[]' if key.endswith('s') and key != 'p_was' else 'text')}"
            if key not in ("p_may_repeat", "p_event_id")
            else f"{key} => %({key})s"
            for key in given
        )
        return self.conn.execute(f"SELECT * FROM convstore.{name}({params})", given).fetchone()  # type: ignore[call-overload]

    def batch(
        self, stream: str, *, may_repeat: bool = False, ids: tuple[Any, ...] = (None, None, None), **given: Any
    ) -> Any:
        place = dict(zip(("p_context_id", "p_stream_id", "p_origin"), ids, strict=True))
        common = {"p_tenant": "acme", "p_stream": stream, "p_context": None, "p_tags": None, "p_expected": None}
        return self.call("append_events", **common, **place, p_may_repeat=may_repeat, **given)

    def tasks(self, stream: str, statuses: list[str | None], *, may_repeat: bool = False, **given: Any) -> Any:
        common = {"p_tenant": "acme", "p_stream": stream, "p_context": None, "p_tags": None, "p_expected": None}
        more = {"p_statuses": statuses, "p_follows": None, "p_was": None}
        return self.call("append_tasks", **common, p_may_repeat=may_repeat, **given, **more)


@pytest.fixture
def hostile(make_login: Callable[..., str], filled: EventStore) -> Iterator[Hostile]:
    """A writer of acme, where task t is completed and task u is open; the end of t has the id ID."""
    chat = filled.for_tenant("acme").conversation("a")
    chat.tasks.open("t", goal="g")
    opened = chat.tasks.open("u", goal="g").event_ids[0]
    with psycopg.connect(make_login("writer", "acme"), autocommit=True) as conn:
        mine = Hostile(conn)
        mine.opened = opened
        done = mine.tasks(
            "a",
            ["completed"],
            **events(["task.changed"], ["t"], [ID], [{"task_id": "t", "status": "completed"}]),
        )
        assert done[0] == "appended"
        chat.fork("b")
        yield mine


@pytest.fixture
def unmoved(db: psycopg.Connection, filled: EventStore) -> Iterator[None]:
    """After the test the tasks that were opened are as they were before it, and all verifies."""
    yield
    rows = db.execute("SELECT task_id, status FROM tasks WHERE status IS NOT NULL ORDER BY 1").fetchall()
    assert rows == [("t", "completed"), ("u", "submitted")]
    chat = filled.for_tenant("acme").conversation("a")
    assert [t.status for t in chat.tasks.list()] == ["completed", "submitted"]
    report = filled.for_tenant("acme").verify()
    assert report.ok, report.first_bad


@pytest.mark.usefixtures("unmoved")
@pytest.mark.parametrize("stream", ["a", "b", "new"])
@pytest.mark.parametrize("may_repeat", [False, True])
def test_events_of_tasks_go_by_their_function_alone(hostile: Hostile, stream: str, may_repeat: bool) -> None:
    working = [{"task_id": "u", "status": "working"}]
    for types, names, ids in [
        (["task.changed"], ["u"], None),
        (["task.opened"], ["v"], None),
        (["task.changed"], [None], None),
        (["task.changed"], None, None),
        (["task.opened"], None, None),
        (["task.changed"], ["u"], [ID]),  # the id of another task's last event
        (["task.changed"], ["u"], [hostile.opened]),
        (["task.changed", "x.a"], ["u", "u"], [uuid.uuid4(), hostile.opened]),
        (["task.changed", "x.a"], ["u", "u"], None),
    ]:
        given = events(types, names, ids, working * len(types))
        try:
            outcome = hostile.batch(stream, may_repeat=may_repeat, **given)[0]
        except (pg.InvalidParameterValue, pg.UniqueViolation):
            continue
        assert outcome == "idempotency_conflict", (types, names)
        assert hostile.opened in (ids or [])
    for kind, name in (("task.changed", "u"), ("task.opened", None), ("task.opened", "v")):
        with pytest.raises(pg.InvalidParameterValue):
            hostile.call(
                "append_event",
                **{"p_tenant": "acme", "p_stream": stream, "p_context": None, "p_tags": None, "p_context_id": None},
                **{"p_stream_id": None, "p_origin": None, "p_expected": None, "p_may_repeat": may_repeat},
                **{"p_event_id": uuid.uuid4(), "p_schema_version": 1, "p_format": 1, "p_type": kind, "p_subject": name},
                **{"p_agent": None, "p_call_id": None, "p_task_id": name, "p_run_id": None, "p_unique_key": None},
                **{"p_metadata": None, "p_data": Json(working[0])},
            )


@pytest.mark.usefixtures("unmoved")
@pytest.mark.parametrize("stream", ["a", "b"])
@pytest.mark.parametrize("may_repeat", [False, True])
def test_the_id_of_the_end_opens_no_door(hostile: Hostile, stream: str, may_repeat: bool) -> None:
    """Who names the id of the event that closed a task makes it look like the append that did."""
    for types, ids in [
        (["x.a"], [ID]),
        (["x.a", "x.a"], [uuid.uuid4(), ID]),
        (["task.changed"], [ID]),
        (["task.changed", "x.a"], [ID, uuid.uuid4()]),
    ]:
        given = events(types, ["t"] * len(types), ids)
        try:
            outcome = hostile.batch(stream, may_repeat=may_repeat, **given)[0]
        except (pg.UniqueViolation, pg.InvalidParameterValue):
            continue
        assert outcome in ("task_closed", "idempotency_conflict"), (types, outcome)


@pytest.mark.usefixtures("unmoved")
def test_the_function_of_tasks_takes_no_nonsense(hostile: Hostile) -> None:
    change = {"task_id": "u", "status": "working"}
    for statuses, given in [
        ([None], events(["task.changed"], ["u"])),
        (["working"], events(["x.a"], ["u"])),
        (["completed"], events(["task.opened"], ["v"])),
        (["working"], events(["task.changed"], [None])),
        (["working"], events(["task.changed"], ["u"]) | {"p_subjects": ["t"]}),
        (["working"], events(["task.changed"], ["u"]) | {"p_subjects": None}),
        (["working", None], events(["task.changed"], ["u"])),
        (["done"], events(["task.changed"], ["u"], None, [change])),
        (["working"], events(["task.changed"], ["u"], [ID], [change])),
        ([None, "working"], events(["stream.forked", "task.changed"], [None, "u"])),
    ]:
        for may_repeat in (False, True):
            try:
                outcome = hostile.tasks("a", statuses, may_repeat=may_repeat, **given)[0]
            except (pg.InvalidParameterValue, pg.CheckViolation, pg.UniqueViolation):
                continue
            assert outcome == "idempotency_conflict", (statuses, given["p_types"])
    late = events(["task.changed", "x.a"], ["u", "u"], None, [change, {}])
    assert hostile.tasks("a", ["completed", None], **late)[0] == "task_closed"


@pytest.mark.usefixtures("unmoved")
def test_a_control_event_that_names_a_closed_task_is_refused(hostile: Hostile) -> None:
    given = events(["history.cleared"], ["t"])
    common = {"p_control": 0, "p_ranges": None, "p_tenant": "acme", "p_stream": "a", "p_expected": None}
    assert hostile.call("append_control", **common, p_may_repeat=False, **given)[0] == "task_closed"


@pytest.mark.usefixtures("unmoved")
def test_ids_of_another_tenants_stream_lock_and_leave_nothing_there(hostile: Hostile, db: psycopg.Connection) -> None:
    place = db.execute(
        "SELECT s.context_id, s.stream_id, s.origin FROM streams s JOIN tenants t USING (tenant_id)"
        " WHERE t.name = 'rival'"
    ).fetchone()
    before = db.execute("SELECT * FROM tasks ORDER BY 1, 2").fetchall()
    assert hostile.batch("a", ids=tuple(place or ()), **events(["x.a"], ["theirs"]))[0] == "unknown_stream"
    assert db.execute("SELECT * FROM tasks ORDER BY 1, 2").fetchall() == before


def test_a_lie_in_the_data_shows(hostile: Hostile, filled: EventStore) -> None:
    lie = events(["task.changed"], ["u"], None, [{"task_id": "u", "status": "completed"}])
    assert hostile.tasks("a", ["working"], **lie)[0] == "appended"
    for report in (filled.for_tenant("acme").verify(), filled.for_tenant("acme").verify("a")):
        assert not report.ok
        assert report.first_bad is not None
        assert report.first_bad.stream == "a"
        assert "'u' says working, the event completed" in report.first_bad.reason
