"""Chat messages as Responses items, and back.

A message becomes one item; an assistant message becomes its text, then one item a call. Back again,
calls join the assistant text before them. What an item has no place for is kept under its key
``chat``, so that messages → items → messages gives the same messages, key order included:

* ``chat.message``, on a message's first item: the message's ``keys`` in order and the ``values`` of
  those that its items don't hold. On a call it also says that the call begins a message.
* ``chat.call``, on a call: the same for the entry of ``tool_calls``; ``legacy`` marks a
  ``function_call``, the form without an id.

Nothing is held twice over two items: an item that is taken away takes all of its content along.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from eventstore.errors import InvalidItem
from eventstore.errors import describe as show
from eventstore.formats.chat_content import item_content, message_content
from eventstore.log.events import Json

_Object: TypeAlias = dict[str, Any]

_ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")
_CALLS: Final = {
    "function": ("function_call", "arguments"),
    "custom": ("custom_tool_call", "input"),
}
_CALL_TYPES: Final = {kind: word for word, (kind, _) in _CALLS.items()}
_OUTPUT_TYPES: Final = ("function_call_output", "custom_tool_call_output")


def items_from_messages(messages: Json, place: str = "messages") -> list[Json]:
    """Give the Responses items of a list of chat messages.

    Raises:
        InvalidItem: not chat messages; the path is like ``messages[3].role``, beginning with ``place``.
    """
    if not isinstance(messages, list):
        raise InvalidItem(place, f"{show(messages)} should be a list")
    items: list[Json] = []
    calls = _CallsSoFar()
    after_assistant = False
    for index, message in enumerate(messages):
        path = f"{place}[{index}]"
        role = _role(path, message)
        if role == "assistant":
            made = _assistant_items(path, index, message, calls)
            if after_assistant and made[0]["type"] != "message":
                made[0].setdefault("chat", {}).setdefault("message", {})
        elif role in ("tool", "function"):
            made = [_output_item(path, index, message, calls)]
        else:
            made = [_message_item(path, role, message)]
        after_assistant = role == "assistant"
        items += made
    return items


def messages_from_items(items: Json) -> list[Json]:
    """Give the chat messages that a list of Responses items stands for.

    Items that chat has no word for (reasoning, compaction, hosted tool calls …) are left out.

    Raises:
        InvalidItem: an item is not an object; the path is like ``items[3]``.
    """
    if not isinstance(items, list):
        raise InvalidItem("items", f"{show(items)} should be a list")
    messages: list[Json] = []
    turn: _Turn | None = None
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise InvalidItem(f"items[{index}]", f"{show(item)} should be an object")
        kind, kept = item.get("type"), _kept(item)
        if isinstance(kind, str) and kind in _CALL_TYPES:
            legacy, call = _call(item, kept)
            if turn is None or "message" in kept or (legacy and turn.function_call):
                if turn:
                    messages.append(turn.message())
                turn = _Turn({"role": "assistant", "content": None}, kept)
            turn.add(call, legacy=legacy)
        elif kind in _OUTPUT_TYPES or kind == "message" or (kind is None and "role" in item):
            if turn:
                messages.append(turn.message())
            natural = _tool_message(item) if kind in _OUTPUT_TYPES else _message(item)
            turn = _Turn(natural, kept)
            if natural["role"] != "assistant":
                messages.append(turn.message())
                turn = None
    if turn:
        messages.append(turn.message())
    return messages


def for_model(item: Json) -> Json:
    """Give the item without its note ``chat``, as a model's API takes it; any other value is given back itself.

    A key ``chat`` that was not made here stays.
    """
    if not isinstance(item, dict) or not _is_note(item.get("chat")):
        return item
    return {key: value for key, value in item.items() if key != "chat"}


# --- messages to items ---------------------------------------------------------------------------


@dataclass(slots=True)
class _CallsSoFar:
    """What outputs need to know of the calls before them."""

    custom: set[str] = field(default_factory=set)
    legacy: str | None = None


def _role(path: str, message: Json) -> str:
    if not isinstance(message, dict):
        raise InvalidItem(path, f"{show(message)} should be an object")
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        given = show(role) if "role" in message else "missing;"
        raise InvalidItem(f"{path}.role", f"{given} should be one of {', '.join(_ROLES)}")
    if role != "assistant" and "content" not in message:
        raise InvalidItem(f"{path}.content", f"missing; a {role} message needs it")
    return role


def _message_item(path: str, role: str, message: _Object) -> _Object:
    content, held = item_content(path, role, message)
    item = {"type": "message", "role": role, "content": content}
    return _keep(item, "message", _leftover(message, {"role": True, "content": held}))


def _assistant_items(path: str, index: int, message: _Object, calls: _CallsSoFar) -> list[_Object]:
    tool_calls = message.get("tool_calls")
    if tool_calls is not None and not isinstance(tool_calls, list):
        raise InvalidItem(f"{path}.tool_calls", f"{show(tool_calls)} should be a list")
    function_call = message.get("function_call")
    content, held = item_content(path, "assistant", message)
    items: list[_Object] = []
    if message.get("content") or not (tool_calls or function_call is not None):
        items.append({"type": "message", "role": "assistant", "content": content})
    else:
        held = message.get("content") is None
    natural = {"role": True, "content": held}
    if tool_calls:
        natural["tool_calls"] = True
        items += [_call_item(f"{path}.tool_calls[{i}]", call, calls) for i, call in enumerate(tool_calls)]
    if function_call is not None:
        natural["function_call"] = True
        items.append(_legacy_item(f"{path}.function_call", index, function_call, calls))
    _keep(items[0], "message", _leftover(message, natural))
    return items


def _call_item(path: str, call: Json, calls: _CallsSoFar) -> _Object:
    if not isinstance(call, dict):
        raise InvalidItem(path, f"{show(call)} should be an object")
    call_id = _text(path, call, "id")
    word = "custom" if "custom" in call and "function" not in call else "function"
    kind, payload = _CALLS[word]
    body = call.get(word)
    if not isinstance(body, dict):
        raise InvalidItem(f"{path}.{word}", f"{show(body)} should be an object")
    name, given = _text(f"{path}.{word}", body, "name"), _text(f"{path}.{word}", body, payload)
    if word == "custom":
        calls.custom.add(call_id)
    item = {"type": kind, "call_id": call_id, "name": name, payload: given}
    natural = {
        "id": True,
        "type": call.get("type") == word,
        word: list(body) == ["name", payload],
    }
    return _keep(item, "call", _leftover(call, natural))


def _legacy_item(path: str, index: int, call: Json, calls: _CallsSoFar) -> _Object:
    if not isinstance(call, dict):
        raise InvalidItem(path, f"{show(call)} should be an object")
    name, arguments = _text(path, call, "name"), _text(path, call, "arguments")
    calls.legacy = f"function_call_{index}"
    item = {
        "type": "function_call",
        "call_id": calls.legacy,
        "name": name,
        "arguments": arguments,
    }
    leftover = _leftover(call, {"name": True, "arguments": True}) or {}
    return _keep(item, "call", {"legacy": True} | leftover)


def _output_item(path: str, index: int, message: _Object, calls: _CallsSoFar) -> _Object:
    modern = message["role"] == "tool"
    if modern:
        call_id = _text(path, message, "tool_call_id")
    else:
        call_id = calls.legacy or f"function_call_{index}"
        calls.legacy = None
    output, held = item_content(path, "tool", message)
    kind = "custom_tool_call_output" if call_id in calls.custom else "function_call_output"
    item = {"type": kind, "call_id": call_id, "output": output}
    natural = {"role": modern, "tool_call_id": modern, "content": held}
    return _keep(item, "message", _leftover(message, natural))


def _text(path: str, holder: _Object, key: str) -> str:
    value = holder.get(key)
    if not isinstance(value, str):
        raise InvalidItem(f"{path}.{key}", f"{show(value)} should be text" if key in holder else "missing")
    return value


def _leftover(given: _Object, natural: Mapping[str, bool]) -> _Object | None:
    """Note what ``natural``, the keys that come back by themselves, lacks (False: not as given)."""
    if list(given) == list(natural) and all(natural.values()):
        return None
    values = {key: value for key, value in given.items() if not natural.get(key)}
    return {"keys": list(given), "values": values} if values else {"keys": list(given)}


def _keep(item: _Object, what: str, leftover: _Object | None) -> _Object:
    if leftover is not None:
        item["chat"] = {what: leftover, **item.get("chat", {})}
    return item


# --- items to messages ---------------------------------------------------------------------------


class _Turn:
    """A message in the making: an assistant's calls may still follow."""

    def __init__(self, natural: _Object, kept: _Object) -> None:
        self.natural = natural
        self.leftover = kept.get("message")
        self.tool_calls: list[_Object] = []
        self.function_call: _Object | None = None

    def add(self, call: _Object, *, legacy: bool) -> None:
        if legacy:
            self.function_call = call
        else:
            self.tool_calls.append(call)

    def message(self) -> _Object:
        calls: _Object = {}
        if self.tool_calls:
            calls["tool_calls"] = self.tool_calls
        if self.function_call is not None:
            calls["function_call"] = self.function_call
        # The calls that are there count, whatever the message once said: some may be retracted.
        return _restore(self.natural | calls, self.leftover) | calls


