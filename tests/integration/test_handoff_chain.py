"""Handoffs as they are worked with: a long chain, a refund from triage to legal, a receiver by rule."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from working import begin, hand, happen, open_task, publish, set_task

from eventstore import Envelope, EventStore
from eventstore.conversation.steps import look_around, look_at_handoff
from eventstore.errors import HandoffRefused
from eventstore.formats.import_lines import parse
from projections.clean_start import clean_starts
from projections.handoffs import course
from projections.ownership import broken, lost_fields, owner, owners, ping_pong, two_owners

LENGTH = 200


def test_a_chain_of_200_handoffs_over_the_recorded_runs(store: EventStore, recordings: Path) -> None:
    with gzip.open(recordings / "team.jsonl.gz", "rt", encoding="utf-8") as lines:
        steps = [step for line in lines for step in json.loads(line)["steps"]]
    chat = store.conversation("chain", context="ctx")
    open_task(chat)
    chat.facts.constrain("official sources only")
    chat.facts.confirm("go on with the draft", [1])
    items: list[Any] = []
    envelopes: list[Envelope] = []
    rows = []
    for step in steps:
        chat.append([step["item"]], agent=step["agent"])
        items.append(step["item"])
        if step["kind"] != "handoff":
            continue
        publish(chat, len(envelopes) + 1)
        env = hand(chat, step["to"], step["agent"], goal="answer the question", success="answered")
        chat.handoffs.commit(env.handoff_id)
        envelopes.append(env)
        rows.append((len(look_at_handoff(chat, env.handoff_id).about), len(look_around(chat, env).line)))
        if len(envelopes) == LENGTH:
            break
    assert len(envelopes) == LENGTH
    listed = chat.handoffs.list()
    assert [each.handoff_id for each in listed] == [env.handoff_id for env in envelopes]
    assert {each.status for each in listed} == {"committed"}
    assert all(Envelope.load(each.envelope) == env for each, env in zip(listed, envelopes, strict=True))
    assert all(one.context_version < other.context_version for one, other in pairwise(envelopes))
    assert {(tuple(env.constraints), tuple(env.decisions)) for env in envelopes} == {
        (("official sources only",), ("go on with the draft",))
    }
    assert [env.artifacts[0].version for env in envelopes] == [*range(1, LENGTH + 1)]
    assert set(rows) == {(3, 2)}, "what a step is decided by does not grow with the chain"
    assert chat.transcript() == items
    events = list(chat.events())
    assert [each.agent for each in owners(events)] == [env.owner for env in envelopes]
    assert lost_fields(events) == broken(events) == ping_pong(events) == []
    assert store.verify().ok


def test_imported_recordings_fold_as_handoffs(store: EventStore, recordings: Path) -> None:
    with gzip.open(recordings / "team.jsonl.gz", "rt", encoding="utf-8") as lines:
        read = next(each for each in map(parse, map(json.loads, lines)) if len(each.events) > 50)
    chat = store.conversation(read.conversation)
    chat.append_events(read.events)
    events = list(chat.events())
    handoffs = chat.handoffs.list()
    assert handoffs
    assert {each.status for each in handoffs} == {"accepted"}
    assert {each.reason for each in broken(events)} == {"unknown task"}
    last = owner(events)
    assert last is not None
    assert last.agent == handoffs[-1].owner
    with pytest.raises(HandoffRefused, match="accepted it"):
        chat.handoffs.accept(handoffs[0].handoff_id, by="somebody else")
    assert chat.handoffs.accept(handoffs[0].handoff_id, by=handoffs[0].owner).deduplicated


class Receiver:
    """Works by rule from an envelope alone: the artifact that it names, the decisions, the constraints."""

    def __init__(self, envelope: Envelope) -> None:
        self.envelope = envelope

    def work(self, chat: Any) -> None:
        """Do the next step; ask first for what the envelope does not say."""
        me = self.envelope.owner
        approved = [text for text in self.envelope.decisions if text.startswith("refund of")]
        if not approved:
            chat.append([{"role": "assistant", "content": "Is the refund approved?"}], agent=me)
        call = {"type": "function_call", "name": "refund", "call_id": "c", "arguments": json.dumps(approved)}
        chat.append([call], agent=me)


@pytest.mark.parametrize("held", [True, False])
def test_a_receiver_with_the_envelope_alone_does_its_next_step(store: EventStore, held: bool) -> None:
    """H8: with one decision removed it asks, and the fold shows it."""
    chat = begin(store)
    chat.facts.confirm("refund of 120 EUR approved", [1])
    env = chat.handoffs.draft(goal="refund the order", to="refunds", agent="triage", success="money is back")
    if not held:
        env = env.model_copy(update={"decisions": []})
    chat.handoffs.offer(env)
    chat.handoffs.accept(env.handoff_id, by="refunds")
    Receiver(Envelope.load(chat.handoffs.list()[0].envelope)).work(chat)
    (start,) = clean_starts(list(chat.events()))
    assert start.clean is held
    assert [asked.question for asked in start.asked] == ([] if held else ["Is the refund approved?"])
    assert lost_fields(list(chat.events())) == []


def test_a_refund_goes_from_triage_to_legal_and_back_to_solid_ground(any_store: Any) -> None:
    """Triage hands to refunds, refunds to the supervisor, she to legal; legal fails after a letter went out."""
    chat = any_store.conversation("order-4711", context="ctx-refund")
    chat.append([{"role": "user", "content": "My order 4711 came broken. I want my money back."}], agent="user")
    open_task(chat, "refund-4711")
    chat.facts.constrain("never promise what is not approved", agent="triage")
    question = chat.facts.ask("is the order within 30 days?", agent="triage")
    looked_up = chat.append([{"type": "function_call_output", "call_id": "1", "output": "ordered 9 days ago"}])
    chat.facts.answer(question, "yes, 9 days", [looked_up.first_version], agent="triage")
    publish(chat, 1, "store://case/4711")
    told = {"success": "the money is back or the customer knows why not", "goal": "settle order 4711"}

    first = hand(chat, "refunds", "triage", **told)
    chat.facts.confirm("the order is within 30 days", [looked_up.event_ids[0]], agent="refunds")
    publish(chat, 2, "store://case/4711")
    chat.handoffs.commit(first.handoff_id)

    with pytest.raises(HandoffRefused, match="decisions"):  # a guess does not cross
        hand(chat, "supervisor", "refunds", **told, decisions=["she will approve"])
    second = hand(chat, "supervisor", "refunds", **told)
    assert second.decisions == ["the order is within 30 days"]
    assert second.artifacts[0].version == 2
    approval = chat.append([{"role": "assistant", "content": "Approved: 120 EUR."}], agent="supervisor")
    chat.facts.confirm("refund of 120 EUR approved", [approval.first_version], agent="supervisor")
    happen(chat, "refund-4711", "payments.refund", {"amount": 120})
    chat.handoffs.commit(second.handoff_id)

    third = chat.handoffs.draft(**told, to="legal", agent="supervisor")
    assert third.decisions == ["the order is within 30 days", "refund of 120 EUR approved"]
    assert [effect.key for effect in third.effects] == ["refund-4711"]
    assert [chat.handoffs.offer(third).attempt for _ in range(2)] == [1, 2]
    chat.handoffs.accept(third.handoff_id, by="legal")
    happen(chat, "letter-4711", "mail.letter")
    publish(chat, 3, "store://case/4711")
    failed = chat.handoffs.fail(third.handoff_id, "the letter names the wrong customer", by="legal")
    assert failed.return_to["handoff_id"] == second.handoff_id
    back = chat.handoffs.roll_back()
    assert back.handoff_id == second.handoff_id
    assert [(each.uri, each.version) for each in back.artifacts] == [("store://case/4711", 2)]
    assert [each.key for each in back.effects] == ["letter-4711"], "the refund was confirmed, the letter was not"
    assert dict(back.tasks) == {"refund-4711": "input-required"}
    views = [item["content"] for item in chat.handoff_view(budget={"bytes": 4000}).items if "content" in item]
    assert "Artifact: store://case/4711 version 2" in views
    assert not any("version 3" in text for text in views), "what was rolled back is not told to the next agent"

    events = list(chat.events())
    assert owner(events).agent == "supervisor"
    assert two_owners(events) == broken(events) == lost_fields(events) == ping_pong(events) == []
    assert course(events, "order-4711").artifacts["store://case/4711"]["version"] == 2
    set_task(chat, "failed", "refund-4711")
    open_task(chat, "letter-4711", follows="refund-4711", compensates=["letter-4711"])
    fourth = hand(chat, "legal", "supervisor", **told)
    assert (fourth.task_id, fourth.artifacts[0].version) == ("letter-4711", 2)
    assert broken(list(chat.events())) == []
    assert any_store.verify().ok
