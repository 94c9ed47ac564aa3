"""When and how a session is compacted after a turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from eventstore.compaction import Policy, Situation
from eventstore.log.events import Json
from projections.turns import is_user_message


def candidates(count: int) -> Policy:
    """Hold from ``count`` items on that are neither a user's message nor a compaction: how the SDK decides."""
    return Policy(
        f"candidates({count})",
        lambda situation: sum(map(_is_candidate, situation.items)) >= count,
    )


def _is_candidate(item: Json) -> bool:
    return not (is_user_message(item) or (isinstance(item, dict) and item.get("type") == "compaction"))


SDK_POLICY: Final = candidates(10)


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """How ``run_compaction`` compacts a session; the options of ``chat.compact()``.

    ``compactor`` is one of ``eventstore.compaction``, or any function of items. ``when`` is a policy of it; default:
    from 10 items on that are neither a user's message nor a compaction, which is the SDK's. The compactor is given the
    originals since the last compaction; ``merge`` with ``basis="summary"`` gives it the whole of what the model is
    shown, as the SDK does.
    """

    compactor: Callable[[list[Json]], Any]
    when: Callable[[Situation], bool] = SDK_POLICY
    keep_last: int | None = None
    basis: Literal["originals", "summary"] = "originals"
    merge: bool = False
