"""The life cycle of handoffs as a fold: only steps that fit count, and every failure has somewhere to return to."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from lineage import Line

from projections.handoffs import TYPES, course, fold, inherited, to_compensate
from projections.surroundings import artifacts_of, effects_of, tasks_of

STEPS = ["offer", "accept", "reject", "commit", "fail", "roll_back", "publish"]
AFTER = {
    ("offered", "offer"): "offered",
    ("offered", "accept"): "accepted",
    ("offered", "reject"): "rejected",
    ("offered", "fail"): "failed",
    ("accepted", "commit"): "committed",
    ("accepted", "fail"): "failed",
    ("failed", "roll_back"): "rolled_back",
    ("committed", "roll_back"): "rolled_back",
}


def play(line: Line, step: str, which: str) -> None:
    if step == "offer":
        attempt = sum(e.type == "handoff.offered" and e.data["handoff_id"] == which for e in line) + 1
        line.offer(which, "a", "b", attempt)
    elif step == "accept":
        line.accept(which, "b")
    elif step == "publish":
        line.publish("u", sum(e.type == "artifact.published" for e in line) + 1)
    elif step == "fail":
        line.step("failed", which, reason="r", return_to={})
    else:
        name, more = {
            "reject": ("rejected", {"reason": "r"}),
            "commit": ("committed", {}),
            "roll_back": ("rolled_back", {"artifacts": []}),
        }[step]
        line.step(name, which, **more)


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from(["h1", "h2"])), max_size=25))
def test_a_step_that_does_not_fit_changes_nothing(steps: list[tuple[str, str]]) -> None:
    line = Line()
    model: dict[str, str] = {}
    accepted: set[str] = set()
    attempts: dict[str, int] = {}
    for step, which in steps:
        play(line, step, which)
        before = model.get(which)
        after = AFTER.get((before or "", step))
        if step == "offer" and (before is None or (before == "failed" and which not in accepted)):
            after = "offered"
        if after is not None:
            model[which] = after
            if step == "accept":
                accepted.add(which)
            if step == "offer":
                attempts[which] = line[-1].data["attempt"]
        found = fold(line)
        assert {h: found[h].status for h in found} == model
        assert {h: found[h].attempt for h in found} == attempts
        assert [*fold(event for event in line if event.type in TYPES)] == [*model]


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from(["h1", "h2", "h3"])), max_size=30))
def test_a_point_holds_the_artifacts_as_of_its_step(steps: list[tuple[str, str]]) -> None:
    line = Line()
    for step, which in steps:
        play(line, step, which)
    state = course(line, "s")
    for point in state.points.values():
        upto = course(line[: point.version], "s")
        assert point.artifacts == upto.artifacts
        assert line[point.version - 1].type in ("handoff.accepted", "handoff.committed")
    for handoff in state.handoffs.values():
        where = state.return_point(handoff.handoff_id)
        assert where.handoff_id != handoff.handoff_id
        if where.handoff_id is not None:
            assert state.handoffs[where.handoff_id].confirmed
        else:
            assert where.version == handoff.first_offered - 1


def test_a_branch_inherits_what_was_accepted_and_no_open_offer() -> None:
    line = Line("main")
    line.publish("u", 1)
    line.offer("h1", "a", "b")
    line.accept("h1", "b")
    line.offer("h2", "b", "c")
    line.stream = "plan-b"
    line.add("stream.forked", {"parent": "main", "at": 4})
    line.offer("h3", "b", "c")
    assert [*inherited(fold(line), "plan-b")] == ["h1", "h3"]
    assert [*inherited(fold(line[:4]), "main")] == ["h1", "h2"]
    state = course(line, "plan-b")
    assert state.return_point("h3").as_json() == {
        "handoff_id": "h1",
        "version": 3,
        "artifacts": [{"name": "u", "uri": "u", "version": 1}],
    }


def test_an_accepted_envelope_says_which_version_is_current_and_a_roll_back_restores_it() -> None:
    line = Line()
    line.publish("u", 1)
    line.publish("u", 2)
    line.offer("h1", "a", "b", artifacts=[{"name": "u", "uri": "u", "version": 1}])
    assert course(line, "s").artifacts["u"]["version"] == 2
    line.accept("h1", "b")
    assert course(line, "s").artifacts["u"]["version"] == 1
    line.publish("u", 3)
    line.publish("v", 1)
    point = course(line, "s").points["h1"]
    line.step("rolled_back", "h1", to="h1", artifacts=[{"uri": "u", "version": 1}])
    state = course(line, "s")
    assert {uri: each["version"] for uri, each in state.artifacts.items()} == {"u": 1}
    assert state.handoffs["h1"].status == "accepted"
    assert [*point.artifacts] == ["u"]


def effect(line: Line, kind: str, key: str, **more: Any) -> None:
    sha = "0" * 64
    data: dict[str, Any] = {"key": key, "attempt": 1} | more
    if kind == "intended":
        data |= {"tool": f"tool {key}", "arguments": {}, "arguments_sha256": sha, "lease": 60.0}
    line.add(f"effect.{kind}", data, subject=key)


def test_effects_that_stand_since_the_point_are_to_be_compensated() -> None:
    line = Line()
    effect(line, "intended", "before")
    effect(line, "succeeded", "before", result=1)
    line.offer("h1", "a", "b")
    line.accept("h1", "b")
    for key in ("done", "undone", "failed", "unknown", "looked", "not done"):
        effect(line, "intended", key)
    effect(line, "succeeded", "done", result={"id": 7})
    effect(line, "succeeded", "undone")
    effect(line, "compensated", "undone")
    effect(line, "failed", "failed", error="no")
    effect(line, "resolved", "looked", succeeded=True)
    effect(line, "resolved", "not done", succeeded=False)
    line.offer("h2", "b", "c")
    line.step("failed", "h2", reason="r", effects=["letter", "undone", {"key": "before"}], return_to={})
    state = course(line, "s")
    found = to_compensate(line, state.points["h1"], [state.handoffs["h2"]])
    assert [(note["key"], note.get("state")) for note in found] == [
        ("done", "succeeded"),
        ("unknown", "indeterminate"),
        ("looked", "succeeded"),
        ("letter", None),
        ("before", None),
    ]
    assert found[0] == {"key": "done", "tool": "tool done", "state": "succeeded", "result": {"id": 7}}
    assert effects_of(line)["not done"].state == "failed"


def test_tasks_and_artifacts_are_told_from_their_events() -> None:
    line = Line()
    line.add("task.changed", {"task_id": "t", "status": "working"})
    line.add("task.opened", {"task_id": "t", "goal": "g"})
    assert tasks_of(line) == {"t": "submitted"}
    line.add("task.changed", {"task_id": "t", "status": "completed"})
    line.add("task.changed", {"task_id": "t", "status": "working"})
    assert tasks_of(line) == {"t": "completed"}
    line.publish("u", 1)
    line.publish("u", 2)
    assert [*artifacts_of(line)] == [("u", 1), ("u", 2)]
