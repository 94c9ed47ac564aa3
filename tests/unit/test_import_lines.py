"""Import lines: what each form becomes, how a bad line is refused, and two real recordings."""

from __future__ import annotations

import collections
import gzip
import json
import pathlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from eventstore import errors
from eventstore.formats.chat import items_from_messages
from eventstore.formats.import_lines import FORMATS, Conversation, parse
from eventstore.formats.numbered import render
from eventstore.log import catalogue
from eventstore.log.events import Event
from eventstore.log.items import describe

DATA = pathlib.Path(__file__).parents[3] / "shared" / "data"

USER = {"type": "message", "role": "user", "content": "book a flight"}
SAID = {"type": "message", "id": "msg_1", "role": "assistant", "content": "which one?"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "done"}


def item(data: Any, **columns: Any) -> Event:
    return Event(type="item.appended", data=data, **columns)


# --- the four forms ------------------------------------------------------------------------------


def test_items_become_events_with_their_ids_as_columns() -> None:
    assert parse({"conversation": "c", "items": [USER, SAID, CALL, OUTPUT]}) == Conversation(
        conversation="c",
        context=None,
        tags={},
        events=[
            item(USER),
            item(SAID, subject="msg_1"),
            item(CALL, subject="fc_1", call_id="c1"),
            item(OUTPUT, call_id="c1"),
        ],
    )


def test_context_and_tags_are_read_and_other_keys_named() -> None:
    line = {
        "conversation": "c",
        "reward": 1.0,
        "context": "ctx",
        "tags": {"channel": "web"},
        "items": [],
        "question": None,
    }
    assert parse(line) == Conversation("c", "ctx", {"channel": "web"}, [], ("reward", "question"))
    assert parse({"conversation": "c", "question": "q", "steps": []}).ignored == ()
    assert parse({"conversation": "c", "context": None, "tags": None, "items": []}).tags == {}


def test_items_may_be_any_json() -> None:
    events = parse({"conversation": "c", "items": [None, 5, "text", [USER]]}).events
    assert [event.data for event in events] == [None, 5, "text", [USER]]


def test_messages_become_items() -> None:
    called = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "book a flight"},
        {"role": "assistant", "content": "I look", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]
    assert parse({"conversation": "c", "messages": messages}).events == [
        item(USER),
        item({"type": "message", "role": "assistant", "content": "I look"}),
        item(
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            call_id="c1",
        ),
        item(OUTPUT, call_id="c1"),
    ]


STEPS: list[dict[str, Any]] = [
    {"agent": "human", "to": None, "kind": "message", "item": USER},
    {"agent": "planner", "kind": "thought", "item": SAID},
    {"agent": "planner", "to": "booker", "kind": "handoff", "item": SAID},
    {"agent": "booker", "to": "planner", "kind": "handoff", "item": CALL},
]


def test_a_handoff_step_is_an_item_then_an_offer_then_its_acceptance() -> None:
    events = parse({"conversation": "c", "context": "ctx", "steps": STEPS}).events
    assert [(event.type, event.agent, event.subject) for event in events] == [
        ("item.appended", "human", None),
        ("item.appended", "planner", "msg_1"),
        ("item.appended", "planner", "msg_1"),
        ("handoff.offered", "planner", "c/handoff-1"),
        ("handoff.accepted", "booker", "c/handoff-1"),
        ("item.appended", "booker", "fc_1"),
        ("handoff.offered", "booker", "c/handoff-2"),
        ("handoff.accepted", "planner", "c/handoff-2"),
    ]
    assert events[5].call_id == "c1"
    assert all(event.task_id is None for event in events)
    for event in events:
        catalogue.check(event.type, event.data)
    envelope = events[3].data["envelope"]
    assert envelope["context_id"] == "ctx"
    assert envelope["task_id"] == "c/task"
    assert envelope["handoff_id"] == events[3].data["handoff_id"] == "c/handoff-1"
    assert (envelope["from_agent"], envelope["owner"]) == ("planner", "booker")
    assert envelope["status"] == "ready"
    assert events[4].data == {
        "handoff_id": "c/handoff-1",
        "ack_id": "c/handoff-1/ack",
        "by": "booker",
    }


def test_the_same_line_gives_the_same_events() -> None:
    assert parse({"conversation": "c", "steps": STEPS}) == parse({"conversation": "c", "steps": STEPS})


