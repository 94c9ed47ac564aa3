# Generated from rolling_back_async.py by ops/generate_sync.py: edit that one.
"""Returning to the last accepted or committed handoff."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from eventstore.conversation.control import find_done
from eventstore.conversation.facts import new_ids
from eventstore.conversation.handoff_events import end_of, step
from eventstore.conversation.steps import COURSE, append_step, look_at_line, task_of
from eventstore.conversation.stream import Stream
from eventstore.errors import HandoffRefused, IdempotencyConflict, describe
from eventstore.log.catalogue.fields import ArtifactVersion, EffectNote
from eventstore.log.events import Event, Json
from projections.handoffs import FAILED, ROLLED_BACK, TYPES, Course, Handoff, Point, course, references, to_compensate
from projections.surroundings import EFFECTS, TASKS, TERMINAL, tasks_of


@dataclass(frozen=True, slots=True)
class RolledBack:
    """Where work goes on from: a handoff, None where nothing was accepted before; its ``version`` and ``artifacts``.

    ``effects`` happened since, or may have, and need compensation. ``undone`` are the handoffs that were rolled back,
    ``tasks`` those that were set to another state, with it.
    """

    handoff_id: str | None
    version: int
    artifacts: list[ArtifactVersion]
    effects: list[EffectNote]
    undone: list[str]
    tasks: Mapping[str, str]
    deduplicated: bool = field(default=False, compare=False)

    @property
    def handoff(self) -> str | None:
        """The same as ``handoff_id``."""
        return self.handoff_id


def roll_back(stream: Stream, to: str | None, task: str | None, agent: str | None, key: str | None) -> RolledBack:
    """Append what a return to a point comes to, in one append."""
    while True:
        repeated = _repeated(stream, to, key)
        if repeated is not None:
            return repeated
        look = look_at_line(stream, [*COURSE, *EFFECTS])
        state = course(look.line, stream.name)
        point = destination(state, to)
        undone = state.undone_by(point)
        if not undone and point.handoff_id is None:
            raise HandoffRefused("to", f"no handoff of stream {stream.name!r} stands, and none is left to undo")
        effects = to_compensate(look.line, point, undone)
        tasks = _tasks(stream, state, point, undone, task)
        events = _events(stream, point, undone, effects, tasks, agent, key)
        result = append_step(stream, events, look.head, [*TYPES, *EFFECTS, *TASKS])
        if result is not None:
            rolled = next(event for event in events if event.type == ROLLED_BACK)
            return _result(rolled.data, [each.handoff_id for each in undone], tasks)


def destination(state: Course, to: str | None) -> Point:
    """Find the point to return to."""
    confirmed = state.confirmed()
    if to is None:
        if confirmed:
            return confirmed[-1]
        if not state.starts:
            raise HandoffRefused("to", "there is no handoff in this conversation to return to")
        return min(state.starts.values(), key=lambda point: point.version)
    for point in confirmed:
        if point.handoff_id == to:
            return point
    standing = ", ".join(repr(point.handoff_id) for point in confirmed) or "none"
    raise HandoffRefused(
        "to", f"{describe(to)} is no handoff that was accepted or committed and stands; there is {standing}"
    )


def _tasks(
    stream: Stream, state: Course, point: Point, undone: Sequence[Handoff], status: str | None
) -> dict[str, str]:
    """Choose the tasks to set: those of the handoffs concerned that are known, not over and in another state."""
    if status is None:
        return {}
    concerned = [each.task_id for each in undone]
    if point.handoff_id is not None:
        concerned.append(state.handoffs[point.handoff_id].task_id)
    found = tasks_of(task_of(stream, concerned))
    return {task: status for task, now in found.items() if now not in TERMINAL and now != status}


def task_change(task_id: str, status: str, reason: str) -> Event:
    """Set a task to another state."""
    return Event(
        type="task.changed",
        data={"task_id": task_id, "status": status, "reason": reason},
        subject=task_id,
        task_id=task_id,
    )


def _events(
    stream: Stream,
    point: Point,
    undone: Sequence[Handoff],
    effects: list[Json],
    tasks: Mapping[str, str],
    agent: str | None,
    key: str | None,
) -> list[Event]:
    """Make the events: open handoffs fail, all undone are rolled back, tasks change. A key's id is a roll-back's."""
    reason = f"rolled back to {'the beginning' if point.handoff_id is None else repr(point.handoff_id)}"
    place: dict[str, Json] = {"version": point.version, "artifacts": references(point.artifacts), "effects": effects}
    if point.handoff_id is not None:
        place["to"] = point.handoff_id
    if tasks:
        place["task"] = next(iter(tasks.values()))
    rolled = [
        step(ROLLED_BACK, {"handoff_id": each} | place, agent, None, None)
        for each in [each.handoff_id for each in undone] or [str(point.handoff_id)]
    ]
    failed = [
        step(
            FAILED,
            {"handoff_id": each.handoff_id, "reason": reason, "return_to": point.as_json()},
            agent,
            end_of(each),
            None,
        )
        for each in undone
        if each.status in ("offered", "accepted")
    ]
    changed = [task_change(each, status, reason) for each, status in tasks.items()]
    ids = iter(new_ids(stream, key, len(rolled) + len(failed) + len(changed)))
    rolled, failed, changed = (
        [replace(event, event_id=next(ids)) for event in events] for events in (rolled, failed, changed)
    )
    return [*failed, *rolled, *changed]


def _repeated(stream: Stream, to: str | None, key: str | None) -> RolledBack | None:
    """Give the result of an earlier call with ``key``."""
    earlier = find_done(stream, key, ROLLED_BACK)
    if earlier is None:
        return None
    if to is not None and earlier.data.get("to") != to:
        raise IdempotencyConflict(f"key {key!r}", f"a return to {earlier.data.get('to')!r}", f"one to {to!r}")
    undone, tasks = [], {}
    for event in stream.events(earlier.version):
        if event.recorded_at != earlier.recorded_at or event.type not in (ROLLED_BACK, "task.changed"):
            break
        if event.type == ROLLED_BACK and event.data["handoff_id"] != event.data.get("to"):
            undone.append(event.data["handoff_id"])
        elif event.type == "task.changed":
            tasks[event.data["task_id"]] = event.data["status"]
    return _result(earlier.data, undone, tasks, deduplicated=True)


def _result(
    data: Mapping[str, Json], undone: list[str], tasks: Mapping[str, str], *, deduplicated: bool = False
) -> RolledBack:
    return RolledBack(
        data.get("to"),
        data["version"],
        [ArtifactVersion.model_validate(each) for each in data["artifacts"]],
        [EffectNote.model_validate(each) for each in data["effects"]],
        undone,
        tasks,
        deduplicated,
    )
