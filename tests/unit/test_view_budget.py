"""A view's budget keeps constraints and decisions first, messages last, and never half a call."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lineage import Line

from eventstore.errors import InvalidItem
from eventstore.log.events import Entry
from projections.handoff_view import Budget, Part, category, held, whole, within
from projections.pairs import bonds
from projections.tokens import encoded_size, estimate

ORDER = [{"constraints", "decisions"}, {"artifacts", "questions"}, {"summary"}, {"messages", "tool_calls", "reasoning"}]

texts = st.text(max_size=40)
history = st.lists(
    st.one_of(
        texts.map(lambda t: {"role": "user", "content": t}),
        st.sampled_from("abc").map(lambda c: {"type": "function_call", "call_id": c, "name": "f", "arguments": "{}"}),
        st.sampled_from("abc").map(lambda c: {"type": "function_call_output", "call_id": c, "output": "1"}),
        st.just({"type": "reasoning", "id": "r", "summary": []}),
    ),
    max_size=25,
)
told = st.lists(
    st.tuples(st.sampled_from(["constraint", "decision", "question", "artifact"]), st.integers(0, 4), texts), max_size=8
)


def events_of(given_facts: list[tuple[str, int, str]]) -> Line:
    types = {
        "constraint": ("constraint.added", "fact_id"),
        "decision": ("decision.confirmed", "fact_id"),
        "question": ("question.opened", "question_id"),
    }
    line = Line()
    line.add("item.appended", {"begin": True})
    for kind, number, text in given_facts:
        if kind == "artifact":
            line.add("artifact.published", {"name": "n", "uri": f"u{number}", "version": len(line)})
            continue
        name, key = types[kind]
        data: dict[str, Any] = {key: f"{kind}{number}", "text": text if text.strip() else "x"}
        line.add(name, data | ({"evidence": [{"version": 1}]} if kind == "decision" else {}))
    return line


@settings(max_examples=300, deadline=None)
@given(told, history, st.lists(texts, max_size=3), st.integers(0, 700), st.integers(0, 3000))
def test_any_budget_keeps_what_comes_first_in_the_order_and_fits(
    given_facts: list[tuple[str, int, str]], items: list[Any], summaries: list[str], tokens: int, size: int
) -> None:
    told_first = held(events_of(given_facts), "s")
    entries = [Entry(100 + at, item) for at, item in enumerate(items)]
    sums = [Part(200 + at, {"role": "assistant", "content": text}, "summary") for at, text in enumerate(summaries)]
    cut = within(told_first, sums, entries, Budget(tokens, size))
    assert sum(estimate(part.item) for part in cut.kept) <= tokens
    assert sum(encoded_size(part.item) + 1 for part in cut.kept) <= max(size - 1, 0)
    kept = Counter(part.category for part in cut.kept)
    for rank, categories in enumerate(ORDER):
        if any(cut.trimmed.get(name, 0) for name in categories):
            later = set().union(*ORDER[rank + 1 :])
            assert not any(kept[name] for name in later), (cut.trimmed, kept)
    everything = Counter(part.category for part in [*told_first, *sums]) + Counter(category(item) for item in items)
    if cut.trimmed:
        assert kept + Counter(cut.trimmed) == everything
    else:
        assert [part.item for part in cut.kept if part.version >= 100 and part.version < 200] == items
    tail = [part for part in cut.kept if 100 <= part.version < 200]
    assert [part.item for part in tail] == items[len(items) - len(tail) :], "the history's end, unbroken"
    shown = {part.version for part in tail}
    for first, second in bonds(entries):
        if first is not None and second is not None:
            assert (100 + first in shown) == (100 + second in shown), "half a call"


def test_a_longer_end_would_not_have_fit() -> None:
    entries = [Entry(n, {"role": "user", "content": "x" * n}) for n in range(1, 40)]
    for size in range(2500):
        cut = within([], [], entries, Budget(None, size))
        used = sum(encoded_size(part.item) + 1 for part in cut.kept)
        if len(cut.kept) < len(entries):
            assert used + encoded_size(entries[-1 - len(cut.kept)].item) + 1 > size - 1


def test_revoked_and_answered_facts_are_gone_and_a_guess_is_a_question() -> None:
    line = Line()
    line.add("item.appended", {"begin": True})
    line.add("constraint.added", {"fact_id": "a", "text": "never refund twice"})
    line.add("decision.confirmed", {"fact_id": "b", "text": "refund 64.50", "evidence": [{"version": 1}]})
    line.add("question.opened", {"question_id": "c", "text": "which card?"})
    line.add("artifact.published", {"name": "n", "uri": "doc", "version": 1})
    line.add("artifact.published", {"name": "n", "uri": "doc", "version": 2})
    line.add("question.answered", {"question_id": "c", "text": "the first", "evidence": [{"version": 1}]})
    line.add("decision.revoked", {"fact_id": "b", "reason": "wrong amount"})
    line.add("decision.confirmed", {"fact_id": "d", "text": "she will agree", "evidence": [{"version": 99}]})
    told_first = held(line, "s")
    assert [(part.version, part.category) for part in told_first] == [
        (2, "constraints"),
        (9, "questions"),
        (6, "artifacts"),
    ]
    assert told_first[0].item["content"] == "Constraint: never refund twice"


def test_without_a_budget_there_is_everything_once() -> None:
    entries = [Entry(n, n) for n in range(5)]
    assert [part.item for part in whole(entries).kept] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("wrong", [-1, True, "x", {}, {"words": 3}, {"tokens": -1}, {"bytes": 1.5}, [1]])
def test_a_wrong_budget_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(InvalidItem, match="budget"):
        Budget.of(wrong)


def test_a_budget_is_tokens_or_bytes_or_both() -> None:
    assert Budget.of(7) == Budget(7, None)
    assert Budget.of({"max_bytes": 9}) == Budget(None, 9)
    assert Budget.of({"tokens": 1, "bytes": 2}) == Budget(1, 2)
    assert Budget.of(None) is None