PARTS = {"role": "user", "content": [{"type": "input_text", "text": "in parts"}, {"type": "x"}]}


@pytest.mark.parametrize(
    ("line", "goal"),
    [
        ({"question": "which flight?"}, "which flight?"),
        ({"question": "q" * 700}, "q" * 500),
        ({"question": "  "}, "book a flight"),
        ({"question": 5}, "book a flight"),
        ({}, "book a flight"),
        ({"steps": [{"agent": "h", "kind": "message", "item": PARTS}, *STEPS]}, "in parts"),
        ({"steps": STEPS[1:]}, "c"),
        ({"steps": [{"agent": "h", "kind": "message", "item": {"role": "user"}}, STEPS[2]]}, "c"),
    ],
)
def test_the_goal_is_the_question_else_what_the_user_said(line: dict[str, Any], goal: str) -> None:
    events = parse({"conversation": "c", "steps": STEPS} | line).events
    offered = next(event for event in events if event.type == "handoff.offered")
    assert offered.data["envelope"]["goal"] == goal
    assert offered.data["envelope"]["context_id"] == "c"


def test_exported_events_are_read_again() -> None:
    event_id = "0190a5a0-7e5e-7cc1-9c7b-5d7f3a1b2c3d"
    exported = {
        "tenant": "default",
        "context": "ctx",
        "stream": "c",
        "version": 7,
        "position": 99,
        "event_id": event_id,
        "type": "task.opened",
        "schema_version": 1,
        "data": {"task_id": "t", "goal": "g"},
        "metadata": {"trace": "1"},
        "subject": "t",
        "agent": "a",
        "call_id": None,
        "task_id": "t",
        "run_id": "r",
        "unique_key": "task:t",
        "recorded_at": "2026-01-31T12:00:00+00:00",
        "hash": "00",
    }
    short = {"type": "x.mine", "data": [1]}
    assert parse({"conversation": "c", "events": [exported, short]}).events == [
        Event(
            type="task.opened",
            data={"task_id": "t", "goal": "g"},
            metadata={"trace": "1"},
            subject="t",
            agent="a",
            task_id="t",
            run_id="r",
            unique_key="task:t",
            event_id=uuid.UUID(event_id),
        ),
        Event(type="x.mine", data=[1]),
    ]


# --- what the format option says -----------------------------------------------------------------

MESSAGE = {"role": "user", "content": "book a flight", "name": "ann"}
HISTORY = render([USER, render([SAID]), CALL])


def data(line: Any, form: str | None) -> list[Any]:
    return [event.data for event in parse(line, form).events]


def test_the_key_says_what_a_list_holds_unless_the_format_does() -> None:
    items, messages = {"conversation": "c", "items": [MESSAGE]}, {"conversation": "c", "messages": [MESSAGE]}
    as_item = items_from_messages([MESSAGE])
    assert as_item != [MESSAGE]
    assert data(items, None) == data(items, "responses") == data(messages, "responses") == [MESSAGE]
    assert data(messages, None) == data(items, "chat") == data(messages, "chat") == as_item
    assert data(items, "nested") == [MESSAGE]
    assert data(messages, "nested") == as_item
    assert [parse(items, form).one_to_one for form in (None, *FORMATS)] == [True, True, False, False]
    assert [parse(messages, form).one_to_one for form in (None, *FORMATS)] == [False, True, False, False]


def test_nested_histories_are_expanded_where_that_is_asked_for() -> None:
    said = {"role": "assistant", "content": HISTORY["content"]}
    assert data({"conversation": "c", "items": [SAID, HISTORY]}, None) == [SAID, HISTORY]
    read = parse({"conversation": "c", "items": [SAID, HISTORY]}, "nested")
    assert read.events == [
        item(SAID, subject="msg_1"),
        *parse({"conversation": "c", "items": [USER, SAID, CALL]}).events,
    ]
    assert data({"conversation": "c", "messages": [said, MESSAGE]}, "nested")[:3] == [USER, SAID, CALL]
    assert data({"conversation": "c", "messages": [said]}, None) == [HISTORY]


