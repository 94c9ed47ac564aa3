# Generated from fork_async.py by ops/generate_sync.py: edit that one.
"""Forks: a new stream that goes on from another's version, without copying anything."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, LiteralString

import orjson

from eventstore.errors import (
    ForkPointBeyondHead,
    IdempotencyConflict,
    InvalidItem,
    StreamExists,
    StreamNotFound,
    describe,
)
from eventstore.log import binary, codec, hashing, names
from eventstore.log.appending import Known, KnownStreams
from eventstore.log.connection import Caller
from eventstore.log.events import AppendResult, Json
from eventstore.telemetry import Telemetry

_FORK: Final[LiteralString] = "SELECT * FROM convstore.fork_stream($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """Where a branch begins: after a version, after so many items, after an item; after the head if none is given."""

    at: int | None
    after_items: int | None
    at_item: str | uuid.UUID | None

    def __post_init__(self) -> None:
        given = [name for name in ("at", "after_items", "at_item") if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidItem(given[1], f"{given[0]} is given too; give one of at, after_items, at_item")
        for name in ("at", "after_items"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 0 <= value < 2**63):
                what = "the last version that the branch shares" if name == "at" else "how many items it shares"
                raise InvalidItem(name, f"{describe(value)}; give {what}, from 0 on")
        if self.at_item is not None and not isinstance(self.at_item, str | uuid.UUID):
            raise InvalidItem("at_item", f"{describe(self.at_item)}; give the id of an item or of an event")

    def __str__(self) -> str:
        for name in ("at", "after_items", "at_item"):
            value = getattr(self, name)
            if value is not None:
                return f"{name}={str(value)!r}" if name == "at_item" else f"{name}={value}"
        return "the head"


def fork(
    caller: Caller,
    known: KnownStreams,
    telemetry: Telemetry,
    tenant: str,
    parent: str,
    name: str,
    point: ForkPoint,
    *,
    tags: Mapping[str, str] | None,
    key: str | None,
    event_id: uuid.UUID | str | None,
    agent: str | None,
    metadata: Mapping[str, Json] | None,
) -> AppendResult:
    """Fork ``parent`` as ``name``, in one durable round trip; the result is that of the branch's first event.

    Raises ``StreamNotFound``, ``StreamExists``, ``ForkPointBeyondHead``, ``IdempotencyConflict`` or ``InvalidItem``.
    """
    names.check_name("stream", name)
    checked = None if tags is None else orjson.dumps(names.check_tags(tags)).decode()
    if key is not None:
        names.check_key(key)
    if event_id is not None:
        first = names.check_event_id(event_id, "event_id")
    else:
        first = names.fresh_ids(1)[0] if key is None else names.derived_ids(tenant, name, key, 1)[0]
    item = point.at_item
    about = None if metadata is None else codec.encode_metadata(metadata, "metadata")
    rows = caller.call(
        _FORK,
        [
            tenant,
            parent,
            name,
            checked,
            point.at,
            point.after_items,
            None if item is None else names.storable("at_item", str(item)),
            _event_id(item),
            first,
            names.storable("agent", agent),
            None if about is None else binary.JsonBytes(about),
        ],
        tenant=tenant,
        action="fork a stream",
        role="convstore_writer",
    )
    outcome, context_id, stream_id, context, version, _, position, actual, detail = rows[0]
    if outcome in ("appended", "repeated"):
        if caller.commits:
            known.learn(tenant, name, Known(context_id, stream_id, context, hashing.names_hash(tenant, context, name)))
        if outcome == "appended":
            telemetry.forks.inc()
        return AppendResult(name, version, version, position, outcome == "repeated", (first,))
    if outcome == "no_parent":
        raise StreamNotFound(parent, tenant)
    if outcome == "beyond_head":
        raise ForkPointBeyondHead(parent, str(point) if point.at is None else point.at, actual)
    if outcome == "no_item":
        raise InvalidItem("at_item", f"{describe(str(item))}: no item or event of stream {parent!r} has this id")
    there = "it is no branch" if detail is None else f"it branches off {detail!r} at version {version - 1}"
    if outcome == "idempotency_conflict":
        what = f"id {first}" if key is None else f"key {key!r}"
        raise IdempotencyConflict(what, f"stream {name!r}, {there}", f"a fork of {parent!r} at {point}")
    raise StreamExists(name, there)


def _event_id(item: str | uuid.UUID | None) -> uuid.UUID | None:
    """Read an id as an event's; None where it can only be an item's."""
    if isinstance(item, str):
        try:
            return uuid.UUID(item)
        except ValueError:
            return None
    return item
