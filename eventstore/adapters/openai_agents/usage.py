"""What a session used: recorded with each response, and counted from the log, by session, turn and tool.

The shapes are those of the SDK's ``AdvancedSQLiteSession``. Turns are counted as ``projections.turns`` says, so there
is no figure for a turn that does not exist.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from agents.result import RunResultBase

from eventstore.adapters.openai_agents.runs import RECORDED, Run, id_of, response_event
from eventstore.conversation.handle_async import AsyncConversation
from eventstore.conversation.receipts import check_sources
from eventstore.errors import StreamNotFound
from eventstore.log.events import ITEM
from eventstore.log.names import storable
from eventstore.log.read_async import find_async
from projections.turns import Usage, Used, is_user_message, used

_PREVIEW: Final = 100


async def record(
    chat: AsyncConversation,
    run: Run,
    result: RunResultBase,
    *,
    conversation_id: str | None,
    previous_response_id: str | None,
) -> None:
    """Record those responses of a run that are not recorded yet."""
    check_sources(None, previous_response_id, conversation_id)
    before = previous_response_id
    for number, response in enumerate(result.raw_responses, 1):
        response_id = id_of(response, run, number)
        subject = storable("response_id", response_id)
        caller, tenant = chat.route.caller, chat.tenant
        if await find_async(caller, tenant, chat.name, kind=RECORDED, subject=subject) is None:
            event = response_event(response, run, number, model=None)
            about = {"conversation_id": conversation_id, "previous_response_id": before}
            data = event.data | {name: value for name, value in about.items() if value is not None}
            key = f"openai-agents/{run.run_id}/response/{response_id}"
            await chat.append_events([dataclasses.replace(event, data=data)], key=key)
        before = None if previous_response_id is None else response_id
    run.responses.clear()


async def read(chat: AsyncConversation) -> Used:
    """Count what a session used; nothing where it does not exist."""
    try:
        shown = await chat.shown(originals=True)
    except StreamNotFound:
        return Used(Usage(), [])
    spoken: list[int] = []
    responses: list[tuple[int, dict[str, Any]]] = []
    async for event in chat.events(1, shown.version, types=[ITEM, RECORDED]):
        if event.type == RECORDED:
            responses.append((event.version, event.data.get("usage") or {}))
        elif is_user_message(event.data):
            spoken.append(event.version)
    return used(shown.entries, spoken, responses)


def session(found: Used) -> dict[str, int] | None:
    """Give the sums of the session."""
    total = found.total
    if not total.requests:
        return None
    return _tokens(total) | {"total_turns": sum(turn.usage.requests > 0 for turn in found.turns)}


def by_turn(found: Used, number: int | None) -> list[dict[str, Any]] | dict[str, Any]:
    """Give a turn's sums, or all."""
    rows = [
        {"user_turn_number": turn.number, **dataclasses.asdict(turn.usage)}
        for turn in found.turns
        if turn.usage.requests
    ]
    if number is None:
        return rows
    for row in rows:
        if row.pop("user_turn_number") == number:
            return row
    return {}


def by_tool(found: Used) -> list[tuple[str, int, int]]:
    """Give (tool, times, turn)."""
    return [(tool, times, turn.number) for turn in found.turns for tool, times in turn.tools.items()]


def listed(found: Used) -> list[dict[str, Any]]:
    """Give the turns."""
    rows = []
    for turn in found.turns:
        content = turn.message.get("content", "")
        text = content if isinstance(content, str) else _text(content)
        short = text if len(text) <= _PREVIEW else text[:_PREVIEW] + "..."
        rows.append({"turn": turn.number, "version": turn.version, "content": short, "full_content": content})
    return rows


def _tokens(total: Usage) -> dict[str, int]:
    return {
        "requests": total.requests,
        "input_tokens": total.input_tokens,
        "output_tokens": total.output_tokens,
        "total_tokens": total.total_tokens,
    }


def _text(content: Any) -> str:
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part["text"]) for part in parts if isinstance(part, dict) and "text" in part)
