"""Views of a transcript: a function of the stream, the version and the options, so it can be rendered again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Final

from eventstore.conversation.transcripts_async import read_basis_async, read_shown_async
from eventstore.errors import InvalidItem, describe
from eventstore.log.connection_async import AsyncCaller
from eventstore.log.events import Json
from projections.windows import check_number, window

COUNTER: Final = "bytes/3.75"
"""How ``max_tokens`` counts: kept with a receipt, since another way would give another view."""


@dataclass(frozen=True, slots=True)
class View:
    """How a transcript is cut; see ``transcript()``."""

    limit: int | None = None
    pin_summaries: bool = False
    pair_safe: bool = False
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        check_number("limit", self.limit, "None for all")
        check_number("max_tokens", self.max_tokens, "None for any number")

    def options(self) -> dict[str, Json]:
        """Give the options that are not at their defaults."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        chosen = {name: value for name, value in given.items() if value is not None and value is not False}
        return chosen | {"counter": COUNTER} if "max_tokens" in chosen else chosen

    @classmethod
    def of(cls, options: Mapping[str, Json]) -> View:
        """Give the view of options that were kept.

        Raises ``InvalidItem`` where this code can't make that view.
        """
        known = {each.name for each in fields(cls)} | {"counter", "server_state"}
        unknown = [name for name in options if name not in known or options.get("counter", COUNTER) != COUNTER]
        if unknown:
            raise InvalidItem("options", f"{describe(dict(options))}: a view that this code can't make")
        return cls(**{name: options[name] for name in options if name not in ("counter", "server_state")})

    @property
    def needed(self) -> int | None:
        """How many entries from the end decide it; None for all."""
        if self.limit is None or self.pin_summaries:
            return None
        return self.limit + 1 if self.pair_safe else self.limit


async def read_view_async(
    caller: AsyncCaller, tenant: str, stream: str, at: int | datetime | None, view: View
) -> tuple[int, list[Json]]:
    """Give the version that a view is of, and its items; a stream that does not exist has none."""
    basis = await read_basis_async(caller, tenant, stream, at, view.needed)
    if basis is None:
        return 0, []
    if basis.ranges.control == 0 and not (view.pair_safe or view.pin_summaries or view.max_tokens is not None):
        return basis.version, basis.material.items()
    shown = await read_shown_async(caller, tenant, stream, basis, view.needed)
    kept = window(
        shown,
        limit=view.limit,
        pin_summaries=view.pin_summaries,
        pair_safe=view.pair_safe,
        max_tokens=view.max_tokens,
    )
    return basis.version, [entry.item for entry in kept]
