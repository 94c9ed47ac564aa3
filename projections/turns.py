"""Turns of a conversation, and what was used in them: tokens, requests, tools.

A turn begins with a user's message and goes on to the next one. Turns are counted in the originals, so a compaction
changes no number; what was retracted or cleared is no turn any more. What was used before the first turn, or in one
that is gone, counts for the whole and for no turn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from eventstore.log.events import Entry, Json

_TOKENS: Final = ("requests", "input_tokens", "output_tokens", "total_tokens")
_DETAILS: Final = ("input_tokens_details", "output_tokens_details")
_BY_TYPE: Final = frozenset(
    {
        "apply_patch_call",
        "code_interpreter_call",
        "computer_call",
        "file_search_call",
        "image_generation_call",
        "local_shell_call",
        "shell_call",
        "web_search_call",
    }
)
_BY_NAME: Final = frozenset({"custom_tool_call", "function_call", "tool_call"})
_BY_SERVER: Final = frozenset({"mcp_approval_request", "mcp_call"})


@dataclass(slots=True)
class Usage:
    """What model calls used; the details are sums by kind, as ``{"cached_tokens": 12}``."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    input_tokens_details: dict[str, int] = field(default_factory=dict)
    output_tokens_details: dict[str, int] = field(default_factory=dict)

    def add(self, given: Mapping[str, Any]) -> None:
        """Add what a provider counted for a response."""
        self.requests += _count(given.get("requests", 1))
        for name in _TOKENS[1:]:
            setattr(self, name, getattr(self, name) + _count(given.get(name)))
        if "total_tokens" not in given:
            self.total_tokens += _count(given.get("input_tokens")) + _count(given.get("output_tokens"))
        for name in _DETAILS:
            details, sums = given.get(name), getattr(self, name)
            for kind, count in details.items() if isinstance(details, Mapping) else ():
                sums[kind] = sums.get(kind, 0) + _count(count)


@dataclass(slots=True)
class Turn:
    """A turn: its number from 1, the version of its message, the message, and what was used in it."""

    number: int
    version: int
    message: Json
    usage: Usage = field(default_factory=Usage)
    tools: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Used:
    """The whole of a conversation, and its turns in order."""

    total: Usage
    turns: list[Turn]


def turns(originals: Iterable[Entry]) -> list[Turn]:
    """Give the turns of a conversation, with the tools that were called in each."""
    found: list[Turn] = []
    searches: Counter[int] = Counter()
    for entry in originals:
        if is_user_message(entry.item):
            found.append(Turn(len(found) + 1, entry.version, entry.item))
        elif found and (tool := tool_of(entry.item)) is not None:
            if entry.item["type"] == "tool_search_call":
                searches[found[-1].number] += 1
            if entry.item["type"] != "tool_search_output" or not searches[found[-1].number]:
                found[-1].tools[tool] += 1
    return found


def used(originals: Iterable[Entry], spoken: Sequence[int], responses: Iterable[tuple[int, Mapping[str, Any]]]) -> Used:
    """Say what was used.

    Args:
        originals: of the conversation.
        spoken: versions of all users' messages that were ever appended, ascending: they say which turn a response
            was made in, also where that turn is gone.
        responses: (version, usage as the provider gave it) of recorded responses.
    """
    whole = Used(Usage(), turns(originals))
    by_version = {turn.version: turn for turn in whole.turns}
    for version, usage in responses:
        whole.total.add(usage)
        before = bisect_right(spoken, version)
        turn = by_version.get(spoken[before - 1]) if before else None
        if turn is not None:
            turn.usage.add(usage)
    return whole


def is_user_message(item: Json) -> bool:
    """Say whether a user said this."""
    return isinstance(item, dict) and item.get("role") == "user"


def tool_of(item: Json) -> str | None:
    """Name the tool that an item calls; None where it calls none.

    Functions by name, with their namespace; tools of a server as ``server.tool``; hosted tools by type.
    """
    kind = item.get("type") if isinstance(item, dict) else None
    if not isinstance(kind, str):
        return None
    if kind in ("tool_search_call", "tool_search_output"):
        return "tool_search"
    if kind in _BY_TYPE:
        return kind
    parts: list[Any] = []
    if kind in _BY_NAME:
        parts = [item.get("namespace"), item.get("name")]
    elif kind in _BY_SERVER:
        parts = [item.get("server_label"), item.get("name")]
    return ".".join(part for part in parts if isinstance(part, str) and part) or None


def _count(value: object) -> int:
    return value if type(value) is int and value > 0 else 0
