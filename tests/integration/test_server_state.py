"""Server state against a model of a provider: it holds what it was given, and puts that before the next input."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from typing import Any

import orjson
import pytest

from eventstore import EventStore
from eventstore.errors import InvalidItem, ServerStateConflict
from projections.server_state import Response, furthest

SEEDS, STEPS = 5, 45


def user(text: Any) -> Any:
    return {"role": "user", "content": f"u{text}"}


def made(text: Any) -> Any:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"a{text}"}]}


def bag(items: list[Any]) -> Counter[bytes]:
    return Counter(orjson.dumps(item) for item in items)


class Call:
    """A call in flight."""

    def __init__(self, chat: Any, seen: Any, output: list[Any], response_id: str) -> None:
        self.chat, self.seen, self.output, self.response_id = chat, seen, output, response_id
        self.conversation_id: str | None = None
        self.appended: Any = None


class World:
    """Branches of a conversation, and the provider that their calls go to."""

    def __init__(self, store: EventStore, r: random.Random, state: Any, *, at_once: int) -> None:
        self.r, self.state, self.at_once = r, state, at_once
        self.scope = store.for_tenant(f"world-{uuid.uuid4()}")
        self.chats = [self.scope.conversation("main")]
        self.chats[0].append([user("first")])
        self.held: dict[str, list[Any]] = {}
        self.given: dict[tuple[str, str], list[Any]] = {}  # branch, response → input
        self.open: list[Call] = []
        self.number = 0

    def next(self) -> int:
        self.number += 1
        return self.number

    def step(self) -> None:
        r = self.r
        chat = r.choice(self.chats)
        busy = [call for call in self.open if call.chat is chat]
        ways = [lambda: chat.append([user(self.next()) for _ in range(r.randint(1, 2))])] * 3
        ways += [lambda: self.change(chat)] * (r.random() < 0.4)
        if len(busy) < self.at_once:
            ways += [lambda: self.call(chat)] * 3
        if busy:
            ways += [lambda: self.go_on(r.choice(busy))] * 4
        if len(self.chats) < 4 and r.random() < 0.2:
            ways.append(lambda: self.chats.append(chat.fork(f"branch {len(self.chats)}")))
        r.choice(ways)()

    def change(self, chat: Any) -> None:
        r = self.r
        r.choice(
            [
                chat.pop,
                chat.clear,
                lambda: chat.compact(lambda items: [user(f"summary of {len(items)}, {self.next()}")], keep_last=1),
                lambda: chat.retract(2),
            ]
        )()

    def call(self, chat: Any) -> None:
        seen = chat.model_input(server_state=self.state)
        before = seen.previous_response_id if self.state == "response" else seen.conversation_id
        whole = [*self.held.get(before or "", []), *seen.items]
        assert bag(whole) == bag(chat.transcript(at=seen.receipt.version)), "lost or twice"
        if before is None:
            assert seen.items == chat.transcript()
        call = Call(chat, seen, [made(self.next()) for _ in range(self.r.randint(1, 2))], f"r{self.next()}")
        if self.state == "response":
            self.held[call.response_id] = [*whole, *call.output]
        else:
            call.conversation_id = before or f"conv{self.next()}"
            self.held[call.conversation_id] = [*whole, *call.output]
        self.open.append(call)

    def go_on(self, call: Call) -> None:
        """Append the call's output, then record it: whatever comes between."""
        if call.appended is None:
            call.appended = call.chat.append(call.output)
            return
        named = {"output": call.appended} if self.at_once > 1 or self.r.random() < 0.3 else {}
        if call.conversation_id is not None:
            named["conversation_id"] = call.conversation_id
        call.chat.responses.record(call.response_id, receipt=call.seen.receipt, **named)
        self.given[call.chat.name, call.response_id] = call.seen.items
        self.open.remove(call)

    def check_receipts(self) -> None:
        """Every recorded response renders the bytes that its call was given; so it does on branches from there on."""
        for (name, response_id), items in self.given.items():
            for chat in self.chats:
                try:
                    found = chat.responses.seen(response_id)
                except InvalidItem:
                    assert chat.name != name
                else:
                    assert found.same
                    assert orjson.dumps(found.items) == orjson.dumps(items)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize(("state", "at_once"), [("response", 1), ("response", 3), ("conversation", 1)])
def test_nothing_is_lost_and_nothing_is_given_twice(store: EventStore, state: Any, at_once: int, seed: int) -> None:
    world = World(store, random.Random(seed), state, at_once=at_once)
    for _ in range(STEPS):
        world.step()
    world.check_receipts()
    assert world.given
    assert world.scope.verify().ok