def _kept(item: _Object) -> _Object:
    kept = item.get("chat")
    return kept if isinstance(kept, dict) else {}


def _is_note(kept: Json) -> bool:
    """Say whether a value could be what ``_keep`` writes."""
    if not isinstance(kept, dict) or not kept or not kept.keys() <= {"message", "call"}:
        return False
    return all(isinstance(note, dict) and note.keys() <= {"keys", "values", "legacy"} for note in kept.values())


def _message(item: _Object) -> _Object:
    return {"role": item.get("role"), "content": message_content(item.get("content"))}


def _tool_message(item: _Object) -> _Object:
    return {
        "role": "tool",
        "tool_call_id": item.get("call_id"),
        "content": message_content(item.get("output")),
    }


def _call(item: _Object, kept: _Object) -> tuple[bool, _Object]:
    word = _CALL_TYPES[item["type"]]
    _, payload = _CALLS[word]
    body = {"name": item.get("name"), payload: item.get(payload)}
    leftover = kept.get("call")
    if isinstance(leftover, dict) and leftover.get("legacy") is True:
        return True, _restore(body, leftover)
    return False, _restore({"id": item.get("call_id"), "type": word, word: body}, leftover)


def _restore(natural: _Object, leftover: Json) -> _Object:
    if not isinstance(leftover, dict) or not isinstance(leftover.get("keys"), list):
        return natural
    values = leftover.get("values")
    known = natural | values if isinstance(values, dict) else natural
    return {key: known[key] for key in leftover["keys"] if isinstance(key, str) and key in known}
