"""An event for the eye: who said what, which function was called with what, and what came back."""

from __future__ import annotations

from typing import Any

from eventstore.adapters.cli.output import compact, visible
from eventstore.log import catalogue
from eventstore.log.events import ITEM, Json, RecordedEvent, UndecodableEvent

_ITEMS = (ITEM, "summary.appended")


def readable(event: RecordedEvent) -> str:
    """Give the content of an event as text, safe to show; an item in its own form, anything else as JSON."""
    if isinstance(event, UndecodableEvent):
        return visible(f"can't be decoded: {event.error.reason}\n{_text(event.raw_data)}")
    text = item_text(event.data) if event.type in _ITEMS else None
    return visible(compact(event.data) if text is None else text)


def item_text(item: Json) -> str | None:
    """Give the text of an item, None where it is of no kind that is known here."""
    if not isinstance(item, dict):
        return None
    kind = item.get("type", "message" if "role" in item else None)
    if kind == "message":
        return _message(item)
    if kind == "function_call":
        return f"{item.get('name')}({_content(item.get('arguments'))})"
    if kind == "custom_tool_call":
        return f"{item.get('name')}({_content(item.get('input'))})"
    if isinstance(kind, str) and kind.endswith("_output") and "output" in item:
        return f"{item.get('call_id')} → {_content(item['output'])}"
    if kind == "reasoning" and item.get("summary"):
        return f"reasoning: {_content(item['summary'])}"
    return None


def _message(item: dict[str, Any]) -> str:
    """Give what was said, then what was called: a raw chat message holds both."""
    said, given = item.get("content"), item.get("tool_calls")
    calls = [_call(call) for call in given] if isinstance(given, list) else []
    if isinstance(item.get("function_call"), dict):
        calls.append(_call(item))
    if calls and not said:
        return "\n".join(calls)
    return "\n".join([f"{item.get('role')}: {_content(said)}", *calls])


def _call(call: Json) -> str:
    """Give an entry of ``tool_calls``, or a message with the ``function_call`` of older ones."""
    if isinstance(call, dict):
        for key, word in (("function", "arguments"), ("custom", "input"), ("function_call", "arguments")):
            called = call.get(key)
            if isinstance(called, dict):
                return f"{called.get('name')}({_content(called.get(word))})"
    return compact(call)


def _content(content: Json) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_part(part) for part in content)
    return compact(content)


def _part(part: Json) -> str:
    if isinstance(part, dict):
        for key in ("text", "refusal"):
            if isinstance(part.get(key), str):
                text: str = part[key]
                return text
    return compact(part)


def fields(event: RecordedEvent) -> dict[str, Any]:
    """Give all of an event as JSON values; ``schema_version`` is that of the data as it is shown here.

    One that can't be decoded has ``error``, ``raw_data`` and ``raw_metadata`` in place of data and metadata.
    """
    content: dict[str, Any]
    if isinstance(event, UndecodableEvent):
        version = event.schema_version
        beside = None if event.raw_metadata is None else _text(event.raw_metadata)
        content = {"error": event.error.reason, "raw_data": _text(event.raw_data), "raw_metadata": beside}
    else:
        version = catalogue.current_version(event.type) if catalogue.knows(event.type) else event.schema_version
        content = {"data": event.data, "metadata": event.metadata}
    return {
        "tenant": event.tenant,
        "context": event.context,
        "stream": event.stream,
        "version": event.version,
        "position": event.position,
        "event_id": str(event.event_id),
        "type": event.type,
        "schema_version": version,
        **content,
        "subject": event.subject,
        "agent": event.agent,
        "call_id": event.call_id,
        "task_id": event.task_id,
        "run_id": event.run_id,
        "unique_key": event.unique_key,
        "recorded_at": event.recorded_at.isoformat(),
        "hash": event.hash.hex(),
    }


def _text(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")
