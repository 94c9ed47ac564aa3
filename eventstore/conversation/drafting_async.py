"""Drafting an envelope from what a conversation holds."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from eventstore.conversation.steps_async import LINE, look_at_line_async
from eventstore.conversation.stream_async import AsyncStream
from eventstore.errors import HandoffRefused
from eventstore.log import codec
from eventstore.log.catalogue.envelope import SCHEMA_VERSION, Envelope
from eventstore.log.decided_async import Look
from eventstore.log.events import Json
from projections import facts
from projections.handoffs import course
from projections.surroundings import TERMINAL, Effect, effects_of, tasks_of

_MAX_RESULT: Final = 1_000
"""Bytes of an effect's result that go into an envelope; a longer one stays in the log."""


async def draft_async(
    stream: AsyncStream, goal: str, to: str, agent: str | None, fields: Mapping[str, Any]
) -> Envelope:
    """Fold an envelope; fields that are given stand for what would be folded."""
    if "owner" in fields:
        raise HandoffRefused("owner", "to= names the receiver; give it there")
    look = await look_at_line_async(stream, LINE)
    data = folded(look, stream.name)
    if agent is not None:
        data["from_agent"] = agent
    data |= {name: plain(value) for name, value in fields.items()} | {"goal": goal, "owner": to}
    if data.get("task_id") is None:
        raise HandoffRefused("task_id", f"no open task in stream {stream.name!r}; open one, or give task_id=")
    if isinstance(goal, str) and not goal.strip():  # refused when it is offered, like all that is missing
        return Envelope.load(data | {"goal": "-"}).model_copy(update={"goal": goal})
    return Envelope.load(data)


def folded(look: Look, stream: str) -> dict[str, Json]:
    """Fold the fields that the lineage knows."""
    held = facts.fold(look.line)
    state = course(look.line, stream)
    effects = [_told(effect) for effect in effects_of(look.line).values() if effect.state != "failed"]
    tasks = [task for task, status in tasks_of(look.line).items() if status not in TERMINAL]
    confirmed = state.confirmed()
    last = state.handoffs[str(confirmed[-1].handoff_id)] if confirmed else None
    data: dict[str, Json] = {
        "schema_version": SCHEMA_VERSION,
        "context_id": look.context,
        "task_id": tasks[-1] if tasks else None,
        "handoff_id": f"handoff_{uuid.uuid4().hex}",
        "constraints": held.texts("constraint"),
        "decisions": held.texts("decision"),
        "open_questions": held.texts("question"),
        "artifacts": list(state.artifacts.values()),
        "budget": {"max_tool_calls": 0, "max_tokens": 0} if last is None else last.envelope["budget"],
        "status": "ready",
        "context_version": look.head,
    }
    if last is not None:
        data["from_agent"] = last.by
    optional = {"todos": held.texts("todo"), "effects": effects}
    return data | {name: value for name, value in optional.items() if value}


def _told(effect: Effect) -> dict[str, Json]:
    note = effect.note()
    if "result" in note and len(codec.encode(note["result"], "result")[1]) > _MAX_RESULT:
        del note["result"]
    return note


def plain(value: Any) -> Any:
    """Turn models and dataclasses, such as artifacts, into what JSON holds."""
    if isinstance(value, BaseModel):
        return plain(value.model_dump(exclude_unset=True, exclude_none=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = ((each.name, getattr(value, each.name)) for each in dataclasses.fields(value))
        return {name: plain(inner) for name, inner in given if inner is not None}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    return value
