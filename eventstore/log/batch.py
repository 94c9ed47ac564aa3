"""An append, checked and encoded before anything is sent.

Everything that can be refused without asking the server is refused here, by name.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eventstore.errors import IdempotencyConflict, InvalidEvent, InvalidItem, describe
from eventstore.log import artifacts, catalogue, codec, items, names
from eventstore.log.catalogue import tasks
from eventstore.log.events import ANY, EXISTS, ITEM, NO_STREAM, Event, Expected, Json

MAX_EVENTS = 10_000
MAX_BATCH_BYTES = 64 * 1024 * 1024


class Row(NamedTuple):
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
class TaskSteps:
    """What the events of a batch do to tasks, one element an event: the status given, the task followed.

    ``expected`` is the status that the first of them has to find.
    """

    statuses: list[str | None]
    follows: list[str | None]
    expected: str | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one append. ``may_repeat`` where a key or ids were given, so the log may hold them already."""

    rows: list[Row]
    key: str | None
    may_repeat: bool
    tasks: TaskSteps | None = None

    @property
    def bytes(self) -> int:
        """How many bytes of data it holds, encoded."""
        return sum(len(row.data) for row in self.rows)


def of_items(
    tenant: str,
    stream: str,
    given: Sequence[Json] | Mapping[str, Json],
    *,
    key: str | None,
    ids: Sequence[uuid.UUID | str] | None,
    agent: str | None,
    task_id: str | None,
    run_id: str | None,
    metadata: Mapping[str, Json] | None,
) -> Batch:
    """Check and encode items as ``item.appended`` events; a single mapping is one item. Raises as ``build`` does."""
    if isinstance(given, Mapping):
        given = [given]
    elif type(given) is not list:
        if not isinstance(given, Iterable) or isinstance(given, str | bytes):
            raise InvalidItem("items", f"{describe(given)}; give a list of JSON values, or one mapping")
        given = list(given)
    event_ids, may_repeat = _ids(tenant, stream, len(given), key, None if ids is None else _chosen(ids, len(given)))
    agent = names.storable("agent", agent)
    task_id = names.storable("task_id", task_id)
    run_id = names.storable("run_id", run_id)
    encoded = None if metadata is None else codec.encode_metadata(metadata, "metadata")
    beside = 0 if encoded is None else len(encoded)
    version = catalogue.current_version(ITEM)
    rows = []
    size = 0
    for index, item in enumerate(given):
        form, data = codec.encode(item, f"[{index}]")
        size += len(data) + beside
        if size > MAX_BATCH_BYTES:
            raise _too_large(f"[{index}]")
        subject, call_id = items.describe(item)
        if subject is not None:
            subject = names.storable("subject", subject)
        if call_id is not None:
            call_id = names.storable("call_id", call_id)
        rows.append(
            Row(event_ids[index], version, form, ITEM, subject, agent, call_id, task_id, run_id, None, encoded, data)
        )
    return Batch(rows, key, may_repeat)


def build(
    tenant: str,
    stream: str,
    events: Sequence[Event],
    *,
    key: str | None,
) -> Batch:
    """Check and encode events.

    Raises ``InvalidItem``, ``InvalidEvent`` or ``InvalidName`` naming the place, ``IdempotencyConflict`` where an id
    stands twice.
    """
    n = len(events)
    chosen = [getattr(event, "event_id", None) for event in events]
    given = None
    if any(value is not None for value in chosen):
        if None in chosen:
            raise InvalidEvent(f"[{chosen.index(None)}].event_id", "give an id to every event of a batch, or to none")
        given = _chosen(chosen, n)
    event_ids, may_repeat = _ids(tenant, stream, n, key, given)
    rows = []
    size = 0
    unique: set[str] = set()
    metadata: tuple[object, bytes | None] = (None, None)
    for index, (event, event_id) in enumerate(zip(events, event_ids, strict=True)):
        if not isinstance(event, Event):
            raise InvalidEvent(f"[{index}]", f"{describe(event)} is no Event")
        path = f"[{index}].data"
        form, data = codec.encode(event.data, path)
        try:
            schema_version = catalogue.check(event.type, event.data)
        except InvalidEvent as e:
            raise InvalidEvent(f"[{index}].{e.path}", e.reason) from None
        if event.metadata is not metadata[0]:
            metadata = (event.metadata, codec.encode_metadata(event.metadata, f"[{index}].metadata"))
        size += len(data) + len(metadata[1] or b"")
        if size > MAX_BATCH_BYTES:
            raise _too_large(path)
        subject, call_id = items.describe(event.data) if event.type == ITEM else (None, None)
        subject, task_id, unique_key = _derived(f"[{index}]", event, subject)
        if unique_key is not None:
            if unique_key in unique:
                raise InvalidEvent(f"[{index}].unique_key", f"{describe(unique_key)} stands twice in the batch")
            unique.add(unique_key)
        if event.type == "stream.forked":
            raise InvalidEvent(f"[{index}].type", "only fork() writes stream.forked")
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
                task_id=names.storable("task_id", task_id),
                run_id=names.storable("run_id", event.run_id),
                unique_key=unique_key,
                metadata=metadata[1],
                data=data,
            )
        )
    return Batch(rows, key, may_repeat, _steps(events))


