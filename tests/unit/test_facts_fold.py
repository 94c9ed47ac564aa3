"""The fold of facts, beside a naive one, at every version of any line of events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lineage import Line

from projections.facts import fold

IDS = ["a", "b", "c"]
KINDS = {
    "constraint": ("constraint.added", "constraint.revoked", "fact_id", "revoked"),
    "decision": ("decision.confirmed", "decision.revoked", "fact_id", "revoked"),
    "question": ("question.opened", "question.answered", "question_id", "answered"),
    "todo": ("todo.added", "todo.done", "todo_id", "done"),
}
moves = st.lists(st.tuples(st.sampled_from([*KINDS]), st.booleans(), st.sampled_from(IDS)), max_size=25)


def line_of(given_moves: list[tuple[str, bool, str]]) -> Line:
    line = Line()
    for kind, ends, which in given_moves:
        added, over, field, _ = KINDS[kind]
        data: dict[str, Any] = {field: which}
        if not ends:
            data["text"] = f"{kind} {which} {len(line)}"
            if kind == "decision":
                data["evidence"] = [{"event_id": "0b4a2f3c-5b0a-4c3e-9f0e-2d1c7a4b8e55"}]
        elif kind == "question":
            data["text"] = "because"
        elif kind != "todo":
            data["reason"] = "wrong"
        line.add(over if ends else added, data)
    return line


@given(moves)
def test_facts_equal_a_naive_fold_at_every_version(given_moves: list[tuple[str, bool, str]]) -> None:
    line = line_of(given_moves)
    held: dict[str, tuple[str, str, str]] = {}
    for version, (kind, ends, which) in enumerate(given_moves, 1):
        if not ends and which not in held:
            held[which] = (kind, line[version - 1].data["text"], "current")
        elif ends and which in held and held[which][0] == kind and held[which][2] == "current":
            held[which] = (*held[which][:2], KINDS[kind][3])
        found = fold(line[:version])
        told = {f.fact_id: (f.kind, f.text, "current" if f.current else f.state) for f in found}
        assert told == held
        assert [f.fact_id for f in found.shown()] == [i for i, each in held.items() if each[2] != "revoked"]


@pytest.mark.parametrize(
    ("evidence", "proved"),
    [
        ([{"version": 2}], False),  # itself
        ([{"version": 3}], False),
        ([{"stream": "s", "version": 9}], False),
        ([{"version": 1}], True),
        ([{"version": 9}, {"stream": "s", "version": 1}], True),
        ([{"stream": "other", "version": 9}], True),
        ([{"uri": "u", "version": 9}], True),
    ],
)
def test_a_decision_that_rests_on_what_was_not_there_yet_is_a_question(evidence: Any, proved: bool) -> None:
    line = Line()
    line.says("a", "hello")
    line.add("decision.confirmed", {"fact_id": "f", "text": "guess", "evidence": evidence})
    facts = fold(line)
    assert facts.texts("decision") == (["guess"] if proved else [])
    assert facts.texts("question") == ([] if proved else ["guess"])


def test_an_answer_stays_with_its_question() -> None:
    line = Line()
    line.add("question.opened", {"question_id": "q", "text": "why?"})
    line.add("question.answered", {"question_id": "q", "text": "so", "evidence": [{"version": 1}]})
    line.add("question.answered", {"question_id": "q", "text": "otherwise"})
    (fact,) = fold(line).shown()
    assert (fact.state, fact.answer, fact.ended, fact.answer_evidence) == ("answered", "so", 2, ({"version": 1},))
