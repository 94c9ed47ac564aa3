"""Windows against brute force, on recorded conversations and on hostile ones, at every limit."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore.errors import InvalidItem
from eventstore.log.events import Entry
from projections.pairs import Bond, bonds
from projections.tokens import estimate
from projections.windows import window


def message(role: str, text: str = "x") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


def call(name: str, kind: str = "function_call") -> dict[str, Any]:
    return {"type": kind, "call_id": name, "name": "f", "arguments": "{}"}


def result(name: str, kind: str = "function_call_output") -> dict[str, Any]:
    return {"type": kind, "call_id": name, "output": "ok"}


REASONING = {"type": "reasoning", "id": "rs", "summary": []}
SUMMARY = "summary"


def transcript(*items: Any) -> list[Entry]:
    """Entries with versions from 1; a tuple (SUMMARY, item) is one."""
    return [
        Entry(at, item[1], True) if isinstance(item, tuple) else Entry(at, item) for at, item in enumerate(items, 1)
    ]


def shown(entries: list[Entry], **options: Any) -> list[int]:
    return [entry.version for entry in window(entries, **options)]


@pytest.fixture(scope="module")
def conversations(recordings: Path) -> list[list[Entry]]:
    with gzip.open(recordings / "airline.jsonl.gz", "rt") as lines:
        return [transcript(*json.loads(line)["items"]) for line in lines]


def whole_calls(entries: list[Entry]) -> dict[int, int]:
    """Results by call, by version, found the slow way: each result looks back for an open call."""
    pairs: dict[int, int] = {}
    for at, entry in enumerate(entries):
        if entry.item["type"] != "function_call_output":
            continue
        for before in reversed(entries[:at]):
            same = before.item["type"] == "function_call" and before.item["call_id"] == entry.item["call_id"]
            if same and before.version not in pairs:
                pairs[before.version] = entry.version
                break
    return pairs


def test_every_limit_of_every_recording_is_exact_and_pair_safe(conversations: list[list[Entry]]) -> None:
    halves = 0
    for entries in conversations:
        pairs = whole_calls(entries)
        of_results = {result: call for call, result in pairs.items()}
        for limit in [*range(len(entries) + 3), None]:
            exact = entries if limit is None else entries[len(entries) - min(limit, len(entries)) :]
            assert window(entries, limit=limit) == exact
            versions = {entry.version for entry in exact}
            safe = [
                entry
                for entry in exact
                if (entry.item["type"] != "function_call" or pairs[entry.version] in versions)
                and (entry.item["type"] != "function_call_output" or of_results[entry.version] in versions)
            ]
            halves += len(exact) - len(safe)
            assert window(entries, limit=limit, pair_safe=True) == safe
            if limit is not None:
                assert window(entries[-limit - 1 :], limit=limit, pair_safe=True) == safe
    assert halves > 500


def test_every_head_of_every_recording_keeps_its_open_calls(conversations: list[list[Entry]]) -> None:
    for entries in conversations:
        for head in range(len(entries)):
            assert window(entries[:head], pair_safe=True) == entries[:head]


ITEMS = st.sampled_from(
    [message("user"), message("assistant"), message("system"), REASONING, {"type": "web_search_call", "id": "ws"}, 7]
) | st.builds(
    lambda name, kind, answer: result(name, kind + "_output") if answer else call(name, kind),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["function_call", "custom_tool_call", "computer_call", "shell_call"]),
    st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(ITEMS | st.tuples(st.just(SUMMARY), ITEMS), max_size=14), st.booleans())
def test_no_window_holds_a_half(items: list[Any], pin: bool) -> None:
    entries = transcript(*items)
    found = bonds(entries)
    for limit in [*range(len(entries) + 1), None]:
        kept = {entry.version - 1 for entry in window(entries, limit=limit, pin_summaries=pin, pair_safe=True)}
        plain = {entry.version - 1 for entry in window(entries, limit=limit, pin_summaries=pin)}
        assert kept <= plain
        for first, second in found:
            if first is None:
                assert second not in kept
            elif second is not None:
                assert (first in kept) == (second in kept)
            elif first in kept:
                after = [entries[at].item for at in range(first, len(entries))]
                assert all(isinstance(i, dict) and ("call_id" in i or i["type"] == "reasoning") for i in after)
        tied = {at for bond in found for at in bond if at is not None}
        assert plain - tied == kept - tied


@settings(max_examples=300, deadline=None)
@given(st.lists(ITEMS, max_size=14), st.integers(0, 14))
def test_one_entry_more_than_the_limit_is_enough_to_know(items: list[Any], limit: int) -> None:
    entries = transcript(*items)
    assert window(entries[-limit - 1 :], limit=limit, pair_safe=True) == window(entries, limit=limit, pair_safe=True)


@pytest.mark.parametrize(
    ("made", "answer"),
    [
        (call("1"), result("1")),
        (call("1", "custom_tool_call"), result("1", "custom_tool_call_output")),
        (call("1", "computer_call"), result("1", "computer_call_output")),
        (call("1", "shell_call"), result("1", "shell_call_output")),
        (call("1", "apply_patch_call"), result("1", "apply_patch_call_output")),
        (call("1", "local_shell_call"), {"type": "local_shell_call_output", "id": "1", "output": ""}),
        (call("1", "tool_search_call"), result("1", "tool_search_output")),
        ({"type": "mcp_approval_request", "id": "1"}, {"type": "mcp_approval_response", "approval_request_id": "1"}),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, {"role": "tool", "tool_call_id": "1"}),
    ],
)
def test_each_kind_of_call_is_paired_with_its_result(made: Any, answer: Any) -> None:
    entries = transcript(message("user"), made, answer, message("assistant"))
    assert bonds(entries) == [Bond(1, 2)]
    assert shown(entries, limit=2, pair_safe=True) == [4]
    assert shown(entries, limit=3, pair_safe=True) == [2, 3, 4]
    assert shown(entries[:2], pair_safe=True) == [1, 2]
    assert shown([entries[0], *entries[2:]], pair_safe=True) == [1, 4]


def test_kinds_with_one_id_are_not_each_others() -> None:
    assert bonds(transcript(call("1"), result("1", "shell_call_output"))) == [Bond(None, 1), Bond(0, None)]


def test_a_call_that_brings_its_result_needs_no_other() -> None:
    entries = transcript(*[{"type": f"{kind}_call", "id": "1"} for kind in ("web_search", "mcp", "file_search")], 1)
    assert shown(entries, pair_safe=True) == [1, 2, 3, 4]


def test_an_id_used_again_pairs_with_the_nearest_open_call() -> None:
    assert bonds(transcript(call("1"), result("1"), call("1"), result("1"))) == [Bond(0, 1), Bond(2, 3)]
    twice = transcript(call("1"), call("1"), result("1"), result("1"))
    assert bonds(twice) == [Bond(1, 2), Bond(0, 3)]


def test_an_open_call_stays_while_only_calls_results_and_reasoning_came_after_it() -> None:
    entries = transcript(message("user"), call("a"), call("b"), result("b"))
    assert shown(entries, pair_safe=True) == [1, 2, 3, 4]
    assert shown([*entries, Entry(5, message("user"))], pair_safe=True) == [1, 3, 4, 5]


def test_reasoning_and_the_item_that_it_led_to_go_together() -> None:
    entries = transcript(message("user"), REASONING, call("a"), result("a"), REASONING, message("assistant"))
    assert shown(entries, limit=4, pair_safe=True) == [5, 6]
    assert shown(entries, limit=1, pair_safe=True) == []
    assert shown(entries, limit=5, pair_safe=True) == [2, 3, 4, 5, 6]


def test_reasoning_that_led_to_nothing_is_dropped_and_takes_nobody_along() -> None:
    entries = transcript(REASONING, message("user"), REASONING)
    assert shown(entries, pair_safe=True) == [2]
    assert shown(entries, limit=2, pair_safe=True) == [2]


def test_a_call_in_a_chat_message_with_several_needs_all_its_results() -> None:
    made = {"role": "assistant", "tool_calls": [{"id": "1"}, {"id": "2"}]}
    entries = transcript(made, {"role": "tool", "tool_call_id": "1"}, {"role": "tool", "tool_call_id": "2"})
    assert shown(entries, pair_safe=True) == [1, 2, 3]
    assert shown([entries[0], entries[2], Entry(4, message("user"))], pair_safe=True) == [4]


class TestPins:
    entries = transcript(
        message("system"),
        message("developer"),
        (SUMMARY, message("user")),
        message("system"),
        message("user"),
        message("system"),
        (SUMMARY, message("user")),
        message("user"),
        message("assistant"),
    )

    def test_summaries_and_leading_instructions_stay_and_the_limit_counts_the_others(self) -> None:
        assert shown(self.entries, limit=0, pin_summaries=True) == [1, 2, 3, 4, 7]
        assert shown(self.entries, limit=1, pin_summaries=True) == [1, 2, 3, 4, 7, 9]
        assert shown(self.entries, limit=3, pin_summaries=True) == [1, 2, 3, 4, 6, 7, 8, 9]
        assert shown(self.entries, pin_summaries=True) == [1, 2, 3, 4, 5, 6, 7, 8, 9]

    def test_without_pins_they_are_entries_like_others(self) -> None:
        assert shown(self.entries, limit=2) == [8, 9]

    def test_pins_stay_and_weigh_first_under_a_number_of_tokens(self) -> None:
        options = {"pin_summaries": True, "count_tokens": lambda _: 10}
        assert shown(self.entries, max_tokens=70, **options) == [1, 2, 3, 4, 7, 8, 9]
        assert shown(self.entries, max_tokens=69, **options) == [1, 2, 3, 4, 7, 9]
        assert shown(self.entries, max_tokens=3, **options) == [1, 2, 3, 4, 7]


class TestTokens:
    def test_the_longest_end_that_fits(self, conversations: list[list[Entry]]) -> None:
        for entries in conversations[:20]:
            weights = [estimate(entry.item) for entry in entries]
            for budget in [0, 1, 100, 1_000, sum(weights) - 1, sum(weights)]:
                kept = window(entries, max_tokens=budget)
                assert kept == entries[len(entries) - len(kept) :]
                assert sum(weights[len(entries) - len(kept) :]) <= budget
                assert len(kept) == len(entries) or sum(weights[len(entries) - len(kept) - 1 :]) > budget

    def test_an_item_that_does_not_fit_ends_the_view_though_older_ones_would(self) -> None:
        entries = transcript(message("user"), message("user", "x" * 100), message("user"))
        assert shown(entries, max_tokens=30) == [3]

    def test_a_counter_of_ones_own(self) -> None:
        entries = transcript(*[message("user")] * 5)
        assert shown(entries, max_tokens=2, count_tokens=lambda item: len(item["content"])) == [4, 5]
        assert shown(entries, max_tokens=4, limit=3, count_tokens=lambda _: 2) == [4, 5]

    def test_the_estimate_is_bytes_by_four_also_of_what_orjson_cannot_hold(self) -> None:
        assert estimate({"a": "é"}) == 3  # 10 bytes
        assert estimate([2**80, "\ud800"]) == 10


@pytest.mark.parametrize("name", ["limit", "max_tokens"])
@pytest.mark.parametrize("value", [-1, 1.0, True, "1"])
def test_what_is_no_number_from_0_on_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidItem, match=rf"^{name}: .*should be a number from 0 on") as caught:
        window([], **{name: value})
    assert caught.value.path == name
