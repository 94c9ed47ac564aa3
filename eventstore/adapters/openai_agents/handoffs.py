"""What the next agent is given at a handoff: the whole conversation, flattened, as one block.

The filter takes it from the log, where each item stands once, so nothing is read back out of any text, whatever the
length of the chain. The mapper has only what the SDK hands it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from agents import HandoffInputData, TResponseInputItem
from agents.items import ToolApprovalItem

from eventstore.adapters.openai_agents.plain import plain
from eventstore.compaction.counting import encoded_size
from eventstore.conversation.handle_async import AsyncConversation
from eventstore.formats import agents_sdk, numbered
from eventstore.formats.chat import for_model
from eventstore.log.events import Event, Json
from projections.turns import is_user_message

if TYPE_CHECKING:
    from eventstore.adapters.openai_agents.session import ConvstoreSession

VIEWED: Final = "x.openai_agents.handoff_view"


def handoff_filter(
    session: ConvstoreSession, *, markers: Sequence[str] | None = None
) -> Callable[[HandoffInputData], Awaitable[HandoffInputData]]:
    """Make an ``input_filter`` for a handoff, or ``RunConfig(handoff_input_filter=…)``, of runs with this session.

    The next agent is given one message with the originals of the conversation and what the turn has made; the session
    stores what the agents said, never the block. Its size is recorded as ``x.openai_agents.handoff_view``.

    Raises:
        InvalidItem: ``markers`` is no pair of lines that can frame a block.
    """
    numbered.check_markers(markers)

    async def input_filter(data: HandoffInputData) -> HandoffInputData:
        fresh = [plain(item.to_input_item()) for item in data.new_items if not isinstance(item, ToolApprovalItem)]
        chat = await session.chat()
        message, items = await _flattened(chat, fresh, markers)
        agent = None if data.run_context is None else session.run_of(data.run_context).agent
        await _record(chat, message, items, agent)
        return data.clone(input_history=(message,), pre_handoff_items=(), input_items=())

    return input_filter


def history_mapper(*, markers: Sequence[str] | None = None) -> Callable[[list[Any]], list[TResponseInputItem]]:
    """Make a ``handoff_history_mapper``: the same block, of what the SDK hands over.

    Histories nested in it are expanded first, so blocks don't grow into each other.

    Raises:
        InvalidItem: ``markers`` is no pair of lines that can frame a block.
    """
    chosen = numbered.check_markers(markers)

    def mapper(transcript: list[Any]) -> list[TResponseInputItem]:
        items = agents_sdk.expand(map(plain, transcript), chosen)
        return [cast("TResponseInputItem", numbered.render(items, chosen))]

    return mapper


async def _flattened(
    chat: AsyncConversation, fresh: list[Json], markers: Sequence[str] | None
) -> tuple[TResponseInputItem, list[Json]]:
    """Give the next agent's view, and the items that it holds; each once, also where a resumed turn stored some."""
    items = [for_model(item) for item in await chat.originals()]
    begin = max((index for index, item in enumerate(items) if is_user_message(item)), default=0)
    items += [item for item in fresh if item not in items[begin:]]
    return cast("TResponseInputItem", numbered.render(items, markers)), items


async def _record(chat: AsyncConversation, message: TResponseInputItem, items: list[Json], agent: str | None) -> None:
    data = {"items": len(items), "source_bytes": sum(map(encoded_size, items)), "bytes": encoded_size(message)}
    await chat.append_events([Event(type=VIEWED, data=data, agent=agent)])
