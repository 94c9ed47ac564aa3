"""The folds of tasks and artifacts: pure functions of recorded events."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import Artifact, RecordedEvent
from eventstore.log.catalogue.tasks import STATES, TERMINAL
from projections.artifacts import difference, fold_artifacts
from projections.tasks import fold_tasks

NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


def event(version: int, kind: str, data: dict[str, Any], *, stream: str = "s", context: str = "c") -> RecordedEvent:
    return RecordedEvent(
        tenant="default",
        context=context,
        stream=stream,
        version=version,
        position=version,
        event_id=uuid.UUID(int=version),
        type=kind,
        schema_version=1,
        data=data,
        metadata={},
        subject=None,
        agent=f"agent{version}",
        call_id=None,
        task_id=None,
        run_id=None,
        unique_key=None,
        recorded_at=NOON + dt.timedelta(seconds=version),
        hash=b"",
    )


def opened(version: int, task_id: str, **more: Any) -> RecordedEvent:
    return event(version, "task.opened", {"task_id": task_id, "goal": "g", **more})


def changed(version: int, task_id: str, status: str, **more: Any) -> RecordedEvent:
    return event(version, "task.changed", {"task_id": task_id, "status": status, **more})


def test_a_task_is_its_opening_and_its_changes() -> None:
    (task,) = fold_tasks(
        [
            opened(1, "t", follows="s", compensates=["k"], owner="ann"),
            event(2, "item.appended", {"task_id": "t", "status": "failed"}),
            changed(3, "t", "working"),
            changed(4, "t", "completed", reason="done"),
        ]
    )
    assert (task.task_id, task.goal, task.follows, task.compensates, task.owner) == ("t", "g", "s", ["k"], "ann")
    assert (task.status, task.closed) == ("completed", True)
    assert [(c.status, c.version, c.agent, c.reason) for c in task.changes] == [
        ("submitted", 1, "agent1", None),
        ("working", 3, "agent3", None),
        ("completed", 4, "agent4", "done"),
    ]
    assert task.changes[1].recorded_at == NOON + dt.timedelta(seconds=3)


def test_tasks_come_in_the_order_in_which_they_were_opened() -> None:
    folded = fold_tasks([opened(1, "b"), opened(2, "a"), changed(3, "b", "working")])
    assert [(t.task_id, t.status, t.closed) for t in folded] == [("b", "working", False), ("a", "submitted", False)]


def test_what_the_log_never_holds_is_passed_over() -> None:
    folded = fold_tasks(
        [
            changed(1, "t", "working"),
            opened(2, "t"),
            opened(3, "t", owner="other"),
            changed(4, "t", "failed"),
            changed(5, "t", "working"),
        ]
    )
    assert [(t.owner, [c.version for c in t.changes]) for t in folded] == [(None, [2, 4])]


def test_the_same_id_in_two_contexts_is_two_tasks() -> None:
    other = event(2, "task.opened", {"task_id": "t", "goal": "h"}, context="d")
    assert [t.goal for t in fold_tasks([opened(1, "t"), other, changed(3, "t", "failed")])] == ["g", "h"]


def test_the_states_are_those_of_a2a() -> None:
    assert set(STATES) - TERMINAL == {"submitted", "working", "input-required", "auth-required"}
    assert {"completed", "canceled", "failed", "rejected"} == TERMINAL


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 5)), max_size=12, unique=True))
def test_latest_and_regression_are_what_a_look_at_all_versions_says(versions: list[tuple[str, int]]) -> None:
    folded = fold_artifacts(
        [
            event(place, "artifact.published", {"uri": uri, "version": version, "name": "n"})
            for place, (uri, version) in enumerate(versions, 1)
        ]
    )
    assert [(a.uri, a.version) for a in folded] == versions
    for place, each in enumerate(folded):
        before = [version for uri, version in versions[:place] if uri == each.uri]
        ever = [version for uri, version in versions if uri == each.uri]
        assert each.regression == (max(before, default=0) > each.version)
        assert each.latest == (each.version == max(ever))


def test_a_difference_names_the_field_and_both_sides() -> None:
    artifact = Artifact("u", 1, "n", "d", "s", ["x"])
    stored = artifact.as_json()
    assert difference(stored, artifact) is None
    for field, value in (("digest", "e"), ("digest", None), ("name", "m"), ("summary", None), ("derived_from", [])):
        given_ = Artifact(**{"uri": "u", "version": 1, **stored, field: value})
        assert difference(stored, given_) == (field, stored[field], value or None)
    assert difference(Artifact("u", 1, "n").as_json(), Artifact("u", 1, "n", derived_from=[])) is None


def test_an_artifact_is_what_it_was_made_of() -> None:
    artifact = Artifact("u", 2, "n", derived_from=[Artifact("u", 1, "n"), ("v", 3), {"version": 1}, "text"])
    assert artifact.derived_from == [{"uri": "u", "version": 1}, {"uri": "v", "version": 3}, {"version": 1}, "text"]
    assert artifact.sources() == [(0, "u", 1), (1, "v", 3)]
    assert Artifact.of(artifact.as_json()) == artifact
    with pytest.raises(AttributeError):
        artifact.version = 3  # type: ignore[misc]
