# Generated from steps_async.py by ops/generate_sync.py: edit that one.
"""Reading what handoffs are decided by, and appending a step that was decided on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eventstore.conversation.facts import read_facts
from eventstore.conversation.stream import Stream
from eventstore.errors import IdempotencyConflict, TaskClosed, VersionConflict
from eventstore.log import batch as batches
from eventstore.log import names
from eventstore.log.appending import Target, refusal
from eventstore.log.catalogue.envelope import Envelope
from eventstore.log.decided import Look, append_decided, look
from eventstore.log.events import NO_STREAM, AppendResult, Event, RecordedEvent
from projections import facts, handoffs
from projections.surroundings import ARTIFACT, EFFECTS, TASKS

COURSE: Final = (*handoffs.TYPES, ARTIFACT)
REVOCATIONS: Final = ("constraint.revoked", "decision.revoked")
_AROUND: Final = (*handoffs.TYPES, ARTIFACT, *TASKS)


def look_at_handoff(stream: Stream, handoff_id: str) -> Look:
    """Read the steps of a handoff, wherever in the context, and the last acceptance in the lineage."""
    return look(
        stream.route.caller,
        stream.tenant,
        stream.name,
        stream.context,
        last=handoffs.ACCEPTED,
        subjects=_subjects([handoff_id]),
        subject_types=handoffs.TYPES,
    )


def look_around(stream: Stream, envelope: Envelope, *, all_facts: bool = False) -> Look:
    """Read what an envelope is judged by: the lineage's facts, and its handoff, task and artifacts in the context."""
    judged = all_facts or envelope.decisions or envelope.constraints
    return look(
        stream.route.caller,
        stream.tenant,
        stream.name,
        stream.context,
        types=facts.TYPES if judged else (),
        last=handoffs.ACCEPTED,
        subjects=_subjects([envelope.handoff_id, envelope.task_id, *(each.uri for each in envelope.artifacts)]),
        subject_types=_AROUND,
    )


def facts_of(stream: Stream, look: Look) -> facts.Facts:
    """Fold the facts of a look; read on where there are more than it holds."""
    return read_facts(stream, look.head) if look.cut else facts.fold(look.line)


def look_at_line(stream: Stream, types: Sequence[str]) -> Look:
    """Read all events of some types in the lineage."""
    found = look(stream.route.caller, stream.tenant, stream.name, stream.context, types=types)
    if found.cut:
        events = stream.events(1, found.head, types=types)
        found.line = list(events)
    return found


def task_of(stream: Stream, task_ids: Sequence[str]) -> list[RecordedEvent]:
    """Read what happened to tasks of the context."""
    found = look(
        stream.route.caller,
        stream.tenant,
        stream.name,
        stream.context,
        subjects=_subjects(task_ids),
        subject_types=TASKS,
    )
    return found.about


def append_step(stream: Stream, events: Sequence[Event], seen: int, decisive: Sequence[str]) -> AppendResult | None:
    """Append a step that was decided on as of head ``seen``; None where it has to be looked at again.

    That is where one of the ``decisive`` types came since, or another call with the same key.

    The rules on single rows are the server's: ``unique_key``, and ``task_id``, which it refuses for a closed task.
    """
    route = stream.route
    if seen == 0 or any(event.type in TASKS for event in events):  # a task's row is moved by a function of its own
        try:
            return stream.append_events(events, expected=seen or NO_STREAM)
        except (VersionConflict, IdempotencyConflict, TaskClosed):
            return None
    batch = batches.build(stream.tenant, stream.name, list(events), key=None)
    row = append_decided(route.caller, stream.tenant, stream.name, batch, seen, decisive)
    outcome, _, _, context, first, last, position, actual, detail = row
    if outcome in ("moved", "idempotency_conflict", "task_closed"):  # by another call with this key; meanwhile
        return None
    if outcome in ("appended", "repeated"):
        if outcome == "appended":
            route.telemetry.appended.inc(len(batch.rows))
        ids = tuple(each.event_id for each in batch.rows)
        return AppendResult(stream.name, first, last, position, outcome == "repeated", ids)
    target = Target(stream.tenant, stream.name, None, None)
    raise refusal(outcome, target, batch, None, actual, detail, (first, last), context or stream.context or stream.name)


def _subjects(ids: Sequence[str]) -> list[str]:
    return [storable for each in dict.fromkeys(ids) if (storable := names.storable("subject", each)) is not None]


LINE: Final = (*facts.TYPES, *COURSE, *TASKS, *EFFECTS)
"""Everything that a draft is folded from."""
