"""Steps: a recording of several agents, each step an item of one of them.

A ``handoff`` step is the giver's item, then the handoff itself, offered and accepted. A recording
knows no more than who gave work to whom, so the envelope is the smallest one that is valid, and its
ids are counted: ``<conversation>/handoff-1`` and so on.
"""

from __future__ import annotations

from typing import Any, Final

from eventstore.errors import InvalidItem, InvalidName
from eventstore.errors import describe as show
from eventstore.log.events import ITEM, Event, Json
from eventstore.log.items import describe

_KINDS: Final = ("message", "thought", "handoff")
_MAX_GOAL: Final = 500


def events_of_steps(record: dict[str, Any], conversation: str, context: str) -> list[Event]:
    """Give the events of the line ``record``, whose ``steps`` are a list.

    Raises:
        InvalidName, InvalidItem: the path is like ``steps[4].kind``.
    """
    goal = _goal(record, conversation)
    events: list[Event] = []
    handoffs = 0
    for index, step in enumerate(record["steps"]):
        path = f"steps[{index}]"
        giver, receiver = _check(path, step)
        item = step["item"]
        subject, call_id = describe(item)
        events.append(Event(type=ITEM, data=item, subject=subject, call_id=call_id, agent=giver))
        if receiver is not None:
            handoffs += 1
            envelope = {
                "schema_version": 2,
                "context_id": context,
                "task_id": f"{conversation}/task",
                "handoff_id": f"{conversation}/handoff-{handoffs}",
                "goal": goal,
                "constraints": [],
                "decisions": [],
                "open_questions": [],
                "artifacts": [],
                "budget": {"max_tool_calls": 0, "max_tokens": 0},
                "owner": receiver,
                "status": "ready",
                "from_agent": giver,
            }
            events += _handoff(envelope, giver, receiver)
    return events


def _check(path: str, step: Json) -> tuple[str, str | None]:
    """Give the step's agent, and the receiver where it is a handoff."""
    if not isinstance(step, dict):
        raise InvalidItem(path, f"{show(step)} should be an object")
    for key in ("agent", "kind", "item"):
        if key not in step:
            raise InvalidItem(f"{path}.{key}", "missing; a step needs it")
    agent = _agent(f"{path}.agent", step["agent"])
    kind, to = step["kind"], step.get("to")
    if kind not in _KINDS:
        raise InvalidItem(f"{path}.kind", f"{show(kind)} should be one of {', '.join(_KINDS)}")
    if kind == "handoff":
        if to is None:
            raise InvalidItem(f"{path}.to", "missing; a handoff needs its receiver")
        return agent, _agent(f"{path}.to", to)
    if to is not None:
        _agent(f"{path}.to", to)
    return agent, None


def _agent(path: str, value: Json) -> str:
    if not isinstance(value, str):
        raise InvalidName(path, value, "should be text")
    if not value:
        raise InvalidName(path, value, "should not be empty")
    return value


def _handoff(envelope: dict[str, Json], giver: str, receiver: str) -> list[Event]:
    handoff_id = envelope["handoff_id"]
    accepted = {"handoff_id": handoff_id, "ack_id": f"{handoff_id}/ack", "by": receiver}
    offered = {"handoff_id": handoff_id, "attempt": 1, "envelope": envelope}
    return [
        Event(type="handoff.offered", data=offered, subject=handoff_id, agent=giver),
        Event(type="handoff.accepted", data=accepted, subject=handoff_id, agent=receiver),
    ]


def _goal(record: dict[str, Any], conversation: str) -> str:
    """Give the question that the recording was made for, else what the user said first."""
    asked = record.get("question")
    candidates = [asked] if isinstance(asked, str) else []
    candidates += [_text(step["item"]) for step in record["steps"] if _is_from_user(step)][:1]
    for text in candidates:
        if text[:_MAX_GOAL].strip():
            return text[:_MAX_GOAL]
    return conversation


def _is_from_user(step: Json) -> bool:
    item = step.get("item") if isinstance(step, dict) else None
    return isinstance(item, dict) and item.get("role") == "user"


def _text(item: dict[str, Any]) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))
