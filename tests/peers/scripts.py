"""What scripted models say, and a session that keeps a record of how the runner calls it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from agents import Agent, Usage, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

Item = dict[str, Any]
T = TypeVar("T")
Make: TypeAlias = Callable[..., Any]
"""Makes a session: ``make(session_id, **options)``; the same id is the same conversation."""
Play: TypeAlias = Callable[[Callable[[Make], Coroutine[Any, Any, T]]], T]
"""Plays a story with sessions."""


def user(text: str) -> Item:
    return {"role": "user", "content": text}


def said(text: str) -> Item:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def call(call_id: str, name: str = "look_up", arguments: str = "{}") -> Item:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str, text: str = "found") -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def reasoning(number: int) -> Item:
    return {"id": f"rs_{number}", "type": "reasoning", "summary": [], "encrypted_content": "sealed"}


def answers(text: str, *, tokens: int = 10, response_id: str | None = None) -> ModelStep:
    """A final answer."""
    return ModelStep(
        output=[assistant_message(text)],
        usage=Usage(requests=1, input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1),
        response_id=response_id or f"resp_{text}",
    )


def calls(name: str, call_id: str, *, arguments: str = "{}", tokens: int = 10) -> ModelStep:
    """A call of a tool."""
    return ModelStep(
        output=[function_call(name, arguments, call_id=call_id)],
        usage=Usage(requests=1, input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1),
        response_id=f"resp_{call_id}",
    )


class Shelf:
    """A tool that counts how often it ran."""

    def __init__(self, *, approval: bool = False) -> None:
        self.ran = 0

        @function_tool(name_override="look_up", needs_approval=approval)
        def look_up() -> str:
            self.ran += 1
            return f"found {self.ran}"

        self.tool = look_up


def agent(*steps: Any, tools: list[Any] | None = None, name: str = "clerk", **more: Any) -> Agent[Any]:
    """An agent whose model says what was scripted."""
    return Agent(name=name, model=ScriptedModel(steps), tools=tools or [], **more)


def seen(who: Agent[Any], number: int = -1) -> list[Item]:
    """What the model was given at a call."""
    given = who.model.calls[number].input  # type: ignore[union-attr]
    return given if isinstance(given, list) else [user(given)]


def kinds(items: list[Any]) -> list[str]:
    """Roles of messages, types of the rest."""
    return [item.get("role") or item["type"] for item in items]


def texts(items: list[Any]) -> list[str]:
    """The text of each item, whatever its shape."""
    return [_text(item) for item in items]


def _text(item: Item) -> str:
    content = item.get("content", item.get("output", item.get("arguments", "")))
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


class Recorded:
    """A session with a record of the calls."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.calls: list[tuple[str, int]] = []
        self.session_id = session.session_id
        self.session_settings = session.session_settings

    async def get_items(self, limit: int | None = None) -> list[Any]:
        found = await self._session.get_items(limit)
        self.calls.append(("get", len(found)))
        return found

    async def add_items(self, items: list[Any]) -> None:
        self.calls.append(("add", len(items)))
        await self._session.add_items(items)

    async def pop_item(self) -> Any:
        self.calls.append(("pop", 1))
        return await self._session.pop_item()

    async def clear_session(self) -> None:
        self.calls.append(("clear", 0))
        await self._session.clear_session()
