"""Items, and the control events that change which of them a transcript shows.

Items and summaries are kept verbatim. A control event states the ``control`` version that it was
decided on: that of the stream's last control event then, 0 where there was none.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from eventstore.log.catalogue.fields import Count, Data, Name, Ordinal, Range, Seconds, Sha256, Text, Usage
from eventstore.log.catalogue.registry import AnyJson, event


@event("item.appended", version=1)
class ItemAppended(AnyJson):
    """An entry of model input or output."""


@event("summary.appended", version=1)
class SummaryAppended(AnyJson):
    """An item made by a compaction, shown by the ``history.compacted`` that follows."""


@event("history.compacted", version=1)
class HistoryCompacted(Data):
    """The ``items`` summaries just before this event stand for the range ``covers``.

    ``depth`` is 1 for a summary made from originals, else one more than the deepest it was made from; ``digest`` is
    that of the source.
    """

    covers: Range
    items: Count
    basis: Literal["originals", "summary"]
    depth: Count
    method: Name
    model: Name | None = None
    usage: Usage | None = None
    bytes_before: Count
    bytes_after: Count
    tokens_before: Count | None = None
    tokens_after: Count | None = None
    digest: Sha256
    seconds: Seconds | None = None
    control: Count


@event("items.retracted", version=1)
class ItemsRetracted(Data):
    """The versions in ``ranges`` leave the transcript; ``last``: so many of its last entries were asked for."""

    ranges: Annotated[list[Range], Field(min_length=1)]
    last: Ordinal | None = None
    reason: Text | None = None
    control: Count


@event("history.cleared", version=1)
class HistoryCleared(Data):
    """Everything before this event leaves the transcript, whatever was decided meanwhile."""

    reason: Text | None = None
    control: Count | None = None
