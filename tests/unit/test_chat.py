"""Chat messages become natural items, and come back as they were, whatever they carried."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import errors
from eventstore.formats.chat import for_model, items_from_messages, messages_from_items


def exactly(value: Any) -> str:
    """Text that tells key order and types (1, 1.0, true) apart."""
    return json.dumps(value)


def call(call_id: str, name: str = "search", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def call_item(call_id: str, name: str = "search", arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


# --- the natural items ---------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
def test_a_message_of_text_is_a_plain_item(role: str) -> None:
    items = items_from_messages([{"role": role, "content": "hi"}])
    assert exactly(items) == exactly([{"type": "message", "role": role, "content": "hi"}])


def test_an_assistant_message_becomes_its_text_then_one_item_a_call() -> None:
    messages = [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [call("a"), call("b")]},
        {"role": "tool", "tool_call_id": "a", "content": "sun"},
        {"role": "tool", "tool_call_id": "b", "content": "rain"},
        {"role": "assistant", "content": None, "tool_calls": [call("c")]},
        {"role": "tool", "tool_call_id": "c", "content": "snow"},
    ]
    items = items_from_messages(messages)
    assert items == [
        {"type": "message", "role": "user", "content": "weather?"},
        {"type": "message", "role": "assistant", "content": "I look."},
        call_item("a"),
        call_item("b"),
        {"type": "function_call_output", "call_id": "a", "output": "sun"},
        {"type": "function_call_output", "call_id": "b", "output": "rain"},
        call_item("c"),
        {"type": "function_call_output", "call_id": "c", "output": "snow"},
    ]
    assert exactly(messages_from_items(items)) == exactly(messages)


def test_assistant_messages_in_a_row_stay_apart() -> None:
    messages = [
        {"role": "assistant", "content": "I look."},
        {"role": "assistant", "content": None, "tool_calls": [call("a")]},
        {"role": "assistant", "content": None, "tool_calls": [call("b")]},
    ]
    items = items_from_messages(messages)
    assert [item["type"] for item in items] == ["message", "function_call", "function_call"]
    assert exactly(messages_from_items(items)) == exactly(messages)


def test_content_parts_have_their_names_of_the_responses_api() -> None:
    messages = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "what is this?"},
                {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
                {"type": "file", "file": {"file_id": "f"}},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "a cat"}]},
    ]
    items = items_from_messages(messages)
    assert items == [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "what is this?"},
                {"type": "input_image", "image_url": "https://x/y.png", "detail": "low"},
                {"type": "input_file", "file_id": "f"},
            ],
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "a cat"}],
        },
    ]
    assert exactly(messages_from_items(items)) == exactly(messages)


def test_a_refusal_is_shown_as_one() -> None:
    messages = [{"role": "assistant", "content": None, "refusal": "I can't."}]
    (item,) = items_from_messages(messages)
    assert item["content"] == [{"type": "refusal", "refusal": "I can't."}]
    assert exactly(messages_from_items([item])) == exactly(messages)


def test_a_custom_tool_has_items_of_its_own() -> None:
    custom = {"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [custom]},
        {"role": "tool", "tool_call_id": "a", "content": "file"},
    ]
    items = items_from_messages(messages)
    assert items == [
        {"type": "custom_tool_call", "call_id": "a", "name": "sh", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "a", "output": "file"},
    ]
    assert exactly(messages_from_items(items)) == exactly(messages)


def test_a_legacy_function_call_is_paired_with_its_output() -> None:
    messages = [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
    ]
    called, output = items_from_messages(messages)
    assert (called["type"], output["type"]) == ("function_call", "function_call_output")
    assert called["call_id"] == output["call_id"]
    assert exactly(messages_from_items([called, output])) == exactly(messages)


@pytest.mark.parametrize(
    "message",
    [
        {"content": "key order", "role": "user"},
        {"role": "user", "name": "ann", "content": "hi"},
        {"role": "user", "content": None},
        {"role": "assistant"},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": "", "tool_calls": [call("a")]},
        {"role": "assistant", "content": [], "tool_calls": [call("a")]},
        {"role": "assistant", "tool_calls": [call("a"), call("b")]},
        {"tool_calls": [call("a")], "role": "assistant", "content": "text"},
        {"role": "assistant", "content": "hi", "tool_calls": None, "function_call": None},
        {"role": "assistant", "content": "hi", "tool_calls": []},
        {"role": "assistant", "content": None, "audio": {"id": "audio_1"}, "tool_calls": []},
        {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **call("a")}]},
        {"role": "assistant", "tool_calls": [{"id": "a", "function": call("b")["function"]}]},
        {"role": "assistant", "content": "hi", "chat": {"keys": ["x"]}, "type": "message"},
        {"role": "user", "content": [{"type": "input_text", "text": "of the other format"}]},
        {"role": "user", "content": [{"type": "text", "text": "t", "annotations": []}]},
        {"role": "user", "content": [{"image_url": {"url": "u"}, "type": "image_url"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": "not an object"}]},
        {"role": "tool", "tool_call_id": "a", "name": "f", "content": None},
        {"role": "tool", "content": [{"type": "text", "text": "t"}], "tool_call_id": "a"},
        {"role": "function", "tool_call_id": 1, "content": "x"},
    ],
)
def test_what_an_item_has_no_place_for_is_kept(message: dict[str, Any]) -> None:
    items = items_from_messages([message])
    assert exactly(messages_from_items(items)) == exactly([message])


# --- any messages --------------------------------------------------------------------------------

text = st.sampled_from(["", "a", "text", "\u2028 <\x00>", "\ud800"]) | st.text(max_size=3)
json_value = st.sampled_from(
    [None, True, 1, 1.0, -0.0, 2**80, "text", [], [1, None], {}, {"b": 1, "a": [{"type": "text"}]}]
)
part = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "input_text", "output_text", "refusal"]), "text": text},
        optional={"annotations": json_value, "cache_control": json_value},
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["image_url", "input_image"])},
        optional={
            "image_url": text | st.fixed_dictionaries({"url": text}, optional={"detail": text}),
            "detail": text,
        },
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["file", "input_file", "input_audio"])},
        optional={"file": json_value, "file_id": text, "input_audio": json_value},
    ),
    st.dictionaries(text, json_value, max_size=2),
)
content = st.none() | text | st.lists(part, max_size=3)
body = st.fixed_dictionaries({"name": text, "arguments": text}, optional={"strict": json_value})
tool_call = st.one_of(
    st.fixed_dictionaries({"id": text, "type": st.just("function"), "function": body}),
    st.fixed_dictionaries({"id": text, "function": body}, optional={"type": json_value, "index": json_value}),
    st.fixed_dictionaries(
        {"id": text, "type": st.sampled_from(["custom", "function"])},
    ).flatmap(
        lambda head: st.fixed_dictionaries({"custom": st.fixed_dictionaries({"name": text, "input": text})}).map(
            lambda tail: head | tail
        )
    ),
)
extras = {
    "name": json_value,
    "refusal": st.none() | text,
    "audio": json_value,
    "annotations": json_value,
    "chat": json_value,
    "type": json_value,
}


@st.composite
def shuffled(draw: st.DrawFn, made: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    message = draw(made)
    if not draw(st.booleans()):
        return message
    return {key: message[key] for key in draw(st.permutations(list(message)))}


spoken = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user"]), "content": content},
    optional=extras,
)
assistant = st.fixed_dictionaries(
    {"role": st.just("assistant")},
    optional={
        "content": content,
        "tool_calls": st.none() | st.lists(shuffled(tool_call), max_size=3),
        "function_call": st.none() | body,
        **extras,
    },
)
answered = st.fixed_dictionaries({"role": st.just("tool"), "tool_call_id": text, "content": content}, optional=extras)
legacy = st.fixed_dictionaries(
    {"role": st.just("function"), "name": text, "content": content}, optional={"x": json_value}
)
# Assistants twice: their messages in a row are the hard part.
messages = st.lists(shuffled(st.one_of(spoken, assistant, assistant, answered, legacy)), max_size=6)


@given(messages)
def test_messages_come_back_as_they_were(given: list[dict[str, Any]]) -> None:
    before = copy.deepcopy(given)
    items = items_from_messages(given)
    assert exactly(given) == exactly(before)
    stored = json.loads(json.dumps(items))
    assert exactly(messages_from_items(stored)) == exactly(before)
    assert exactly(items) == exactly(stored)


@given(messages)
def test_every_item_is_one_of_the_responses_api(given: list[dict[str, Any]]) -> None:
    for item in items_from_messages(given):
        assert item["type"] in {
            "message": {"role", "content"},
            "function_call": {"call_id", "name", "arguments"},
            "custom_tool_call": {"call_id", "name", "input"},
            "function_call_output": {"call_id", "output"},
            "custom_tool_call_output": {"call_id", "output"},
        }
        assert item.get("content", "") is not None
        assert item.get("output", "") is not None


@given(messages)
def test_a_model_is_given_the_item_without_its_note(given: list[dict[str, Any]]) -> None:
    for item in items_from_messages(given):
        before = copy.deepcopy(item)
        shown = for_model(item)
        assert item == before
        assert exactly(shown) == exactly({key: value for key, value in before.items() if key != "chat"})
        assert for_model(shown) is shown


@pytest.mark.parametrize(
    "item",
    [
        None,
        "chat",
        ["chat"],
        {"role": "user", "content": "hi"},
        {"role": "user", "chat": None},
        {"role": "user", "chat": {}},
        {"role": "user", "chat": "c-1"},
        {"role": "user", "chat": {"message": "hi"}},
        {"role": "user", "chat": {"message": {"id": 1}}},
        {"role": "user", "chat": {"message": {}, "room": 5}},
    ],
)
def test_a_key_named_chat_that_is_no_note_stays(item: Any) -> None:
    assert for_model(item) is item


def test_the_recordings_as_messages_come_back_equal(recorded_items: list[list[Any]]) -> None:
    for items in recorded_items:
        messages = messages_from_items(items)
        assert len(messages) > len(items) / 2
        made = items_from_messages(messages)
        assert exactly(messages_from_items(json.loads(json.dumps(made)))) == exactly(messages)
        # All that these recordings hold and chat has no word for are their empty lists of annotations.
        assert exactly([for_model(item) for item in made]) == exactly(items).replace(', "annotations": []', "")


# --- items that others made ----------------------------------------------------------------------


def test_items_of_the_responses_api_become_messages() -> None:
    items = [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "I look", "annotations": []}],
        },
        {"type": "reasoning", "id": "rs_2", "summary": []},
        {**call_item("a"), "id": "fc_1"},
        {"type": "function_call_output", "call_id": "a", "output": "sun"},
        {"type": "web_search_call", "id": "ws_1"},
        {"type": ["odd"]},
    ]
    assert messages_from_items(items) == [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "I look"}],
            "tool_calls": [call("a")],
        },
        {"role": "tool", "tool_call_id": "a", "content": "sun"},
    ]


def test_a_call_that_was_retracted_does_not_come_back() -> None:
    given = [{"role": "assistant", "name": "x", "content": "t", "tool_calls": [call("a")]}]
    said, _ = items_from_messages(given)
    assert messages_from_items([said]) == [{"role": "assistant", "name": "x", "content": "t"}]


def test_a_call_is_not_lost_with_the_item_that_began_its_message() -> None:
    given = [
        {"role": "assistant", "content": "t", "tool_calls": None},
        {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b")]},
    ]
    said, _, second = items_from_messages(given)
    assert messages_from_items([said, second]) == [{"role": "assistant", "content": "t", "tool_calls": [call("b")]}]


@pytest.mark.parametrize("kept", ["text", {"message": 1}, {"message": {"keys": 5}}, {"call": []}])
def test_a_foreign_key_named_chat_does_no_harm(kept: Any) -> None:
    items = [{"type": "message", "role": "user", "content": "hi", "chat": kept}]
    assert messages_from_items(items) == [{"role": "user", "content": "hi"}]


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "path"),
    [
        ("hi", "messages[1]"),
        ({"content": "hi"}, "messages[1].role"),
        ({"role": "robot", "content": "hi"}, "messages[1].role"),
        ({"role": ["user"], "content": "hi"}, "messages[1].role"),
        ({"role": "user"}, "messages[1].content"),
        ({"role": "user", "content": 5}, "messages[1].content"),
        ({"role": "user", "content": ["hi"]}, "messages[1].content[0]"),
        ({"role": "tool", "content": "hi"}, "messages[1].tool_call_id"),
        ({"role": "tool", "tool_call_id": None, "content": "hi"}, "messages[1].tool_call_id"),
        ({"role": "assistant", "tool_calls": {}}, "messages[1].tool_calls"),
        ({"role": "assistant", "tool_calls": ["a"]}, "messages[1].tool_calls[0]"),
        (
            {"role": "assistant", "tool_calls": [call("a"), {"type": "function"}]},
            "messages[1].tool_calls[1].id",
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "a", "type": "function"}]},
            "messages[1].tool_calls[0].function",
        ),
        (
            {"role": "assistant", "tool_calls": [call("a", arguments={"not": "text"})]},  # type: ignore[arg-type]
            "messages[1].tool_calls[0].function.arguments",
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "a", "custom": {"name": "n"}}]},
            "messages[1].tool_calls[0].custom.input",
        ),
        ({"role": "assistant", "function_call": "auto"}, "messages[1].function_call"),
        ({"role": "assistant", "function_call": {}}, "messages[1].function_call.name"),
    ],
)
def test_a_bad_message_is_refused_by_path(bad: Any, path: str) -> None:
    with pytest.raises(errors.InvalidItem) as caught:
        items_from_messages([{"role": "user", "content": "hi"}, bad])
    assert caught.value.path == path


def test_what_is_no_list_is_refused() -> None:
    with pytest.raises(errors.InvalidItem, match="messages"):
        items_from_messages({"role": "user"})
    with pytest.raises(errors.InvalidItem, match="items"):
        messages_from_items("text")
    with pytest.raises(errors.InvalidItem) as caught:
        messages_from_items([{"role": "user", "content": "hi"}, 5])
    assert caught.value.path == "items[1]"
