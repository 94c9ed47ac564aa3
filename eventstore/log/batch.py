"""An append, checked and encoded before anything is sent.

Everything that can be refused without asking the server is refused here, by name.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eventstore.errors import IdempotencyConflict, InvalidEvent, InvalidItem, describe
from eventstore.log import catalogue, codec, items, names
from eventstore.log.events import ANY, EXISTS, ITEM, NO_STREAM, Event, Expected, Json

MAX_EVENTS = 10_000
MAX_BATCH_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Row:
    """One event as it goes over the wire."""

    event_id: uuid.UUID
    schema_version: int
    format: int
    type: str
    subject: str | None
    agent: str | None
    call_id: str | None
    task_id: str | None
    run_id: str | None
    unique_key: str | None
    metadata: bytes | None
    data: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one append. ``may_repeat`` where a key or ids were given, so the log may hold them already."""

    rows: list[Row]
    key: str | None
    may_repeat: bool

    @property
    def bytes(self) -> int:
        """How many bytes of data it holds, encoded."""
        return sum(len(row.data) for row in self.rows)


def item_events(
    given: Sequence[Json] | Mapping[str, Json],
    *,
    agent: str | None,
    task_id: str | None,
    run_id: str | None,
    metadata: Mapping[str, Json] | None,
) -> list[Event]:
    """Wrap items into ``item.appended`` events. A single mapping is one item."""
    if isinstance(given, Mapping):
        given = [given]
    elif not isinstance(given, list):
        if not isinstance(given, tuple) and not (isinstance(given, Iterable) and not isinstance(given, str | bytes)):
            raise InvalidItem("items", f"{describe(given)}; give a list of JSON values, or one mapping")
        given = list(given)
    return [
        Event(type=ITEM, data=item, agent=agent, task_id=task_id, run_id=run_id, metadata=metadata) for item in given
    ]


def build(
    tenant: str,
    stream: str,
    events: Sequence[Event],
    *,
    key: str | None,
    ids: Sequence[uuid.UUID | str] | None,
    data_path: str = "[{}].data",
) -> Batch:
    """Check and encode a batch.

    Raises ``InvalidItem``, ``InvalidEvent`` or ``InvalidName`` naming the place, ``IdempotencyConflict`` where an id
    stands twice. ``data_path`` is how the caller names the data of event number ``{}``.
    """
    n = len(events)
    if n == 0:
        raise InvalidItem("items", "an append has at least one event")
    if n > MAX_EVENTS:
        raise InvalidItem("items", f"{n:,} events; an append has at most {MAX_EVENTS:,}")
    if key is not None:
        names.check_key(key)
    given = _given_ids(events, ids)
    if given is not None:
        event_ids = given
    elif key is not None:
        event_ids = names.derived_ids(tenant, stream, key, n)
    else:
        event_ids = [uuid.uuid4() for _ in events]
    rows = []
    size = 0
    unique: set[str] = set()
    metadata: tuple[object, bytes | None] = (None, None)
    for index, (event, event_id) in enumerate(zip(events, event_ids, strict=True)):
        if not isinstance(event, Event):
            raise InvalidEvent(f"[{index}]", f"{describe(event)} is no Event")
        path = data_path.format(index)
        form, data = codec.encode(event.data, path)
        try:
            schema_version = catalogue.check(event.type, event.data)
        except InvalidEvent as e:
            raise InvalidEvent(f"[{index}].{e.path}", e.reason) from None
        size += len(data)
        if size > MAX_BATCH_BYTES:
            raise InvalidItem(
                path,
                f"the batch passes 64 MiB ({MAX_BATCH_BYTES:,} bytes) here; append it in parts",
            )
        if event.metadata is not metadata[0]:
            metadata = (
                event.metadata,
                codec.encode_metadata(event.metadata, f"[{index}].metadata"),
            )
        subject, call_id = items.describe(event.data) if event.type == ITEM else (None, None)
        unique_key = names.storable("unique_key", event.unique_key)
        if unique_key is not None:
            if unique_key in unique:
                raise InvalidEvent(f"[{index}].unique_key", f"{describe(unique_key)} stands twice in the batch")
            unique.add(unique_key)
        if event.type == "stream.closed" and index < n - 1:
            raise InvalidEvent(f"[{index}].type", "nothing is appended after stream.closed, also not in one batch")
        rows.append(
            Row(
                event_id=event_id,
                schema_version=schema_version,
                format=form,
                type=event.type,
                subject=names.storable("subject", event.subject if event.subject is not None else subject),
                agent=names.storable("agent", event.agent),
                call_id=names.storable("call_id", event.call_id if event.call_id is not None else call_id),
                task_id=names.storable("task_id", event.task_id),
                run_id=names.storable("run_id", event.run_id),
                unique_key=unique_key,
                metadata=metadata[1],
                data=data,
            )
        )
    return Batch(rows, key, may_repeat=key is not None or given is not None)


def _given_ids(events: Sequence[Event], ids: Sequence[uuid.UUID | str] | None) -> list[uuid.UUID] | None:
    """Return the ids that the caller chose, None where it left them to us."""
    if ids is None:
        chosen = [getattr(event, "event_id", None) for event in events]
        if all(value is None for value in chosen):
            return None
        if None in chosen:
            raise InvalidEvent(
                f"[{chosen.index(None)}].event_id",
                "give an id to every event of a batch, or to none",
            )
    else:
        if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
            raise InvalidItem("ids", f"{describe(ids)}; give one UUID an item")
        chosen = list(ids)
        if len(chosen) != len(events):
            raise InvalidItem("ids", f"{len(chosen)} ids for {len(events)} items; give one UUID an item")
    checked = [names.check_event_id(value, f"ids[{index}]") for index, value in enumerate(chosen)]
    seen: dict[uuid.UUID, int] = {}
    for index, value in enumerate(checked):
        if value in seen:
            raise IdempotencyConflict(f"id {value}", f"it stands at [{seen[value]}]", f"and again at [{index}]")
        seen[value] = index
    return checked


def expected_number(expected: object) -> int | None:
    """Turn ``expected=`` into what the server compares: None any, 0 no event, -1 at least one, n exactly."""
    if expected is ANY:
        return None
    if expected is NO_STREAM:
        return 0
    if expected is EXISTS:
        return -1
    if type(expected) is int and 0 <= expected < 2**63:
        return expected
    reason = "give ANY, NO_STREAM, EXISTS or a version"
    if isinstance(expected, Expected):
        reason = "it is no condition of this package; " + reason
    raise InvalidItem("expected", f"{describe(expected)}; {reason}")
