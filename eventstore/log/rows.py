"""Rows of the read functions as Python values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from eventstore.log import catalogue, codec
from eventstore.log.events import RecordedEvent


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream of the directory."""

    name: str
    context: str
    tags: dict[str, str]
    head: int
    closed: bool
    created_at: datetime
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class StreamPage:
    """A page of streams in order of name; ``after`` is what the next call is given, None at the end."""

    streams: list[StreamInfo]
    after: str | None


def recorded(tenant: str, row: Sequence[Any]) -> RecordedEvent:
    """Decode one row of ``read_events``; data of an older schema version is brought up to date."""
    (
        context,
        stream,
        version,
        position,
        event_id,
        kind,
        schema_version,
        form,
        data,
        metadata,
        subject,
        agent,
        call_id,
        task_id,
        run_id,
        unique_key,
        recorded_at,
        digest,
    ) = row[:18]
    return RecordedEvent(
        tenant=tenant,
        context=context,
        stream=stream,
        version=version,
        position=position,
        event_id=event_id,
        type=kind,
        schema_version=schema_version,
        data=catalogue.upcast(kind, schema_version, codec.decode(form, data)),
        metadata=codec.decode_metadata(metadata),
        subject=subject,
        agent=agent,
        call_id=call_id,
        task_id=task_id,
        run_id=run_id,
        unique_key=unique_key,
        recorded_at=recorded_at,
        hash=digest,
    )