@pytest.mark.parametrize("form", FORMATS)
def test_steps_and_events_speak_for_themselves(form: str) -> None:
    steps = {"conversation": "c", "steps": [{"agent": "a", "kind": "message", "item": HISTORY}]}
    events = {"conversation": "c", "events": [{"type": "item.appended", "data": HISTORY}]}
    for line in (steps, events):
        assert parse(line, form) == parse(line)


def test_messages_under_the_key_items_are_refused_by_that_key() -> None:
    with pytest.raises(errors.InvalidItem) as caught:
        parse({"conversation": "c", "items": [MESSAGE, {"role": "robot"}]}, "chat")
    assert caught.value.path == "items[1].role"


# --- refusals ------------------------------------------------------------------------------------


def refused(line: Any, error: type[errors.ConvstoreError]) -> Any:
    with pytest.raises(error) as caught:
        parse(line)
    return caught.value


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ([], "line"),
        ({"items": []}, "conversation"),
        ({"conversation": "c"}, "items"),
        ({"conversation": "c", "items": [], "messages": []}, "messages"),
        ({"conversation": "c", "steps": None, "items": []}, "steps"),
        ({"conversation": "c", "items": {}}, "items"),
        ({"conversation": "c", "steps": None}, "steps"),
        ({"conversation": "c", "events": "e"}, "events"),
        ({"conversation": "c", "messages": "hi"}, "messages"),
        ({"conversation": "c", "messages": [{"role": "robot"}]}, "messages[0].role"),
        ({"conversation": "c", "items": [], "tags": ["a"]}, "tags"),
        ({"conversation": "c", "items": [], "tags": {"a": 1}}, "tags.a"),
    ],
)
def test_a_bad_line_is_refused_by_path(line: Any, path: str) -> None:
    assert refused(line, errors.InvalidItem).path == path


@pytest.mark.parametrize(
    ("line", "path", "meant"),
    [
        ({"conversation": "c", "items": [], "tag": {}}, "tag", "tags"),
        ({"conversation": "c", "items": [], "contxt": "x"}, "contxt", "context"),
        ({"conversation": "c", "items": [], "Context": "x"}, "Context", "context"),
        ({"conversation": "c", "item": []}, "item", "items"),
        ({"conversation": "c", "message": []}, "message", "messages"),
        ({"conversaton": "c", "items": []}, "conversaton", "conversation"),
        ({"conversation_id": "c", "items": []}, "conversation_id", "conversation"),
    ],
)
def test_a_slip_of_the_pen_is_refused(line: Any, path: str, meant: str) -> None:
    error = refused(line, errors.InvalidItem)
    assert error.path == path
    assert f"did you mean {meant!r}?" in error.reason


def test_a_key_that_is_near_one_which_is_there_is_no_slip() -> None:
    line = {"conversation": "c", "conversation_id": 1, "context": "x", "content": 1, "tags": {}, "tag": 1, "items": []}
    assert parse(line | {"n_items": 0}).ignored == ("conversation_id", "content", "tag", "n_items")
    assert parse({"conversation": "c", "items": [], "content": 1}).ignored == ("content",)


@pytest.mark.parametrize(
    ("step", "path"),
    [
        ("step", "steps[1]"),
        ({"kind": "message", "item": USER}, "steps[1].agent"),
        ({"agent": "a", "kind": "message"}, "steps[1].item"),
        ({"agent": "a", "item": USER}, "steps[1].kind"),
        ({"agent": "a", "kind": "speech", "item": USER}, "steps[1].kind"),
        ({"agent": "a", "kind": ["message"], "item": USER}, "steps[1].kind"),
        ({"agent": "a", "kind": "handoff", "item": USER}, "steps[1].to"),
        ({"agent": "a", "to": None, "kind": "handoff", "item": USER}, "steps[1].to"),
    ],
)
def test_a_bad_step_is_refused_by_path(step: Any, path: str) -> None:
    line = {"conversation": "c", "steps": [STEPS[0], step]}
    assert refused(line, errors.InvalidItem).path == path


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ({"conversation": "", "items": []}, "conversation"),
        ({"conversation": 5, "items": []}, "conversation"),
        ({"conversation": "c" * 513, "items": []}, "conversation"),
        ({"conversation": "c", "context": "", "items": []}, "context"),
        ({"conversation": "c", "context": ["x"], "items": []}, "context"),
        ({"conversation": "c", "steps": [STEPS[0] | {"agent": ""}]}, "steps[0].agent"),
        ({"conversation": "c", "steps": [STEPS[0] | {"agent": None}]}, "steps[0].agent"),
        ({"conversation": "c", "steps": [STEPS[0] | {"to": 5}]}, "steps[0].to"),
        ({"conversation": "c", "steps": [STEPS[2] | {"to": ""}]}, "steps[0].to"),
        (
            {"conversation": "c", "events": [{"type": "x.a", "data": 1, "event_id": "e"}]},
            "events[0].event_id",
        ),
        (
            {"conversation": "c", "events": [{"type": "x.a", "data": 1, "event_id": 7}]},
            "events[0].event_id",
        ),
    ],
)
def test_a_bad_name_is_refused_as_one(line: Any, what: str) -> None:
    assert refused(line, errors.InvalidName).what == what


