"""The append of a session: one round trip, and again only where a repeat met a pop or a clear."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eventstore.adapters.openai_agents.runs import Run
from eventstore.conversation.handle_async import AsyncConversation
from eventstore.conversation.transcripts_async import read_basis_async
from eventstore.log.batch import MAX_EVENTS
from eventstore.log.events import ITEM, AppendResult, Event
from eventstore.log.names import derived_ids
from eventstore.log.read_async import find_async
from eventstore.store_async import AsyncScope


async def append(
    scope: AsyncScope, chat_of: Callable[[AsyncScope], AsyncConversation], events: Sequence[Event], key: str | None
) -> None:
    """Append events, all or none; more than one append can take go in one transaction."""
    if len(events) <= MAX_EVENTS:
        await _once(chat_of(scope), events, key)
        return
    async with scope.transaction() as transaction:
        for start in range(0, len(events), MAX_EVENTS):
            part = key if key is None or not start else f"{key}/{start}"
            await _once(chat_of(transaction), events[start : start + MAX_EVENTS], part)


async def _once(chat: AsyncConversation, events: Sequence[Event], key: str | None) -> None:
    done = await chat.append_events(events, key=key)
    if done.deduplicated:
        await _restore(chat, events, key, done)


async def _restore(chat: AsyncConversation, events: Sequence[Event], key: str | None, done: AppendResult) -> None:
    """Append again what a repeat found stored, and taken out since: who popped the input and retries wants it back."""
    basis = await read_basis_async(chat.route.caller, chat.tenant, chat.name, None, 0)
    if basis is None:
        return
    kept = basis.ranges.originals(basis.version)
    missing = [
        event
        for version, event in enumerate(events, done.first_version)
        if event.type == ITEM and not any(piece.first <= version <= piece.last for piece in kept)
    ]
    if missing:
        await chat.append_events(missing, key=f"{key}@{basis.ranges.control}")


async def earlier_input(chat: AsyncConversation, run: Run) -> set[int]:
    """Give the versions of the input that an earlier attempt of a run stored."""
    event_id = derived_ids(chat.tenant, chat.name, run.input_key, 1)[0]
    found = await find_async(chat.route.caller, chat.tenant, chat.name, event_id=event_id)
    if found is None:
        return set()
    versions: set[int] = set()
    ids = iter(derived_ids(chat.tenant, chat.name, run.input_key, MAX_EVENTS))
    async for event in chat.events(found.version, types=[ITEM]):
        if event.event_id != next(ids, None):
            break
        versions.add(event.version)
    return versions
