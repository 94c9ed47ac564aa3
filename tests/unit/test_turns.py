"""Turns, and what was used in them, counted from entries and recorded responses."""

from __future__ import annotations

from typing import Any

import pytest

from eventstore.log.events import Entry
from projections.turns import tool_of, turns, used


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_what_was_used_before_the_first_turn_or_in_one_that_is_gone_is_in_no_turn() -> None:
    entries = [Entry(3, user("a")), Entry(9, user("c"))]
    responses = [
        (1, {"input_tokens": 1}),
        (4, {"input_tokens": 2}),
        (7, {"input_tokens": 4}),
        (10, {"input_tokens": 8}),
    ]
    found = used(entries, [3, 6, 9], responses)  # the message at 6 was taken back
    assert [(turn.number, turn.usage.input_tokens) for turn in found.turns] == [(1, 2), (2, 8)]
    assert (found.total.requests, found.total.input_tokens, found.total.total_tokens) == (4, 15, 15)


def test_details_are_summed_and_what_is_no_count_is_nothing() -> None:
    usage = {"requests": 2, "total_tokens": 9, "input_tokens": None, "input_tokens_details": {"cached_tokens": 3}}
    found = used(
        [Entry(1, user("a"))], [1], [(2, usage), (3, usage | {"output_tokens": -5, "output_tokens_details": 3})]
    )
    assert found.total.requests == 4
    assert found.total.total_tokens == 18
    assert found.total.output_tokens == 0
    assert found.turns[0].usage.input_tokens_details == {"cached_tokens": 6}


@pytest.mark.parametrize(
    ("item", "tool"),
    [
        ({"type": "function_call", "name": "f"}, "f"),
        ({"type": "function_call", "name": "f", "namespace": "n"}, "n.f"),
        ({"type": "mcp_call", "server_label": "s", "name": "f"}, "s.f"),
        ({"type": "mcp_approval_request", "server_label": "s"}, "s"),
        ({"type": "web_search_call", "name": "ignored"}, "web_search_call"),
        ({"type": "function_call_output", "name": "f"}, None),
        ({"type": "function_call"}, None),
        ({"type": ["odd"]}, None),
        ("text", None),
    ],
)
def test_a_tool_has_the_name_that_it_was_called_by(item: Any, tool: str | None) -> None:
    assert tool_of(item) == tool


def test_a_search_for_tools_counts_once_with_its_output_or_without_its_call() -> None:
    call, output = {"type": "tool_search_call"}, {"type": "tool_search_output"}
    items = [user("a"), call, output, user("b"), output]
    found = turns(Entry(version, item) for version, item in enumerate(items, 1))
    assert [dict(turn.tools) for turn in found] == [{"tool_search": 1}, {"tool_search": 1}]
