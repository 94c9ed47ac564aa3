"""H8: a receiver that was given what it needs acts without asking for it again, and the fold tells the two apart."""

from __future__ import annotations

from typing import Any

import pytest
from lineage import Line

from projections.clean_start import clean_starts

DECISION = "refund of 120 EUR to the original card approved by the supervisor"
CONSTRAINT = "never ask the customer for the card number"


def begin(**fields: Any) -> Line:
    line = Line()
    line.says("user", "Can I have my money back?")
    line.says("triage", "Which order is it about?")
    line.add("decision.confirmed", {"fact_id": "f", "text": DECISION, "evidence": [{"version": 1}]})
    line.add("question.opened", {"question_id": "q", "text": "What is the order number?"})
    line.add("question.answered", {"question_id": "q", "text": "it is order 4711"})
    line.offer("h1", "triage", "refund", **fields)
    line.accept("h1", "refund")  # 7
    return line


class Receiver:
    """Does the next step by rule, from nothing but the envelope: it refunds where that is decided, else it asks."""

    def __init__(self, line: Line, envelope: dict[str, Any]) -> None:
        decided = [text for text in envelope["decisions"] if "refund" in text and "approved" in text]
        if decided:
            line.calls("refund", "refund")
        else:
            line.says("refund", "Is the refund approved?")
            line.calls("refund", "refund")


def test_with_the_decision_it_acts_and_without_it_asks_and_the_fold_shows_it() -> None:
    line = begin(decisions=[DECISION])
    Receiver(line, line[5].data["envelope"])
    (start,) = clean_starts(line)
    assert (start.handoff_id, start.agent, start.accepted) == ("h1", "refund", 7)
    assert (start.clean, start.acted, start.asked) == (True, 8, ())

    line = begin(decisions=[])
    Receiver(line, line[5].data["envelope"])
    (start,) = clean_starts(line)
    assert (start.clean, start.acted) == (False, 9)
    assert [(asked.version, asked.question, asked.held) for asked in start.asked] == [
        (8, "Is the refund approved?", DECISION)
    ]


@pytest.mark.parametrize(
    ("question", "held"),
    [
        ("what is the ORDER number?", "What is the order number?"),  # answered before
        ("Which order is it about?", "Which order is it about?"),  # asked before
        ("Fine. Refund approved by supervisor?", DECISION),
        ("Is it order 4711?", "it is order 4711"),
        ("What is your birthday?", None),
        ("Why?", None),
        ("Refund?", None),  # one word is too little to tell
    ],
)
def test_a_question_is_for_what_was_held_or_for_something_new(question: str, held: str | None) -> None:
    line = begin()
    line.says("refund", question)
    (start,) = clean_starts(line)
    assert [asked.held for asked in start.asked] == ([] if held is None else [held])
    assert start.clean is (None if held is None else False)
    assert start.questions == (8,)
    line.calls("refund", "refund")
    assert clean_starts(line)[0].clean is (held is None)


def test_what_others_do_and_mere_thought_is_no_start_and_later_questions_do_not_count() -> None:
    line = begin(constraints=[CONSTRAINT])
    line.says("triage", "Is the refund approved?")
    line.add("item.appended", {"type": "reasoning", "summary": []}, agent="refund")
    assert clean_starts(line)[0].clean is None
    line.calls("refund", "refund")
    line.says("refund", "Is the refund approved?")
    (start,) = clean_starts(line)
    assert (start.clean, start.acted, len(start.asked)) == (True, 10, 1)
    line.offer("h2", "refund", "legal")
    line.accept("h2", "legal")
    line.says("refund", "Refund approved?")
    line.says("legal", "是否需要补充?")
    first, second = clean_starts(line)
    assert len(first.asked) == 1
    assert (second.agent, second.clean) == ("legal", None)


def test_a_question_that_holds_a_statement_asks_for_it_in_any_script() -> None:
    line = Line()
    line.offer("h1", "a", "b", decisions=["保留当前答案结构"], open_questions=["是否需要补充兼容性说明?"])
    line.accept("h1", "b")
    line.says("b", "要不要保留当前答案结构\uff1f")
    line.says("b", "是否需要补充兼容性说明?")
    (start,) = clean_starts(line)
    assert [asked.held for asked in start.asked] == ["保留当前答案结构"]
