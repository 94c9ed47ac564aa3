"""What a provider holds of a conversation, folded from ``response.recorded``, and which items it has not seen.

``previous_response_id`` and a conversation's id make the provider put what it holds before the input, so only what is
new may be sent. A clear, a retraction or a compaction changes what the model is to see, and the provider can't follow:
the chain begins anew after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eventstore.log.events import Entry
from projections.pairs import is_from_model


@dataclass(frozen=True, slots=True)
class Held:
    """What a provider holds since the ``response.recorded`` at ``version``; its call was given versions to ``seen``."""

    version: int
    seen: int
    response_id: str
    conversation_id: str | None


def held(version: int, data: Mapping[str, Any], control: int) -> Held | None:
    """Give what the last recorded response left; None where control event ``control`` came after it."""
    if version < control:
        return None
    receipt = data.get("receipt")
    seen = version if receipt is None else min(receipt["version"], version)
    return Held(version, max(seen, control), data["response_id"], data.get("conversation_id"))


def unseen(entries: Iterable[Entry], state: Held) -> list[Entry]:
    """Give what the provider does not hold.

    That is what came after the response was recorded, and what came while it was made and is no model's: a user's
    message that arrived meanwhile was neither in the call's input nor in its output.
    """
    return [
        entry
        for entry in entries
        if entry.version > state.version or (entry.version > state.seen and not is_from_model(entry.item))
    ]
