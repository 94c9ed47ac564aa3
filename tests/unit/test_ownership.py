"""Who owns the work, and what went wrong where it changed hands: each finding names the versions that it came from."""

from __future__ import annotations

import pytest
from lineage import Line

from projections.ownership import broken, lost_fields, owner, owners, ping_pong, two_owners


def handed(line: Line, number: int, giver: str, receiver: str, **fields: object) -> None:
    line.offer(f"h{number}", giver, receiver, **fields)
    line.accept(f"h{number}", receiver)


def test_the_owner_is_who_accepted_last_and_a_roll_back_gives_the_work_back() -> None:
    line = Line()
    assert owner(line) is None
    handed(line, 1, "a", "b")
    line.offer("h2", "b", "c")
    assert [tuple(each) for each in owners(line)] == [("b", 2, "h1")]
    line.accept("h2", "c")
    line.step("failed", "h2", reason="r", return_to={})
    line.step("rolled_back", "h2", to="h1")
    line.step("rolled_back", "h1", to="h1")
    assert [tuple(each) for each in owners(line)] == [("b", 2, "h1"), ("c", 4, "h2"), ("b", 6, "h1")]


def test_who_has_handed_over_and_goes_on_is_a_second_owner() -> None:
    line = Line()
    line.says("a", "mine")
    handed(line, 1, "a", "b")
    line.says(None, "a user's")
    line.says("b", "its own")
    line.says("a", "still here")  # 6
    handed(line, 2, "b", "a")
    line.says("a", "mine again")
    line.says("b", "not any more")  # 10
    assert [tuple(each) for each in two_owners(line)] == [(6, "a", "b", 3), (10, "b", "a", 8)]


def test_broken_chains_are_found_by_reason() -> None:
    line = Line()
    line.add("task.opened", {"task_id": "t1", "goal": "g"})
    line.add("task.opened", {"task_id": "t2", "goal": "g", "follows": "t1"})
    line.add("task.opened", {"task_id": "t3", "goal": "g"})
    handed(line, 1, "a", "b")
    handed(line, 2, "b", "c", task_id="t2")
    assert broken(line) == []
    line.offer("h3", "c", "d", task_id="t3")  # 8: follows nothing
    line.offer("h4", "c", "e", task_id="nosuch", context_id="other")  # 9
    line.says("d", "I begin")  # 10: never acknowledged
    line.says("d", "and go on")
    assert [tuple(each) for each in broken(line)] == [
        (8, "h3", "task changed"),
        (9, "h4", "context changed"),
        (9, "h4", "unknown task"),
        (10, "h3", "missing acknowledgement"),
    ]


def test_an_offer_by_who_never_acknowledged_is_broken_too() -> None:
    line = Line()
    line.add("task.opened", {"task_id": "t1", "goal": "g"})
    line.offer("h1", "a", "b")
    line.offer("h2", "b", "c")
    assert [tuple(each) for each in broken(line)] == [(3, "h1", "missing acknowledgement")]


@pytest.mark.parametrize("between", [None, "artifact", "decision"])
def test_work_that_goes_back_without_progress_is_ping_pong(between: str | None) -> None:
    line = Line()
    handed(line, 1, "a", "b")
    if between == "artifact":
        line.publish("u", 1)
    elif between == "decision":
        line.add("decision.confirmed", {"fact_id": "f", "text": "t", "evidence": [{"version": 1}]})
    handed(line, 2, "b", "a")
    found = [tuple(each) for each in ping_pong(line)]
    assert found == ([((2, 4), ("a", "b", "a"))] if between is None else [])


def test_ping_pong_reaches_over_three_handoffs_and_no_more() -> None:
    line = Line()
    for number, (giver, receiver) in enumerate([("a", "b"), ("b", "c"), ("c", "a")], 1):
        handed(line, number, giver, receiver)
    assert [each.agents for each in ping_pong(line)] == [("a", "b", "c", "a")]
    longer = Line()
    for number, (giver, receiver) in enumerate([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")], 1):
        handed(longer, number, giver, receiver)
    assert ping_pong(longer) == []


def test_a_field_that_nothing_ended_is_lost() -> None:
    line = Line()
    line.offer("h1", "a", "b", decisions=["d"], constraints=["c"], todos=["t"], success="s")
    line.accept("h1", "b")
    line.add("constraint.revoked", {"fact_id": "f", "reason": "lifted"})
    line.offer("h2", "b", "c", todos=["t"])
    assert [tuple(each) for each in lost_fields(line)] == [(4, "decisions", 1), (4, "success", 1)]
    line.offer("h3", "b", "c", todos=["t"])
    assert len(lost_fields(line)) == 2
