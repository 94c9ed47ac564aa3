"""Tasks, folded from the events that opened and changed them.

A task belongs to its context, so its events may stand in several streams; for one task their positions are in the order
in which they were committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from eventstore.log.catalogue.tasks import CHANGED, OPENED, TERMINAL
from eventstore.log.events import Json, RecordedEvent


@dataclass(frozen=True, slots=True)
class TaskChange:
    """A step of a task: the event that gave it ``status``, in ``stream`` at ``version``; who, when and why."""

    status: str
    stream: str
    version: int
    position: int
    event_id: UUID
    agent: str | None
    recorded_at: datetime
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """A task and its history; the first of ``changes`` opened it."""

    task_id: str
    goal: str
    follows: str | None
    compensates: list[str]
    owner: str | None
    changes: tuple[TaskChange, ...]

    @property
    def status(self) -> str:
        """The state that it is in."""
        return self.changes[-1].status

    @property
    def closed(self) -> bool:
        """Whether that state is terminal."""
        return self.status in TERMINAL


def facts(data: dict[str, Json]) -> dict[str, Json]:
    """Give what a task was opened with, the same however it was written."""
    return {
        "goal": data["goal"],
        "follows": data.get("follows"),
        "compensates": list(data.get("compensates", ())),
        "owner": data.get("owner"),
    }


def fold_tasks(events: Iterable[RecordedEvent]) -> list[Task]:
    """Fold events in the order of the log to the tasks that they tell of, in the order in which those were opened.

    Other events are passed over, and what the log never holds: a second opening, a change of what is not open.
    """
    tasks: dict[tuple[str, str], Task] = {}
    for event in events:
        if event.type not in (OPENED, CHANGED):
            continue
        data = event.data
        name = (event.context, data["task_id"])
        task = tasks.get(name)
        if event.type == OPENED and task is None:
            tasks[name] = Task(name[1], **facts(data), changes=(_change(event, "submitted"),))
        elif event.type == CHANGED and task is not None and not task.closed:
            tasks[name] = replace(task, changes=(*task.changes, _change(event, data["status"])))
    return list(tasks.values())


def _change(event: RecordedEvent, status: str) -> TaskChange:
    return TaskChange(
        status,
        event.stream,
        event.version,
        event.position,
        event.event_id,
        event.agent,
        event.recorded_at,
        event.data.get("reason"),
    )
