# Generated from tasks_async.py by ops/generate_sync.py: edit that one.
"""The tasks of a conversation's context, in the states of A2A.

A task is one in its context: every branch sees it and may change it. The terminal states (completed, canceled, failed,
rejected) are final, for every write that names the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from eventstore.conversation.stream import Stream
from eventstore.conversation.transcripts import check_at
from eventstore.errors import InvalidItem, TaskExists, describe
from eventstore.log import batch as batches
from eventstore.log.append import append
from eventstore.log.batch import TaskSteps
from eventstore.log.catalogue.tasks import CHANGED, OPENED, STATES
from eventstore.log.context import read_tasks
from eventstore.log.events import ANY, AppendResult, Event, Json
from projections.tasks import Task, facts, fold_tasks


class Tasks:
    """What there is to do in a conversation's context, and how far it is."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def open(
        self,
        task_id: str,
        *,
        goal: str,
        follows: str | None = None,
        compensates: Sequence[str] = (),
        owner: str | None = None,
        agent: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Json] | None = None,
        key: str | None = None,
    ) -> AppendResult:
        """Open a task; it is ``submitted``. The same again, from whatever branch, returns the first result.

        Args:
            task_id: its id, unique in the context.
            goal: what is to be reached.
            follows: an earlier task of the context, in whatever state, that this one goes on from.
            compensates: keys of effects that it has to make good.
            owner: whose it is.
            agent: who opens it.
            run_id: the run that it is opened in.
            metadata: a mapping kept beside the event.
            key: any string; the same call with it again is the same append.

        Raises:
            TaskExists: it was opened before, with other facts.
            TaskNotFound: the task that it follows was never opened.
            InvalidEvent: a goal or an id that is empty, or no text.
        """
        if isinstance(compensates, str) or not isinstance(compensates, Sequence):
            raise InvalidItem("compensates", f"{describe(compensates)} should be a list of effect keys")
        data: dict[str, Json] = {"task_id": task_id, "goal": goal}
        about = {"follows": follows, "compensates": list(compensates) or None, "owner": owner}
        data |= {name: value for name, value in about.items() if value is not None}
        event = Event(type=OPENED, data=data, agent=agent, run_id=run_id, metadata=metadata)
        try:
            return self._stream.append_events([event], key=key)
        except TaskExists as e:
            found = read_tasks(self._stream.route.caller, self._stream.target, task_id)
            first = next(event for event in found if event.type == OPENED)
            if facts(first.data) != facts(data):
                raise TaskExists(task_id, first.context, facts(first.data), facts(data)) from e
            self._stream.route.telemetry.repeats.inc()
            return AppendResult(first.stream, first.version, first.version, first.position, True, (first.event_id,))

    def set_status(
        self,
        task_id: str,
        status: str,
        *,
        reason: str | None = None,
        expected: str | None = None,
        agent: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Json] | None = None,
        key: str | None = None,
    ) -> AppendResult:
        """Say which state a task is in. From a terminal state there is no way on; else any state may follow any.

        Args:
            task_id: a task of the context.
            status: submitted, working, input-required, auth-required; or, final: completed, canceled, failed, rejected.
            reason: why, for who reads the log.
            expected: the state that it has to be in now.
            agent: who says so.
            run_id: the run that it is said in.
            metadata: a mapping kept beside the event.
            key: any string; the same call with it again returns the first result, also when the task is closed since.

        Raises:
            InvalidItem: no state of a task.
            TaskNotFound: it was never opened in the context.
            TaskClosed: it is in a terminal state; nothing was written.
            TaskStatusConflict: it is not in the state ``expected``.
        """
        for name, value in (("status", status), ("expected", expected)):
            if value not in STATES and not (name == "expected" and value is None):
                raise InvalidItem(name, f"{describe(value)} is no state of a task; give one of {', '.join(STATES)}")
        data: dict[str, Json] = {"task_id": task_id, "status": status}
        if reason is not None:
            data["reason"] = reason
        stream = self._stream
        event = Event(type=CHANGED, data=data, agent=agent, run_id=run_id, metadata=metadata)
        batch = batches.build(stream.tenant, stream.name, [event], key=key)
        steps = batch.tasks or TaskSteps([], [])
        batch = replace(batch, tasks=replace(steps, expected=expected))
        route = stream.route
        return append(route.caller, route.known, route.telemetry, stream.target, batch, ANY)

    def get(self, task_id: str) -> Task | None:
        """Return a task of the context with its history; None where it was never opened."""
        if task_id is None:
            raise InvalidItem("task_id", "None; give the id of a task")
        found = fold_tasks(read_tasks(self._stream.route.caller, self._stream.target, task_id))
        return found[0] if found else None

    def list(self, *, at: int | datetime | None = None) -> list[Task]:
        """Return the tasks of the context with their histories, in the order in which they were opened.

        Args:
            at: as of the moment when this version of the stream was recorded, or as of a moment (an aware datetime):
                what the streams of the context had said by then, in the order of the log. None for now.

        Raises:
            InvalidItem: ``at`` is no version of the stream, or a moment without a time zone.
        """
        check_at(at)
        if at == 0:
            return []
        events = read_tasks(self._stream.route.caller, self._stream.target, None)
        if isinstance(at, datetime):
            events = [event for event in events if event.recorded_at <= at]
        elif at is not None:
            last = [event.position for event in self._stream.events(at, at)]
            if not last:
                raise InvalidItem("at", f"{at}; stream {self._stream.name!r} has no such version")
            events = [event for event in events if event.position <= last[0]]
        return fold_tasks(events)
