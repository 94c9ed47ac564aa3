"""Facts: events along the lineage; a decision needs evidence that is there."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import pytest
from working import publish

from eventstore import EventStore
from eventstore.errors import IdempotencyConflict, InvalidItem


@pytest.fixture
def chat(any_store: Any) -> Any:
    made = any_store.conversation("c", context="ctx")
    made.append([{"role": "user", "content": "1"}, {"role": "user", "content": "2"}])
    return made


def test_facts_are_stated_ended_and_listed_at_any_version_or_moment(chat: Any) -> None:
    rule = chat.facts.constrain("only official", agent="a")  # 3
    kept = chat.facts.confirm("keep the structure", [1], agent="a")  # 4
    asked = chat.facts.ask("which version?")  # 5
    todo = chat.facts.todo("check it")  # 6
    before = dt.datetime.now(dt.UTC)
    answered = chat.facts.answer(asked, "version 7", evidence=[2])  # 7
    chat.facts.done(todo.fact_id)
    chat.facts.revoke(kept.fact_id, "it was wrong")
    assert (answered.state, answered.answer, answered.answer_evidence) == ("answered", "version 7", ({"version": 2},))
    assert [(f.kind, f.text, f.state) for f in chat.facts.list()] == [
        ("constraint", "only official", "holds"),
        ("question", "which version?", "answered"),
        ("todo", "check it", "done"),
    ]
    for at in (6, before):
        assert [(f.fact_id, f.state, f.version) for f in chat.facts.list(at=at)] == [
            (rule.fact_id, "holds", 3),
            (kept.fact_id, "holds", 4),
            (asked.question_id, "open", 5),
            (todo.todo_id, "open", 6),
        ]
    assert chat.facts.list(at=2) == []
    with pytest.raises(InvalidItem, match="versions 1 to 9"):
        chat.facts.list(at=10)


def test_evidence_is_any_of_five_forms_and_must_be_there(any_store: Any, chat: Any) -> None:
    publish(chat, 4, "u")
    other = any_store.conversation("sibling", context="ctx")
    there = other.append(["x"])
    event = next(iter(chat.events(2, 2)))
    far = any_store.conversation("elsewhere")
    far_id = far.append(["x"]).event_ids[0]
    foreign = any_store.for_tenant(f"tenant-{uuid.uuid4()}").conversation("c", context="ctx")
    foreign.append(["x", "y"])
    foreign_event = next(iter(foreign.events(2, 2)))
    good = [
        event,
        event.event_id,
        str(event.event_id),
        {"event_id": str(event.event_id)},
        2,
        {"version": 2},
        ("sibling", 1),
        ["sibling", 1],
        {"stream": "sibling", "version": 1},
        there.event_ids[0],
        {"uri": "u", "version": 4},
    ]
    fact = chat.facts.confirm("proved", good)
    assert len(fact.evidence) == len(good)
    head = chat.head()
    bad = [
        99,
        0,
        True,
        2.0,
        None,
        "guess",
        uuid.uuid4(),
        far_id,
        foreign_event,
        foreign_event.event_id,
        ("elsewhere", 1),
        ("nosuch", 1),
        ("sibling", 2),
        {"uri": "u", "version": 5},
        {"uri": "w", "version": 4},
        {"uri": "u"},
        {"uri": "", "version": 1},
        {"version": 2, "event_id": str(event.event_id)},
    ]
    for each in bad:
        with pytest.raises(InvalidItem, match=r"evidence\[1\]"):
            chat.facts.confirm("guess", [1, each])
    with pytest.raises(InvalidItem, match="an event of tenant"):
        chat.facts.confirm("guess", [foreign_event])
    for none in ([], (), iter(())):
        with pytest.raises(InvalidItem, match="evidence: none"):
            chat.facts.confirm("guess", none)
    for shape in ("abc", event, 5, {"version": 1}):
        with pytest.raises(InvalidItem, match="evidence: "):
            chat.facts.confirm("guess", shape)
    with pytest.raises(InvalidItem, match="evidence"):
        chat.facts.answer(chat.facts.ask("?"), "a", [99])
    assert chat.head() == head + 1
    assert [f.text for f in chat.facts.list() if f.kind == "decision"] == ["proved"]


def test_evidence_before_the_stream_is_there_is_found_in_its_context(any_store: Any, chat: Any) -> None:
    new = any_store.conversation("new", context="ctx")
    with pytest.raises(InvalidItem, match="version 1 of this stream"):
        new.facts.confirm("d", [1])
    assert new.facts.confirm("d", [("c", 1)]).version == 1
    alone = any_store.conversation("alone")
    with pytest.raises(InvalidItem):
        alone.facts.confirm("d", [("c", 1)])
    assert alone.head() == 0


def test_a_key_makes_each_call_one(chat: Any) -> None:
    calls = {
        "constrain": lambda: chat.facts.constrain("c", key="1"),
        "confirm": lambda: chat.facts.confirm("d", [1], key="2"),
        "ask": lambda: chat.facts.ask("q", key="3"),
        "todo": lambda: chat.facts.todo("t", key="4"),
    }
    facts = {name: call() for name, call in calls.items()}
    calls |= {
        "revoke": lambda: chat.facts.revoke(facts["confirm"], "wrong", key="5"),
        "answer": lambda: chat.facts.answer(facts["ask"], "a", key="6"),
        "done": lambda: chat.facts.done(facts["todo"], key="7"),
    }
    for name in ("revoke", "answer", "done"):
        facts[name] = calls[name]()
    head = chat.head()
    for name, call in calls.items():
        again = call()
        assert (again.deduplicated, facts[name].deduplicated) == (True, False)
        assert again == facts[name]
    assert chat.head() == head
    with pytest.raises(IdempotencyConflict):
        chat.facts.constrain("another", key="1")
    with pytest.raises(IdempotencyConflict):
        chat.facts.todo("c", key="1")
    with pytest.raises(IdempotencyConflict):
        chat.facts.revoke(facts["confirm"], "otherwise", key="5")


def test_what_is_over_or_unknown_can_not_be_ended(chat: Any) -> None:
    rule = chat.facts.constrain("c")
    question = chat.facts.ask("q")
    chat.facts.revoke(rule, "lifted")
    for call, says in [
        (lambda: chat.facts.revoke(rule, "again"), "was revoked at version 5"),
        (lambda: chat.facts.revoke("nosuch", "r"), "no constraint and no decision"),
        (lambda: chat.facts.revoke(question, "r"), "no constraint and no decision"),
        (lambda: chat.facts.answer(rule, "a"), "no question"),
        (lambda: chat.facts.done(question), "no to-do"),
        (lambda: chat.facts.done(None), "give the fact or its id"),
    ]:
        with pytest.raises(InvalidItem, match=says):
            call()
    for blank in ("", " \n", None, 5):
        with pytest.raises(InvalidItem):
            chat.facts.constrain(blank)
    assert chat.head() == 5


def test_a_branch_inherits_facts_and_neither_side_sees_the_others_later_changes(chat: Any) -> None:
    rule = chat.facts.constrain("c")
    question = chat.facts.ask("q")
    branch = chat.fork("plan-b")
    assert [f.text for f in branch.facts.list()] == ["c", "q"]
    branch.facts.revoke(rule, "lifted here")
    branch.facts.answer(question, "so")
    chat.facts.answer(question, "otherwise")
    chat.facts.constrain("more")
    assert [(f.text, f.answer) for f in branch.facts.list()] == [("q", "so")]
    assert [(f.text, f.answer) for f in chat.facts.list()] == [("c", None), ("q", "otherwise"), ("more", None)]
    assert branch.facts.confirm("d", [1, ("c", 2)]).version == 8


def test_listing_facts_of_a_long_conversation_reads_none_of_its_items(store: EventStore, db: Any) -> None:
    chat = store.conversation("c")
    for _ in range(10):
        chat.append([{"n": n, "padding": "x" * 100} for n in range(1000)])
        chat.facts.constrain("c")
    db.execute("SELECT pg_stat_force_next_flush()")

    def reads() -> int:
        row = db.execute(
            "SELECT coalesce(sum(idx_tup_read), 0)::int FROM pg_stat_user_indexes WHERE relname = 'events'"
        ).fetchone()
        return int(row[0])

    store.close()
    with EventStore.open(db.info.dsn) as fresh:
        before = reads()
        again = fresh.conversation("c")
        for _ in range(5):
            assert len(again.facts.list()) == 10
    deadline = 200
    while (taken := reads() - before) == 0 and deadline:
        db.execute("SELECT pg_stat_clear_snapshot()")
        deadline -= 1
        db.execute("SELECT pg_sleep(0.02)")
    assert 0 < taken < 500