@pytest.mark.parametrize(
    ("event", "path", "says"),
    [
        ("event", "events[0]", "object"),
        ({"data": {}}, "events[0].type", "missing"),
        ({"type": "x.a"}, "events[0].data", "missing"),
        ({"type": "task.open", "data": {}}, "events[0].type", "'task.opened'"),
        ({"type": ["x"], "data": {}}, "events[0].type", "text"),
        ({"type": ["x"], "data": {}, "schema_version": 1}, "events[0].type", "text"),
        ({"type": "task.opened", "data": {"task_id": "t"}}, "events[0].data.goal", "missing"),
        ({"type": "x.a", "data": 1, "agnt": "a"}, "events[0].agnt", "'agent'"),
        ({"type": "x.a", "data": 1, "agent": 5}, "events[0].agent", "5 should be text"),
        ({"type": "x.a", "data": 1, "metadata": []}, "events[0].metadata", "object"),
        ({"type": "x.a", "data": 1, "schema_version": "1"}, "events[0].schema_version", "integer"),
        ({"type": "x.a", "data": 1, "schema_version": 0}, "events[0].schema_version", "begin at 1"),
    ],
)
def test_a_bad_event_is_refused_by_path(event: Any, path: str, says: str) -> None:
    error = refused({"conversation": "c", "events": [event]}, errors.InvalidItem)
    assert error.path == path
    assert says in error.reason


def test_an_event_of_newer_code_is_refused() -> None:
    event = {"type": "task.opened", "data": {}, "schema_version": 2}
    assert "task.opened" in str(refused({"conversation": "c", "events": [event]}, errors.SchemaOutOfDate))


@pytest.mark.parametrize(
    ("given", "described"),
    [
        ({"id": "i", "call_id": "c"}, ("i", "c")),
        ({"id": "", "call_id": 5}, (None, None)),
        ({"id": None}, (None, None)),
        ({"id": ["i"], "call_id": {}}, (None, None)),
        ("id", (None, None)),
        (None, (None, None)),
    ],
)
def test_an_item_is_described_whatever_it_is(given: Any, described: tuple[Any, Any]) -> None:
    assert describe(given) == described


# --- real recordings -----------------------------------------------------------------------------


def recording(name: str) -> Iterator[dict[str, Any]]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"the recording is not here: {path}")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def test_the_recording_of_single_agents_is_read_whole() -> None:
    conversations = 0
    events = 0
    for line in recording("airline.jsonl.gz"):
        read = parse(line)
        conversations += 1
        events += len(read.events)
        assert read.conversation == line["conversation"]
        assert [event.data for event in read.events] == line["items"]
    assert (conversations, events) == (100, 2555)


def test_the_recording_of_teams_is_read_whole() -> None:
    conversations = 0
    types: collections.Counter[str] = collections.Counter()
    for line in recording("team.jsonl.gz"):
        read = parse(line)
        conversations += 1
        items = [event for event in read.events if event.type == "item.appended"]
        assert [event.data for event in items] == [step["item"] for step in line["steps"]]
        assert [event.agent for event in items] == [step["agent"] for step in line["steps"]]
        for event in read.events:
            types[event.type] += 1
            catalogue.check(event.type, event.data)
            if event.type == "handoff.offered":
                assert event.data["envelope"]["goal"] == line["question"][:500]
    assert conversations == 29
    assert types == {"item.appended": 1467, "handoff.offered": 336, "handoff.accepted": 336}
