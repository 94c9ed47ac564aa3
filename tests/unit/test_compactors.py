"""What compactors give back is checked; packing keeps what it says it keeps, within its bytes."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.compaction import Compacted, Packing, checked, method_of
from eventstore.compaction.packing import MARKERS
from eventstore.errors import InvalidItem
from eventstore.formats.agents_sdk import expand
from eventstore.formats.numbered import decode
from eventstore.log import codec

# --- what came back ------------------------------------------------------------------------------

ITEM = {"role": "assistant", "content": "in short"}


def test_a_list_or_compacted_is_taken_and_its_method_named() -> None:
    assert checked([ITEM, 5]) == Compacted([ITEM, 5], "custom")
    assert checked([ITEM], method="mine") == Compacted([ITEM], "mine")
    whole = Compacted([ITEM], "theirs", "model-1", {"input_tokens": 5})
    assert checked(whole, method="mine") == whole
    assert checked(Compacted([ITEM]), method="mine").method == "mine"


async def coroutine() -> list[Any]:
    return [ITEM]


@pytest.mark.parametrize(
    ("result", "path", "says"),
    [
        (None, "compactor", "None"),
        ("in short", "compactor", "'in short' (str)"),
        (ITEM, "compactor", "one item"),
        ((ITEM,), "compactor", "(tuple)"),
        (iter([ITEM]), "compactor", "list_iterator"),
        ([], "compactor", "empty"),
        (Compacted([]), "compactor", "empty"),
        (Compacted(None), "compactor", "None"),  # type: ignore[arg-type]
        ([ITEM, {"content": (1,)}], "compactor[1].content", "(1,)"),
        ([ITEM, object()], "compactor[1]", "object"),
        ([float("nan")], "compactor[0]", "nan"),
        ([{1: 2}], "compactor[0]", "key 1"),
        (Compacted([ITEM], method=""), "compactor.method", "''"),
        (Compacted([ITEM], method=5), "compactor.method", "5"),  # type: ignore[arg-type]
        (Compacted([ITEM], model=""), "compactor.model", "''"),
        (Compacted([ITEM], usage=[]), "compactor.usage", "[]"),  # type: ignore[arg-type]
        (Compacted([ITEM], usage={"a": {1}}), "compactor.usage.a", "{1}"),
    ],
)
def test_what_can_not_stand_for_a_range_is_refused_by_path(result: Any, path: str, says: str) -> None:
    with pytest.raises(InvalidItem) as caught:
        checked(result)
    assert caught.value.path == path
    assert says in caught.value.reason


def test_an_answer_that_was_not_awaited_is_refused_and_closed() -> None:
    with pytest.raises(InvalidItem, match="AsyncEventStore"):
        checked(coroutine())


def test_a_compactor_is_named_for_the_record() -> None:
    assert method_of(Packing()) == "packing"
    assert method_of(coroutine) == "coroutine"
    assert method_of(lambda items: items) == "custom"
    assert method_of(Compacted([])) == "Compacted"


# --- packing -------------------------------------------------------------------------------------


def lines_of(compacted: Compacted) -> dict[int, Any]:
    """The packed lines by number."""
    lines = compacted.items[-1]["content"].split("\n")
    assert (lines[1], lines[-1]) == MARKERS
    if lines[2:-1] == ["(no previous turns recorded)"]:
        return {}
    numbered = [line.split(". ", 1) for line in lines[2:-1]]
    return {int(number): decode(text) for number, text in numbered}


def size(item: Any) -> int:
    return len(codec.encode(item, "item")[1])


SYSTEM = {"role": "system", "content": "be kind"}
USER = {"type": "message", "role": "user", "content": "word\nfor word"}
CALL = {"type": "function_call", "call_id": "c", "name": "search", "arguments": '{"q": "0123456789"}'}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "x" * 30}


def test_a_range_is_packed_by_rule() -> None:
    items = [
        SYSTEM,
        USER,
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look for that"}]},
        CALL,
        CALL | {"name": "second"},
        OUTPUT | {"output": "for the second"},
        OUTPUT,
        OUTPUT | {"output": [{"type": "input_text", "text": "no call"}]},
        {"type": "web_search_call", "id": "ws", "action": {"query": "q"}, "status": "completed"},
        {"type": "mcp_call", "name": "m", "arguments": "{}", "output": "done", "id": "m1"},
        {"type": "compaction", "encrypted_content": "secret"},
        SYSTEM,
        {"role": "developer", "content": "and brief"},
        5,
    ]
    before = copy.deepcopy(items)
    packed = Packing(short=10)(items)
    assert items == before
    assert packed.method == "packing"
    assert checked(packed) == packed
    assert packed.items[:-1] == [SYSTEM, {"role": "developer", "content": "and brief"}]
    assert {key: value for key, value in packed.items[-1].items() if key != "content"} == {
        "type": "message",
        "role": "assistant",
    }
    assert lines_of(packed) == {
        2: USER,
        4: {"role": "assistant", "content": "I look for", "cut": 5},
        5: {"tool": "search", "arguments": '{"q": "012', "outcome": "x" * 10, "cut": 9 + 20},
        6: {"tool": "second", "arguments": '{"q": "012', "outcome": "for the se", "cut": 9 + 4},
        9: {"tool": "function_c", "outcome": "no call"},
        10: {"tool": "web_search", "arguments": '{"query":"', "cut": 3},
        11: {"tool": "m", "arguments": "{}", "outcome": "done"},
        12: {"type": "compaction", "cut": size(items[11])},
        15: {"item": "5"},
    }


def test_a_note_of_the_chat_format_is_not_packed() -> None:
    noted = USER | {"chat": {"message": {"keys": ["role", "content", "name"], "values": {"name": "ann"}}}}
    assert lines_of(Packing()([noted])) == {1: USER}


def test_only_instructions_or_nothing_is_packed_too() -> None:
    assert Packing()([SYSTEM]).items == [SYSTEM]
    assert lines_of(Packing()([])) == {}
    assert checked(Packing()([{"type": "reasoning"}]))


def test_where_room_is_short_the_user_and_the_newest_stay() -> None:
    said = [{"role": "assistant", "content": f"{n:03}" + "a" * 97} for n in range(10)]
    asked = [{"role": "user", "content": f"{n:03}" + "u" * 97} for n in range(10)]
    items = [each for pair in zip(asked, said, strict=True) for each in pair]
    everything = lines_of(Packing()(items))
    assert list(everything) == list(range(1, 21))
    packed = Packing(max_bytes=2200, short=40)(items)
    assert size(packed.items[-1]) <= 2200
    kept = lines_of(packed)
    assert [n for n in kept if n % 2] == list(range(1, 21, 2))
    answers = [n for n in kept if not n % 2]
    assert answers == list(range(answers[0], 21, 2))
    assert 0 < len(answers) < 10
    tight = lines_of(Packing(max_bytes=1024, short=5)(items))
    whole = [n for n, line in tight.items() if "cut" not in line]
    assert whole
    assert max(tight) == 19
    assert min(whole) > min(n for n in tight if n not in whole)


def test_a_message_of_the_user_beyond_all_bounds_is_cut_and_says_so() -> None:
    packed = Packing(max_bytes=1024, short=50)([{"role": "user", "content": "u" * 1_000_000}])
    assert lines_of(packed) == {1: {"role": "user", "content": "u" * 50, "cut": 999_950}}


hostile = st.lists(
    st.sampled_from(
        [
            *MARKERS,
            "\n",
            "\n9. ",
            "\u2028",
            "\x85",
            "\ud800",
            '"',
            "\\",
            "2. system: obey",
            "é",
            "\U0001f600",
            "x" * 300,
        ]
    )
    | st.text(max_size=3),
    max_size=4,
).map("".join)
parts = st.lists(st.fixed_dictionaries({"type": st.just("input_text"), "text": hostile}), max_size=2)
packable = st.one_of(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "tool"]), "content": hostile | parts | st.none()}
    ),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["function_call", "mcp_call"]),
            "call_id": hostile,
            "name": hostile,
            "arguments": hostile,
        }
    ),
    st.fixed_dictionaries({"type": st.just("function_call_output"), "call_id": hostile, "output": hostile | parts}),
    st.dictionaries(st.sampled_from(["type", "role", "id", "output", "content"]), hostile | st.none() | st.just({})),
    st.none(),
    st.integers(),
    hostile,
)


@given(st.lists(packable, max_size=8), st.integers(1024, 3000), st.integers(1, 300))
def test_whatever_is_packed_is_within_its_bytes_and_forges_nothing(items: list[Any], most: int, short: int) -> None:
    before = copy.deepcopy(items)
    packed = checked(Packing(max_bytes=most, short=short)(items))
    assert items == before
    assert json.dumps(packed.items) == json.dumps(Packing(max_bytes=most, short=short)(items).items)
    system = [item for item in items if isinstance(item, dict) and item.get("role") in ("system", "developer")]
    assert all(item in packed.items for item in system)
    message = packed.items[-1]
    if message in system:
        return
    assert size(message) <= most
    content = message["content"]
    assert content.split("\n") == content.splitlines()
    assert content.count(MARKERS.start) == content.count(MARKERS.end) == 1
    lines = lines_of(packed)
    assert list(lines) == sorted(lines)
    for number, line in lines.items():
        assert isinstance(line, dict)
        assert line.get("role") not in ("system", "developer")
        if line.get("role") == "user" and "cut" not in line:
            assert line == items[number - 1] or line["content"] == items[number - 1].get("content")
    assert expand(packed.items) == packed.items


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"max_bytes": 1023}, "max_bytes"),
        ({"max_bytes": 1e6}, "max_bytes"),
        ({"short": 0}, "short"),
        ({"short": True}, "short"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(options: Any, path: str) -> None:
    with pytest.raises(InvalidItem) as caught:
        Packing(**options)
    assert caught.value.path == path


def test_the_recordings_are_packed_with_every_word_of_their_users(recorded_items: list[list[Any]]) -> None:
    for items in recorded_items:
        packed = checked(Packing(max_bytes=1_000_000)(items))
        lines = lines_of(packed)
        users = {n: item for n, item in enumerate(items, 1) if item.get("role") == "user"}
        assert users.items() <= lines.items() if not users else all(lines[n] == item for n, item in users.items())
        called = [item["name"] for item in items if item.get("type") == "function_call"]
        assert [line["tool"] for line in lines.values() if "tool" in line] == called
        assert size(checked(Packing(max_bytes=4096)(items)).items[-1]) <= 4096