def _derived(path: str, event: Event, subject: str | None) -> tuple[str | None, str | None, str | None]:
    """Give subject, task and unique key; those of tasks and artifacts follow from what the event says."""
    told: dict[str, str] = {}
    if event.type in (tasks.OPENED, tasks.CHANGED):
        told = {"subject": event.data["task_id"], "task_id": event.data["task_id"]}
    elif event.type == tasks.PUBLISHED:
        uri = event.data["uri"]
        told = {"subject": uri, "unique_key": artifacts.unique_key(uri, event.data["version"])}
    for name, value in told.items():
        given = getattr(event, name)
        if given is not None and names.storable(name, given) != names.storable(name, value):
            raise InvalidEvent(f"{path}.{name}", f"{describe(given)}; {event.type} of this data has {describe(value)}")
    return (
        told.get("subject", subject),
        told.get("task_id", event.task_id),
        names.storable("unique_key", told.get("unique_key", event.unique_key)),
    )


def _steps(events: Sequence[Event]) -> TaskSteps | None:
    statuses: list[str | None] = []
    follows: list[str | None] = []
    for event in events:
        opened = event.type == tasks.OPENED
        statuses.append("submitted" if opened else event.data["status"] if event.type == tasks.CHANGED else None)
        follows.append(names.storable("follows", event.data.get("follows")) if opened else None)
    return TaskSteps(statuses, follows) if any(statuses) else None


def _ids(
    tenant: str, stream: str, n: int, key: str | None, given: list[uuid.UUID] | None
) -> tuple[list[uuid.UUID], bool]:
    """Return the ids of ``n`` events, and whether the log may hold them already."""
    if n == 0:
        raise InvalidItem("items", "an append has at least one event")
    if n > MAX_EVENTS:
        raise InvalidItem("items", f"{n:,} events; an append has at most {MAX_EVENTS:,}")
    if key is not None:
        names.check_key(key)
    if given is not None:
        return given, True
    if key is not None:
        return names.derived_ids(tenant, stream, key, n), True
    return names.fresh_ids(n), False


def _chosen(ids: Sequence[object], n: int) -> list[uuid.UUID]:
    """Check the ids that the caller chose."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise InvalidItem("ids", f"{describe(ids)}; give one UUID an item")
    chosen = list(ids)
    if len(chosen) != n:
        raise InvalidItem("ids", f"{len(chosen)} ids for {n} items; give one UUID an item")
    checked = [names.check_event_id(value, f"ids[{index}]") for index, value in enumerate(chosen)]
    seen: dict[uuid.UUID, int] = {}
    for index, value in enumerate(checked):
        if value in seen:
            raise IdempotencyConflict(f"id {value}", f"it stands at [{seen[value]}]", f"and again at [{index}]")
        seen[value] = index
    return checked


def _too_large(path: str) -> InvalidItem:
    return InvalidItem(path, f"the batch passes 64 MiB ({MAX_BATCH_BYTES:,} bytes) here; append it in parts")


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