# --- receipts of every view ---


@pytest.mark.parametrize("seed", range(6))
def test_every_view_renders_the_same_bytes_for_ever(store: EventStore, seed: int) -> None:
    r = random.Random(seed)
    chats = [store.conversation("main")]
    given: dict[str, tuple[str, list[Any]]] = {}
    for number in range(40):
        chat = r.choice(chats)
        call = {"type": "function_call", "call_id": f"c{number % 4}", "name": "f", "arguments": "{}"}
        answer = {"type": "function_call_output", "call_id": f"c{number % 4}", "output": "\ud800"}
        noted = {"role": "user", "content": "x", "chat": {"name": "tim"}}
        chat.append(
            [r.choice([user(number), made(number), call, answer, noted, 2**70, {"role": "system", "content": "s"}])]
        )
        change = r.random()
        if change < 0.1:
            chat.compact(lambda items: [user(len(items))], keep_last=2)
        elif change < 0.2:
            chat.pop()
        elif change < 0.23:
            chat.clear()
        elif change < 0.3 and len(chats) < 4:
            chats.append(chat.fork(f"b{number}", at=r.randint(0, chat.head())))
        options = {
            "limit": r.choice([None, 0, 1, 5]),
            "pin_summaries": r.random() < 0.5,
            "pair_safe": r.random() < 0.5,
            "max_tokens": r.choice([None, None, 0, 30, 1000]),
        }
        seen = chat.model_input(**options)
        receipt = seen.receipt if r.random() < 0.5 else orjson.loads(orjson.dumps(seen.receipt.as_json()))
        chat.responses.record(f"r{number}", receipt=receipt)
        given[f"r{number}"] = chat.name, seen.items
    for response_id, (name, items) in given.items():
        found = store.conversation(name).responses.seen(response_id)
        assert found.same
        assert repr(found.items) == repr(items)


# --- where a chain can't go on ---


@pytest.fixture
def chat(store: EventStore) -> Any:
    """A chain of one response."""
    made_chat = store.conversation("a")
    made_chat.append([user(1)])
    seen = made_chat.model_input(server_state="response")
    made_chat.append([made(2)])
    made_chat.responses.record("r1", receipt=seen.receipt)
    made_chat.append([user(4)])
    return made_chat


def follows(chat: Any, state: Any = "response") -> Any:
    seen = chat.model_input(server_state=state)
    return (seen.previous_response_id if state == "response" else seen.conversation_id), seen.items


def test_the_chain_goes_on_with_what_is_new(chat: Any) -> None:
    assert follows(chat) == ("r1", [user(4)])


@pytest.mark.parametrize("change", ["clear", "pop", "compact"])
def test_a_change_since_the_call_begins_anew_also_if_it_is_recorded_after(chat: Any, change: str) -> None:
    seen = chat.model_input(server_state="response")
    changes: dict[str, Any] = {
        "clear": chat.clear,
        "pop": chat.pop,
        "compact": lambda: chat.compact(lambda _: [user(0)]),
    }
    changes[change]()
    chat.append([made(9)])
    chat.responses.record("r2", receipt=seen.receipt)
    assert follows(chat) == (None, chat.transcript())


def test_an_earlier_call_that_is_recorded_late_does_not_hide_the_later_one(chat: Any) -> None:
    early = chat.model_input(server_state="response")
    first = chat.append([made("early")])
    late = chat.model_input(server_state="response")
    assert late.items == [user(4), made("early")]
    second = chat.append([made("late")])
    chat.responses.record("late", receipt=late.receipt, output=second)
    chat.append([user("between")])
    chat.responses.record("early", receipt=early.receipt, output=first)
    assert follows(chat) == ("late", [user("between")])


def test_two_at_once_that_do_not_name_their_output_begin_anew(chat: Any) -> None:
    one, other = chat.model_input(server_state="response"), chat.model_input(server_state="response")
    chat.append([made("one"), made("other")])
    chat.responses.record("one", receipt=one.receipt)
    chat.responses.record("other", receipt=other.receipt)
    assert follows(chat) == (None, chat.transcript())


def test_two_at_once_that_name_their_output_know_whose_it_is(chat: Any) -> None:
    one, other = chat.model_input(server_state="response"), chat.model_input(server_state="response")
    first, second = chat.append([made("one")]), chat.append([made("other")])
    chat.responses.record("one", receipt=one.receipt, output=first)
    chat.responses.record("other", receipt=other.receipt, output=(second.first_version, second.last_version))
    assert follows(chat) == ("other", [made("one")])


