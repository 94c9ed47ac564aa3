"""Which entries of a transcript are of no use without each other: calls and results, reasoning and its item.

A call and its result share an id, which may be used again later: a result belongs to the nearest earlier
call of its kind that is still open. A reasoning item belongs to the item after it, where a model made that
one; otherwise what it led to never came.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from eventstore.log.events import Entry, Json

Key: TypeAlias = tuple[str, str]
"""What a call and its result have in common: the kind of call, and the id."""


class Bond(NamedTuple):
    """Two entries, by index, that belong together. None: there is no such entry."""

    first: int | None
    second: int | None


# Results whose type is not that of the call with "_output" behind it.
_ANSWERED: Final = {"mcp_approval_response": "mcp_approval_request", "tool_search_output": "tool_search_call"}
_INPUT_ROLES: Final = frozenset({"user", "system", "developer", "tool", "function"})


def calls(item: Json) -> list[Key]:
    """Give the calls that an item makes and that another item is to answer.

    Any type that ends with ``_call`` and has a ``call_id``; ``mcp_approval_request``; ``tool_calls`` of a chat
    message. Calls that bring their own result (``web_search_call`` …) have no ``call_id``.
    """
    if not isinstance(item, dict):
        return []
    if isinstance(kind := item.get("type"), str):
        if kind == "mcp_approval_request":
            return _key(kind, item.get("id"))
        if kind.endswith("_call"):
            return _key(kind, item.get("call_id"))
    made = item.get("tool_calls")
    if isinstance(made, list):
        return [key for call in made if isinstance(call, dict) for key in _key("tool", call.get("id"))]
    return []


def results(item: Json) -> list[Key]:
    """Give the calls that an item answers."""
    if not isinstance(item, dict):
        return []
    kind = item.get("type")
    if isinstance(kind, str):
        if kind == "mcp_approval_response":
            return _key(_ANSWERED[kind], item.get("approval_request_id"))
        if kind in _ANSWERED or kind.endswith("_call_output"):
            call = _ANSWERED.get(kind) or kind.removesuffix("_output")
            return _key(call, item.get("call_id")) or _key(call, item.get("id"))
    return _key("tool", item.get("tool_call_id")) if item.get("role") == "tool" else []


def is_reasoning(item: Json) -> bool:
    """Tell whether an item is a model's reasoning, which belongs to what comes after it."""
    return isinstance(item, dict) and item.get("type") == "reasoning"


def is_instruction(item: Json) -> bool:
    """Tell whether an item is a message of the system's or the developer's."""
    return _is_message(item) and item.get("role") in ("system", "developer")


def is_from_model(item: Json) -> bool:
    """Tell whether a model made an item; what is no mapping counts as input."""
    if not isinstance(item, dict) or results(item):
        return False
    return not (_is_message(item) and item.get("role") in _INPUT_ROLES)


def bonds(entries: Sequence[Entry]) -> list[Bond]:
    """Find what belongs together in a whole transcript, or in the end of one.

    A call that nothing answers is ``Bond(call, None)``, a result without its call ``Bond(None, result)``,
    reasoning that led to nothing ``Bond(reasoning, None)``.
    """
    found: list[Bond] = []
    waiting: defaultdict[Key, list[int]] = defaultdict(list)
    for at, entry in enumerate(entries):
        found += [Bond(waiting[key].pop() if waiting[key] else None, at) for key in results(entry.item)]
        for key in calls(entry.item):
            waiting[key].append(at)
        if is_reasoning(entry.item):
            after = entries[at + 1] if at + 1 < len(entries) else None
            led = after is not None and not after.summary and is_from_model(after.item)
            found.append(Bond(at, at + 1 if led else None))
    found += [Bond(at, None) for unanswered in waiting.values() for at in unanswered]
    return found


def groups(size: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Give each of ``size`` indexes the lowest index that pairs tie it to, itself where there is none."""
    least = list(range(size))

    def root(at: int) -> int:
        while least[at] != at:
            least[at] = least[least[at]]
            at = least[at]
        return at

    for pair in pairs:
        low, high = sorted(map(root, pair))
        least[high] = low
    return [root(at) for at in range(size)]


def _is_message(item: Json) -> bool:
    return isinstance(item, dict) and item.get("type", "message") == "message"


def _key(kind: str, value: Json) -> list[Key]:
    return [(kind, value)] if isinstance(value, str) else []
