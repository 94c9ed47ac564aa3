"""What a provider holds of a conversation, folded from ``response.recorded``, and which items it has not seen.

``previous_response_id`` and a conversation's id make the provider put what it holds before the input, so only what is
new may be sent: nothing lost, nothing twice. Where that can't be told, and where a clear, a retraction or a compaction
changed what the model is to see since a call was made, the chain begins anew with the whole transcript.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from eventstore.log.events import Entry
from projections.intervals import Interval
from projections.pairs import is_from_model

_CUTS: Final = frozenset({"limit", "pin_summaries", "pair_safe", "max_tokens"})


class Response(NamedTuple):
    """A ``response.recorded``. ``shared``: it is of this very history, and what holds it is nobody else's."""

    version: int
    data: Mapping[str, Any]
    shared: bool = True


@dataclass(frozen=True, slots=True)
class Held:
    """What a provider holds since the ``response.recorded`` at ``version``; its call was given versions to ``seen``.

    ``output``: the versions of the items that it made, where the record says so.
    """

    version: int
    seen: int
    response_id: str
    conversation_id: str | None
    output: Interval | None = None


def held(response: Response, control: int) -> Held | None:
    """Give what a recorded response left at the provider.

    None where it is of no use: control event ``control`` came after its call was made, the call was given a cut of the
    history, or a history that is not this one. Without a receipt the call was given all before the record.
    """
    version, data, shared = response
    receipt = data.get("receipt")
    seen = version if receipt is None else min(receipt["version"], version)
    if not shared or seen < control or (receipt is not None and not _CUTS.isdisjoint(receipt["options"])):
        return None
    output = data.get("output")
    whole = None if output is None else (output[0], output[1])
    return Held(version, seen, data["response_id"], data.get("conversation_id"), whole)


def furthest(responses: Sequence[Response], control: int) -> Held | None:
    """Give what the response left whose call was given most, not the one that was recorded last.

    None where none is of use, or where another was recorded between its call and its record, so that nobody can tell
    whose the items between are; ``output`` tells.
    """
    states = [state for response in responses if (state := held(response, control)) is not None]
    if not states:
        return None
    best = max(states, key=lambda state: (state.seen, state.version))
    if best.output is None and any(best.seen < version < best.version for version, *_ in responses):
        return None
    return best


def unseen(entries: Iterable[Entry], state: Held) -> list[Entry]:
    """Give what the provider does not hold, of the items after ``state.seen``.

    That is all but the response's own output. Where the record does not name it, that is what a model made between the
    call and the record: a user's message that arrived meanwhile was neither in the call's input nor in its output.
    """
    if state.output is not None:
        first, last = state.output
        return [entry for entry in entries if entry.version > state.seen and not first <= entry.version <= last]
    return [
        entry
        for entry in entries
        if entry.version > state.version or (entry.version > state.seen and not is_from_model(entry.item))
    ]