def test_a_response_to_a_cut_of_the_history_is_not_gone_on_from(chat: Any) -> None:
    seen = chat.model_input(limit=1)
    chat.append([made(9)])
    chat.responses.record("cut", receipt=seen.receipt)
    assert follows(chat) == ("r1", [user(4), made(9)])


def test_a_local_response_is_gone_on_from_once_there_is_server_state(chat: Any) -> None:
    seen = chat.model_input()
    chat.append([made(9)])
    chat.responses.record("local", receipt=seen.receipt)
    assert follows(chat) == ("local", [])


def test_a_branch_goes_on_from_its_parents_response_and_not_in_its_conversation(chat: Any) -> None:
    branch = chat.fork("b")
    branch.append([user("b")])
    assert follows(branch) == ("r1", [user(4), user("b")])
    seen = chat.model_input(server_state="conversation")
    chat.append([made(9)])
    chat.responses.record("r2", receipt=seen.receipt, conversation_id="conv")
    assert follows(chat, "conversation") == ("conv", [])
    with pytest.raises(ServerStateConflict, match="conversation 'conv'"):
        follows(chat)
    again = chat.fork("c")
    for state in ("conversation", "response"):
        assert follows(again, state) == (None, again.transcript())


def test_a_receipt_of_another_history_is_not_gone_on_from(chat: Any, store: EventStore) -> None:
    other = store.conversation("other")
    other.append([user("o"), user("p")])
    chat.responses.record("r2", receipt=other.model_input().receipt)
    assert follows(chat) == ("r1", [user(4)])
    head = chat.head()
    seen = chat.model_input()
    branch, early = chat.fork("b", at=head), chat.fork("early", at=1)
    for one in (branch, early):
        one.append([made(9)])
        one.responses.record("r3", receipt=seen.receipt)
    assert follows(branch) == ("r3", [])  # all that the call was given is the branch's too
    assert follows(early) == (None, early.transcript())


CONFLICTS: dict[str, Any] = {
    "two ids": lambda c: c.responses.record("r", previous_response_id="r1", conversation_id="c"),
    "an id beside the local history": lambda c: c.responses.record(
        "r", receipt=c.model_input().receipt, previous_response_id="r1"
    ),
    "a conversation beside the local history": lambda c: c.responses.record(
        "r", receipt=c.model_input().receipt, conversation_id="c"
    ),
    "another response than the receipt's": lambda c: c.responses.record(
        "r", receipt=c.model_input(server_state="response").receipt, previous_response_id="r0"
    ),
    "a conversation for a receipt of responses": lambda c: c.responses.record(
        "r", receipt=c.model_input(server_state="response").receipt, conversation_id="c"
    ),
    "a conversation where a chain of responses began": lambda c: [
        c.clear(),
        c.responses.record("r", receipt=c.model_input(server_state="response").receipt, conversation_id="c"),
    ],
    "a response where a conversation began": lambda c: c.responses.record(
        "r", receipt=c.model_input(server_state="conversation").receipt, previous_response_id="r1"
    ),
    "a limit beside server state": lambda c: c.model_input(server_state="response", limit=3),
    "pins beside server state": lambda c: c.model_input(server_state="conversation", pin_summaries=True),
    "pairs beside server state": lambda c: c.model_input(server_state="response", pair_safe=True),
    "tokens beside server state": lambda c: c.model_input(server_state="response", max_tokens=3),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_one_history_given_twice_is_refused(chat: Any, name: str) -> None:
    with pytest.raises(ServerStateConflict):
        CONFLICTS[name](chat)
    assert [e.data["response_id"] for e in chat.events(types=["response.recorded"])] == ["r1"]


def test_what_the_receipt_follows_is_recorded_where_it_is_not_said(chat: Any) -> None:
    seen = chat.model_input(server_state="response")
    chat.responses.record("r2", receipt=seen.receipt)
    assert chat.responses.seen("r2").previous_response_id == "r1"
    seen = chat.model_input(server_state="conversation")
    chat.responses.record("r3", receipt=seen.receipt, conversation_id="c")
    chat.responses.record("r4", receipt=chat.model_input(server_state="conversation").receipt)
    assert chat.responses.seen("r4").conversation_id == "c"


def test_without_a_receipt_all_before_the_record_was_given() -> None:
    state = furthest([Response(7, {"response_id": "r"})], 7)
    assert state is not None
    assert (state.seen, state.version) == (7, 7)
    assert furthest([Response(7, {"response_id": "r"})], 8) is None
    assert furthest([], 0) is None
