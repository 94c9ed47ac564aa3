"""Handoffs: a refusal names its field, a repeat changes nothing, a failure has somewhere to return to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from working import GIVEN, begin, hand, happen, open_task, publish, set_task

from eventstore import Event, errors
from eventstore.errors import HandoffRefused, IdempotencyConflict

SAMPLE = Path(__file__).parent.parent.parent.parent / "shared" / "design" / "envelope_v2_sample.json"


@pytest.fixture
def chat(any_store: Any) -> Any:
    return begin(any_store)


def refused(field: str, call: Any, says: str | None = None) -> None:
    with pytest.raises(HandoffRefused, match=says) as caught:
        call()
    assert caught.value.field == field, str(caught.value)


def statuses(chat: Any) -> dict[str, str]:
    return {each.handoff_id: each.status for each in chat.handoffs.list()}


def test_a_draft_folds_what_the_conversation_holds(chat: Any) -> None:
    chat.facts.confirm("keep the structure", [1])
    chat.facts.revoke(chat.facts.confirm("drop it", [1]), "no")
    chat.facts.ask("which version?")
    chat.facts.todo("check it")
    publish(chat, 2, digest="sha256:ab")
    happen(chat, "mail-1", "mail", {"id": 5})
    happen(chat, "mail-2", "mail", {"text": "x" * 2000})
    env = chat.handoffs.draft(goal="g", to="reviewer", agent="writer", success="s", reason="review")
    assert env.as_json() == {
        "schema_version": 2,
        "context_id": "ctx",
        "task_id": "t1",
        "handoff_id": env.handoff_id,
        "goal": "g",
        "constraints": ["official sources only"],
        "decisions": ["keep the structure"],
        "open_questions": ["which version?"],
        "artifacts": [{"name": "draft", "uri": "store://answer", "version": 2, "digest": "sha256:ab"}],
        "budget": {"max_tool_calls": 0, "max_tokens": 0},
        "owner": "reviewer",
        "status": "ready",
        "context_version": chat.head(),
        "from_agent": "writer",
        "success": "s",
        "reason": "review",
        "todos": ["check it"],
        "effects": [
            {"key": "mail-1", "tool": "mail", "state": "succeeded", "result": {"id": 5}},
            {"key": "mail-2", "tool": "mail", "state": "succeeded"},
        ],
    }
    assert env.check() == []
    budget = {"max_tool_calls": 4, "max_tokens": 6000}
    hand(chat, "reviewer", budget=budget)
    following = chat.handoffs.draft(goal="g", to="legal", task_id="t9", decisions=[], handoff_id="h9")
    assert (following.from_agent, following.budget.max_tokens) == ("reviewer", 6000)
    assert (following.task_id, following.decisions, following.handoff_id) == ("t9", [], "h9")


def test_a_draft_without_an_open_task_says_so_and_takes_one(any_store: Any) -> None:
    chat = any_store.conversation("c")
    refused("task_id", lambda: chat.handoffs.draft(goal="g", to="b"), "no open task")
    assert chat.handoffs.draft(goal="g", to="b", task_id="t").context_version == 0
    open_task(chat)
    assert chat.handoffs.draft(goal="g", to="b").task_id == "t1"
    set_task(chat, "completed")
    refused("task_id", lambda: chat.handoffs.draft(goal="g", to="b"))
    refused("owner", lambda: chat.handoffs.draft(goal="g", to="b", task_id="t", owner="c"))
    refused("budgt", lambda: chat.handoffs.draft(goal="g", to="b", task_id="t", budgt=1), "did you mean 'budget'")
    refused("owner", lambda: chat.handoffs.draft(goal="g", to="", task_id="t"))


def test_an_offer_that_does_not_hold_is_refused_by_field(chat: Any, any_store: Any) -> None:
    def offer(allow_incomplete: bool = False, **changed: Any) -> Any:
        env = chat.handoffs.draft(**GIVEN, to="b").model_copy(update=changed)
        return lambda: chat.handoffs.offer(env, allow_incomplete)

    open_task(chat, "over")
    set_task(chat, "canceled", "over")
    head = chat.head()
    refused("decisions", offer(decisions=["a guess"]), "'a guess' is no confirmed decision")
    refused("constraints", offer(constraints=["made up"]), "is no constraint")
    refused("success", offer(success=None), "allow_incomplete=True")
    refused("constraints", offer(constraints=[]))
    refused("artifacts", offer(artifacts=[]), "which artifact")
    for blank in ("", " "):
        refused("goal", offer(True, goal=blank))
        refused("goal", lambda goal=blank: chat.handoffs.offer(chat.handoffs.draft(goal=goal, to="b"), True))
    wrong = {"name": "draft", "uri": "store://answer", "version": 2}
    refused("artifacts", offer(artifacts=[wrong]), "has no version 2 here; published are versions 1 to 1")
    refused("artifacts", offer(artifacts=[wrong | {"uri": "u", "version": 1}]), "none of it")
    publish(chat, 2, digest="sha256:ab")
    refused("artifacts", offer(artifacts=[wrong | {"digest": "sha256:cd"}]), "digest")
    refused("task_id", offer(task_id="nosuch"), "no such task")
    refused("task_id", offer(task_id="over"), "canceled")
    refused("context_id", offer(context_id="other"), "'ctx'")
    refused("schema_version", offer(schema_version=3), "newer")
    refused("open_questions", offer(open_questions=["x" * 70_000]), "at most 65,536")
    refused("owner", offer(owner=""))
    assert chat.head() == head + 1
    known = offer(True, success=None, constraints=[])()
    (handoff,) = chat.handoffs.list()
    assert (handoff.handoff_id, handoff.missing) == (known.handoff_id, ("success", "constraints"))
    sibling = any_store.conversation("sibling", context="ctx")
    refused("handoff_id", lambda: sibling.handoffs.offer(handoff.envelope, True), "offered in stream 'c'")


def test_the_same_id_is_offered_again_while_nobody_answers(chat: Any) -> None:
    env = chat.handoffs.draft(**GIVEN, to="b")
    assert [chat.handoffs.offer(env).attempt for _ in range(3)] == [1, 2, 3]
    failed = chat.handoffs.fail(env.handoff_id, "no acknowledgement")
    assert failed.return_to == {"version": 4, "artifacts": [{"name": "draft", "uri": "store://answer", "version": 1}]}
    refused("handoff_id", lambda: chat.handoffs.accept(env.handoff_id, by="b"), "no acknowledgement")
    assert chat.handoffs.offer(env).attempt == 4
    assert not chat.handoffs.accept(env.handoff_id, by="b").deduplicated
    refused("handoff_id", lambda: chat.handoffs.offer(env), "is taken: accepted")
    other = chat.handoffs.draft(**GIVEN, to="b")
    chat.handoffs.offer(other)
    assert chat.handoffs.reject(other.handoff_id, "busy").reason == "busy"
    refused("handoff_id", lambda: chat.handoffs.offer(other), "rejected")
    assert statuses(chat) == {env.handoff_id: "accepted", other.handoff_id: "rejected"}


def test_an_acceptance_that_does_not_hold_is_refused_by_field(chat: Any) -> None:
    def offered(**changed: Any) -> str:
        env = chat.handoffs.draft(**GIVEN, to="b").model_copy(update=changed)
        return str(chat.handoffs.offer(env).handoff_id)

    def accept(handoff_id: str, by: str = "b") -> Any:
        return lambda: chat.handoffs.accept(handoff_id, by=by)

    refused("handoff_id", accept("nosuch"), "no such handoff")
    refused("owner", accept(offered(), by="c"), "offered to 'b', not to 'c'")
    refused("owner", accept(offered(), by=""))
    refused("status", accept(offered(status="draft")), "'draft' should be 'ready'")
    old, new = offered(), offered()
    assert chat.handoffs.accept(new, by="b").version == chat.head()
    refused("context_version", accept(old), "not newer than")
    refused("context_version", accept(offered(context_version=1)), "1 is not newer")
    refused("context_version", accept(offered(context_version=accepted_of(chat))), "is not newer than")
    decision = chat.facts.confirm("decided", [1])
    held = offered()
    chat.facts.revoke(decision, "it was wrong")
    refused("decisions", accept(held), "'decided'")
    late = offered()
    set_task(chat, "completed")
    refused("task_id", accept(late), "completed")
    assert chat.handoffs.accept(new, by="b").deduplicated, "a repeat is answered, whatever came since"


def accepted_of(chat: Any) -> int:
    """The version that the last accepted envelope was as of."""
    return int(next(e.data["context_version"] for e in chat.events(types=["handoff.accepted"])))


def by_hand(chat: Any, handoff_id: str, **changed: Any) -> None:
    """Write an offer past every check of ``offer``."""
    envelope = chat.handoffs.draft(**GIVEN, to="b", handoff_id=handoff_id).as_json() | changed
    data = {"handoff_id": handoff_id, "attempt": 1, "envelope": envelope}
    chat.append_events([Event(type="handoff.offered", data=data, subject=handoff_id)])


def test_a_hand_made_envelope_is_no_way_round(chat: Any) -> None:
    """H7, H3."""
    for field, value in {
        "decisions": ["a guess"],
        "constraints": ["made up"],
        "artifacts": [{"name": "draft", "uri": "store://answer", "version": 9}],
        "context_id": "other",
        "status": "blocked",
    }.items():
        by_hand(chat, f"h-{field}", **{field: value})
        refused(field, lambda field=field: chat.handoffs.accept(f"h-{field}", by="b"))
    with pytest.raises(errors.InvalidEvent, match="evidence"):
        data = {"fact_id": "f", "text": "a guess", "evidence": []}
        chat.append_events([Event(type="decision.confirmed", data=data)])
    data = {"fact_id": "f", "text": "a guess", "evidence": [{"version": 999}]}
    chat.append_events([Event(type="decision.confirmed", data=data)])
    by_hand(chat, "h-guess", decisions=["a guess"])
    refused("decisions", lambda: chat.handoffs.accept("h-guess", by="b"))
    assert [(f.kind, f.text) for f in chat.facts.list()][1:] == [("question", "a guess")]
    with pytest.raises(errors.InvalidEvent, match="schema_version"):
        by_hand(chat, "h-future", schema_version=3)
    by_hand(chat, "h-good")
    assert chat.handoffs.accept("h-good", by="b").version == chat.head()


def test_a_foreign_envelope_comes_in_with_its_guesses_as_questions(any_store: Any) -> None:
    chat = any_store.conversation("c", context="ctx_01J9")
    if not SAMPLE.is_file():
        pytest.skip(f"the sample envelope is not here: {SAMPLE}")
    sample = json.loads(SAMPLE.read_text())
    proved, guess = sample["decisions"]
    chat.append([{"role": "user", "content": "hi"}])
    chat.facts.confirm(proved, [1])
    env = chat.handoffs.receive(SAMPLE.read_text())
    assert env.decisions == [proved]
    assert env.open_questions == [*sample["open_questions"], guess]
    head = chat.head()
    assert chat.handoffs.receive(SAMPLE.read_bytes()) == env
    assert chat.head() == head, "the same envelope again changes nothing"
    facts = {(f.kind, f.text) for f in chat.facts.list()}
    assert facts == {("decision", proved), ("question", guess), ("question", sample["open_questions"][0])} | {
        ("constraint", text) for text in sample["constraints"]
    }
    refused("artifacts", lambda: chat.handoffs.accept("handoff_07", by="review_agent"))
    publish(chat, 3, "store://answer/104")
    assert chat.handoffs.accept("handoff_07", by="review_agent").version == chat.head()
    refused("handoff_id", lambda: chat.handoffs.receive(SAMPLE.read_text()), "is taken: accepted")
    for bad, field in [
        (sample | {"schema_version": 3}, "schema_version"),
        (sample | {"context_id": "other"}, "context_id"),
        (sample | {"goal": ""}, "goal"),
    ]:
        refused(field, lambda bad=bad: chat.handoffs.receive(json.dumps(bad)))
    refused("envelope", lambda: chat.handoffs.receive("nonsense"))


def test_a_foreign_envelope_begins_a_conversation(any_store: Any) -> None:
    chat = any_store.conversation("new", context="ctx_01J9")
    one = {
        "schema_version": 1,
        "context_id": "ctx_01J9",
        "task_id": "t",
        "handoff_id": "h",
        "goal": "g",
        "decisions": ["guess"],
        "owner": "b",
    }
    env = chat.handoffs.receive(json.dumps(one), key="k")
    assert (env.schema_version, env.open_questions) == (2, ["guess"])
    assert chat.handoffs.receive(json.dumps(one), key="k") == env
    assert chat.handoffs.accept("h", by="b").version == chat.head() == 3


def test_each_step_is_made_once_with_a_key_and_refused_when_it_does_not_fit(chat: Any) -> None:
    env = chat.handoffs.draft(**GIVEN, to="b")
    first = chat.handoffs.offer(env, key="offer")
    again = chat.handoffs.offer(env, key="offer")
    assert (again, again.deduplicated, first.deduplicated) == (first, True, False)
    with pytest.raises(IdempotencyConflict):
        chat.handoffs.offer(chat.handoffs.draft(**GIVEN, to="b"), key="offer")
    with pytest.raises(IdempotencyConflict):
        chat.handoffs.reject(env.handoff_id, "no", key="offer")
    refused("handoff_id", lambda: chat.handoffs.commit(env.handoff_id), "should be accepted, but is offered")
    ack = chat.handoffs.accept(env.handoff_id, by="b", key="accept")
    assert chat.handoffs.accept(env.handoff_id, by="b", key="accept") == ack.__class__(
        ack.ack_id, True, ack.handoff_id, ack.version
    )
    refused("owner", lambda: chat.handoffs.accept(env.handoff_id, by="c"), "'b' has accepted it")
    refused("handoff_id", lambda: chat.handoffs.reject(env.handoff_id, "no"), "should be offered")
    done = chat.handoffs.commit(env.handoff_id, key="commit")
    head = chat.head()
    assert chat.handoffs.commit(env.handoff_id, key="commit") == done
    refused("handoff_id", lambda: chat.handoffs.commit(env.handoff_id), "is committed")
    refused("handoff_id", lambda: chat.handoffs.fail(env.handoff_id, "r"), "is committed")
    assert chat.head() == head
    other = hand(chat, "c")
    failed = chat.handoffs.fail(other.handoff_id, "r", effects=["mail-9", {"key": "mail-10"}], key="fail")
    assert chat.handoffs.fail(other.handoff_id, "r", key="fail") == failed
    assert failed.effects == ("mail-9", {"key": "mail-10"})
    refused("effects", lambda: chat.handoffs.fail(other.handoff_id, "r", effects=[{"tool": "t"}]))
    refused("handoff_id", lambda: chat.handoffs.fail("nosuch", "r"), "no such handoff")
    back = chat.handoffs.roll_back(key="back")
    head = chat.head()
    repeat = chat.handoffs.roll_back(key="back")
    assert (repeat, repeat.deduplicated) == (back, True)
    with pytest.raises(IdempotencyConflict):
        chat.handoffs.roll_back(to="else", key="back")
    assert chat.head() == head


def test_a_roll_back_returns_to_the_last_confirmed_handoff_and_names_what_it_can_not_undo(chat: Any) -> None:
    """H6."""
    one = hand(chat, "b")
    publish(chat, 2)
    committed = chat.handoffs.commit(one.handoff_id)
    publish(chat, 3)
    two = hand(chat, "c")
    happen(chat, "refund-1", result={"id": 7})
    publish(chat, 4)
    chat.append([{"role": "assistant", "content": "half done"}], agent="c")
    failed = chat.handoffs.fail(two.handoff_id, "the effects failed", by="c")
    assert [note["key"] for note in failed.effects] == ["refund-1"]
    place = {"name": "draft", "uri": "store://answer", "version": 2}
    assert failed.return_to == {
        "handoff_id": one.handoff_id,
        "version": committed.version,
        "artifacts": [place],
    }
    shown = chat.transcript()
    back = chat.handoffs.roll_back()
    assert (back.handoff_id, back.handoff, back.version) == (one.handoff_id, one.handoff_id, committed.version)
    assert [(a.uri, a.version) for a in back.artifacts] == [("store://answer", 2)]
    assert [(e.key, e.tool, e.state, e.result) for e in back.effects] == [
        ("refund-1", "refund", "succeeded", {"id": 7})
    ]
    assert (back.undone, back.tasks) == ([two.handoff_id], {"t1": "input-required"})
    assert chat.transcript() == shown, "artifacts are restored, not the transcript"
    assert statuses(chat) == {one.handoff_id: "committed", two.handoff_id: "rolled_back"}
    assert chat.handoffs.draft(**GIVEN, to="d").artifacts[0].version == 2
    last = [event.type for event in chat.events(-2)]
    assert last == ["handoff.rolled_back", "task.changed"]


def test_a_roll_back_within_accepted_work_starts_it_over(chat: Any) -> None:
    one = hand(chat, "b")
    publish(chat, 2)
    back = chat.handoffs.roll_back()
    assert (back.handoff_id, back.undone, [a.version for a in back.artifacts]) == (one.handoff_id, [], [1])
    assert statuses(chat) == {one.handoff_id: "accepted"}
    assert chat.handoffs.commit(one.handoff_id).status == "committed"


def test_a_roll_back_further_fails_what_is_open_and_rolls_back_all_of_it(chat: Any) -> None:
    one = hand(chat, "b")
    chat.handoffs.commit(one.handoff_id)
    two, three = hand(chat, "c"), hand(chat, "d")
    chat.handoffs.commit(two.handoff_id)
    four = chat.handoffs.draft(**GIVEN, to="e")
    chat.handoffs.offer(four)
    refused("to", lambda: chat.handoffs.roll_back(to=four.handoff_id), "accepted or committed")
    refused("to", lambda: chat.handoffs.roll_back(to="nosuch"), re.escape(repr(one.handoff_id)))
    back = chat.handoffs.roll_back(to=one.handoff_id, task=None)
    assert (back.undone, back.tasks) == ([two.handoff_id, three.handoff_id, four.handoff_id], {})
    assert statuses(chat) == {one.handoff_id: "committed"} | {
        each.handoff_id: "rolled_back" for each in (two, three, four)
    }
    returns = [e.data["return_to"]["handoff_id"] for e in chat.events(types=["handoff.failed"])]
    assert returns == [one.handoff_id] * 2
    refused("to", lambda: chat.handoffs.roll_back(to=two.handoff_id))
    refused("handoff_id", lambda: chat.handoffs.accept(four.handoff_id, by="e"))


def test_without_a_confirmed_handoff_work_returns_to_before_the_first_offer(chat: Any) -> None:
    refused("to", lambda: chat.handoffs.roll_back(), "no handoff")
    env = chat.handoffs.draft(**GIVEN, to="b")
    chat.handoffs.offer(env)
    publish(chat, 2)
    back = chat.handoffs.roll_back()
    assert (back.handoff_id, back.version, back.undone) == (None, 4, [env.handoff_id])
    assert [a.version for a in back.artifacts] == [1]
    refused("to", lambda: chat.handoffs.roll_back())


def test_a_closed_task_stays_closed_and_its_handoff_can_still_be_ended(chat: Any) -> None:
    one = hand(chat, "b")
    set_task(chat, "failed")
    assert chat.handoffs.fail(one.handoff_id, "the task failed").status == "failed"
    back = chat.handoffs.roll_back()
    assert (back.handoff_id, back.tasks) == (None, {})
    open_task(chat, "t2", follows="t1")
    assert chat.handoffs.draft(**GIVEN, to="c").task_id == "t2"


def test_a_branch_inherits_what_was_accepted_and_no_open_offer(chat: Any) -> None:
    one = hand(chat, "b")
    two = chat.handoffs.draft(**GIVEN, to="c")
    chat.handoffs.offer(two)
    branch = chat.fork("plan-b")
    assert statuses(branch) == {one.handoff_id: "accepted"}
    refused("handoff_id", lambda: branch.handoffs.accept(two.handoff_id, by="c"), "offer anew under a new id")
    refused("handoff_id", lambda: branch.handoffs.offer(two), "new id")
    refused("handoff_id", lambda: branch.handoffs.commit(one.handoff_id), "answered there")
    assert branch.handoffs.accept(one.handoff_id, by="b").deduplicated
    publish(branch, 2)
    back = branch.handoffs.roll_back()
    assert (back.handoff_id, [a.version for a in back.artifacts]) == (one.handoff_id, [1])
    three = hand(branch, "d")
    assert [*statuses(branch)] == [one.handoff_id, three.handoff_id]
    assert chat.handoffs.accept(two.handoff_id, by="c").version == chat.head()
    assert statuses(chat) == {one.handoff_id: "accepted", two.handoff_id: "accepted"}
    assert chat.handoffs.draft(**GIVEN, to="x").artifacts[0].version == 1


def test_a_context_has_one_acceptance_of_an_id(chat: Any, any_store: Any) -> None:
    one = hand(chat, "b")
    sibling = any_store.conversation("sibling", context="ctx")
    sibling.append([1])
    again = sibling.handoffs.accept(one.handoff_id, by="b")
    assert again.deduplicated
    assert again == chat.handoffs.accept(one.handoff_id, by="b")
    data = {"handoff_id": one.handoff_id, "ack_id": "x", "by": "b"}
    forged = Event(type="handoff.accepted", data=data, unique_key=f"handoff/{one.handoff_id}/accepted")
    with pytest.raises(errors.UniqueKeyConflict):
        sibling.append_events([forged])
    apart = any_store.conversation("apart")
    apart.append([1])
    refused("handoff_id", lambda: apart.handoffs.accept(one.handoff_id, by="b"), "no such handoff")


def test_steps_join_the_callers_transaction(any_store: Any) -> None:
    chat = begin(any_store)
    env = chat.handoffs.draft(**GIVEN, to="b")
    try:
        with any_store.transaction() as tx:
            mine = tx.conversation("c")
            mine.handoffs.offer(env)
            mine.handoffs.accept(env.handoff_id, by="b")
            raise KeyError  # noqa: TRY301 - as a caller's own code would
    except KeyError:
        pass
    assert chat.handoffs.list() == []
    with any_store.transaction() as tx:
        mine = tx.conversation("c")
        mine.handoffs.offer(env)
        mine.handoffs.accept(env.handoff_id, by="b")
    assert statuses(chat) == {env.handoff_id: "accepted"}
    assert any_store.verify().ok
