"""The check of the tasks' rows against the events that they follow from: pure, fed with both as they are stored."""

from __future__ import annotations

from typing import NamedTuple

from eventstore.errors import ConvstoreError
from eventstore.log import catalogue, codec
from eventstore.log.audit import Bad, StoredRow
from eventstore.log.catalogue.tasks import CHANGED, OPENED


class StoredTask(NamedTuple):
    """A row of ``audit_tasks``: a task, and the event that its row says gave it its status."""

    context_id: int
    task_id: str
    tenant_fits: bool | None
    status: str | None
    stream: str | None
    version: int | None
    position: int
    type: str
    event_task_id: str | None
    schema_version: int
    format: int
    data: bytes


class _Told(NamedTuple):
    """The last event that a verification met of a task."""

    position: int
    stream: str
    version: int


class TaskCheck:
    """The check of a tenant's tasks: sees the events of streams first, then the rows; keeps one event a task."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, str], _Told] = {}

    @property
    def empty(self) -> bool:
        """Whether no event seen so far was about a task."""
        return not self._told

    def see(self, context_id: int, stream: str, row: StoredRow) -> None:
        """Note an event."""
        if row.type not in (OPENED, CHANGED) or row.version is None:
            return
        name = (context_id, row.task_id or "")
        known = self._told.get(name)
        if known is None or known.position < row.position:
            self._told[name] = _Told(row.position, stream, row.version)

    def row(self, row: StoredTask) -> Bad | None:
        """Check a task's row; events that came since they were read are no fault."""
        told = self._told.pop((row.context_id, row.task_id), None)
        name = f"task {row.task_id!r}"
        if not row.tenant_fits:
            return Bad(row.stream or f"#{row.context_id}", 0, f"the tenant of {name} is not that of its context")
        if row.status is None:
            return None if told is None else Bad(told.stream, told.version, f"{name} has lost its status")
        if row.stream is None or row.version is None:
            return Bad(row.stream or f"#{row.context_id}", 0, f"no event made {name} {row.status}, as its row says")
        said = _status(row) if row.event_task_id == row.task_id else None
        if said != row.status:
            return Bad(row.stream, row.version, f"the row of {name} says {row.status}, the event {said}")
        if told is not None and told.position > row.position:
            return Bad(told.stream, told.version, f"the row of {name} knows nothing of this event")
        return None

    def end(self) -> Bad | None:
        """Tell the first event of a task that has no row."""
        for (_, task_id), told in self._told.items():
            return Bad(told.stream, told.version, f"task {task_id!r} has no row")
        return None


def _status(row: StoredTask) -> str | None:
    if row.type == OPENED:
        return "submitted"
    if row.type != CHANGED:
        return None
    try:
        data = catalogue.upcast(row.type, row.schema_version, codec.decode(row.format, row.data))
    except (ConvstoreError, ValueError):
        return None
    status = data.get("status") if isinstance(data, dict) else None
    return status if isinstance(status, str) else None
