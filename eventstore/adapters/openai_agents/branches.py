"""Where a session branches off, in turns."""

from __future__ import annotations

from eventstore.conversation.handle_async import AsyncConversation
from eventstore.errors import InvalidItem, StreamExists, StreamNotFound, describe
from projections.turns import turns


async def end_of_turn(chat: AsyncConversation, number: object) -> int:
    """Give the last version of a turn, by its number from 1; 0 gives what was before the first.

    Raises:
        InvalidItem: there is no such turn.
        StreamNotFound: there is no such stream.
    """
    shown = await chat.shown(originals=True)
    found = turns(shown.entries)
    if type(number) is not int or not 0 <= number <= len(found):
        raise InvalidItem("at_turn", f"{describe(number)}; session {chat.name!r} has {len(found)} turns, 0 is none")
    if number == len(found):
        return shown.version
    return found[number].version - 1


async def refuse_used(branch: AsyncConversation) -> None:
    """Refuse a branch that was made before, at the same point, and has gone on since.

    Raises:
        StreamExists: it has events of its own.
    """
    parts = await branch.lineage()
    if not parts:
        raise StreamNotFound(branch.name, branch.tenant)
    own = parts[-1]
    if own.last > own.first:
        raise StreamExists(branch.name, f"it branched off here before, and goes on to version {own.last}")
