"""What the next agent is given of a conversation: its originals by reference, cut to a budget, in a format."""

from __future__ import annotations

import hashlib
import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias

from eventstore.compaction import checked, method_of
from eventstore.conversation.control_async import find_done_async
from eventstore.conversation.receipts import rendered
from eventstore.conversation.stream_async import AsyncStream
from eventstore.conversation.transcripts_async import read_basis_async, read_originals_async, read_shown_async
from eventstore.errors import InvalidItem, describe
from eventstore.formats.chat import for_model
from eventstore.formats.numbered import Markers, check_markers, render
from eventstore.log.events import Event, Json
from eventstore.log.rows import Part as Owned
from projections.handoff_view import FACTS, Budget, Cut, Part, held, whole, within
from projections.tokens import estimate

Format: TypeAlias = Literal["items", "numbered"]
SUMMARY = "summary.appended"


class Source(NamedTuple):
    """The event that an item comes from; ``stream`` owns it."""

    stream: str
    version: int


@dataclass(frozen=True, slots=True)
class HandoffView:
    """What the next agent is given, and where each of it comes from.

    ``provenance`` has a source for each item, in the numbered format for each line. ``bytes`` are those of the items'
    compact JSON, ``trimmed`` counts what the budget left out, by category.
    """

    version: int
    items: list[Json]
    provenance: list[Source]
    bytes: int
    tokens: int
    trimmed: dict[str, int]
    format: Format
    markers: Markers | None
    covers: tuple[int, int] | None
    source_digest: str
    source_bytes: int
    method: str
    updated_at: datetime | None = field(default=None, compare=False)

    def history(self) -> dict[str, Json]:
        """Give it as an envelope's ``history``."""
        told: dict[str, Json] = {
            "mode": self.method,
            "source_digest": self.source_digest,
            "bytes": self.bytes,
            "tokens": self.tokens,
            "trimmed": dict(self.trimmed),
        }
        if self.covers is not None:
            told["covers"] = list(self.covers)
        if self.updated_at is not None:
            told["updated_at"] = self.updated_at.isoformat()
        return told


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a view was asked for; see ``handoff_view()``."""

    format: Format
    mapper: Callable[[list[Json]], Any] | None
    markers: Sequence[str] | None
    budget: object

    def __post_init__(self) -> None:
        if self.format not in ("items", "numbered"):
            raise InvalidItem("format", f"{describe(self.format)}; give 'items' or 'numbered'")
        if self.mapper is not None and not callable(self.mapper):
            raise InvalidItem("mapper", f"{describe(self.mapper)}; give a function of a list of items")
        if self.markers is not None and self.format != "numbered":
            raise InvalidItem("markers", "they stand around the numbered format; give format='numbered'")
        check_markers(self.markers)
        Budget.of(self.budget)


async def handoff_view_async(stream: AsyncStream, at: int | datetime | None, wanted: Wanted) -> HandoffView:
    """Make the view as of a version or a moment."""
    caller, tenant, name = stream.route.caller, stream.tenant, stream.name
    basis = await read_basis_async(caller, tenant, name, at, None)
    entries = [] if basis is None else await read_originals_async(caller, tenant, name, basis)
    source = [entry.item for entry in entries]
    budget = Budget.of(wanted.budget)
    cut = whole(entries)
    if basis is not None and budget is not None:
        events = stream.events(1, basis.version, types=FACTS)
        told = [event async for event in events]  # async only
        # sync: told = list(events)
        shown = await read_shown_async(caller, tenant, name, basis)
        summaries = [Part(entry.version, entry.item, "summary") for entry in shown if entry.summary]
        cut = within(held(told, name), summaries, entries, budget)
    raw = rendered(source)
    digest = hashlib.sha256(raw).hexdigest()
    method, when = "flattened" if not cut.trimmed else "trimmed", None
    if wanted.mapper is not None and cut.kept:
        cut, method, when = await _mapped(stream, cut, wanted.mapper)
    owned = await stream.lineage()
    sources = [_source(owned, name, part.version) for part in cut.kept]
    items = [for_model(part.item) for part in cut.kept]
    markers = None
    if wanted.format == "numbered":
        markers = check_markers(wanted.markers)
        items = [render(items, markers)]
    return HandoffView(
        0 if basis is None else basis.version,
        items,
        sources,
        len(rendered(items)),
        sum(map(estimate, items)),
        {str(category): count for category, count in cut.trimmed.items()},
        wanted.format,
        markers,
        (entries[0].version, entries[-1].version) if entries else None,
        digest,
        len(raw),
        method,
        when,
    )


async def _mapped(
    stream: AsyncStream, cut: Cut, mapper: Callable[[list[Json]], Any]
) -> tuple[Cut, str, datetime | None]:
    """Have a mapper make something else of the items, and keep that: the same source is mapped once.

    What it gave is appended as summaries that stand for nothing in the transcript, with what they were made from.
    """
    source = [for_model(part.item) for part in cut.kept]
    digest = hashlib.sha256(rendered(source)).hexdigest()
    method = method_of(mapper)
    key = f"handoff-view/{method}/{digest}"
    before = await find_done_async(stream, key, SUMMARY)
    if before is None:
        started = time.perf_counter()
        made = mapper(list(source))
        if inspect.isawaitable(made):  # async only
            made = await made  # async only
        result = checked(made, method=method)
        versions = sorted(part.version for part in cut.kept)
        about = {
            "covers": [versions[0], versions[-1]],
            "digest": digest,
            "method": method,
            "items": len(result.items),
            "seconds": round(time.perf_counter() - started, 6),
        }
        events = [Event(type=SUMMARY, data=item, metadata={"handoff_view": about}) for item in result.items]
        done = await stream.append_events(events, key=key)
        first = done.first_version
    else:
        first = before.version
    kept: list[Part] = []
    when = None
    count = 0
    async for event in stream.events(first, types=[SUMMARY]):
        count = count or event.metadata["handoff_view"]["items"]
        kept.append(Part(event.version, event.data, "summary"))
        when = event.recorded_at
        if len(kept) == count:
            break
    return Cut(kept, cut.trimmed), method, when


def _source(owned: list[Owned], name: str, version: int) -> Source:
    for part in owned:
        if part.first <= version <= part.last:
            return Source(part.stream, version)
    return Source(name, version)
