"""Who owns the work, and what went wrong where it changed hands: folds over a lineage's events, in order.

Each finding names the versions that it came from. An owner is the agent that accepted the last handoff which stands;
the user, and events without an agent, are nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from eventstore.log.events import ITEM, RecordedEvent
from projections.handoffs import ACCEPTED, OFFERED, ROLLED_BACK, Handoff, fold, stepped
from projections.surroundings import ARTIFACT

Reason: TypeAlias = Literal["unknown task", "missing acknowledgement", "context changed", "task changed"]
PING_PONG_WITHIN: Final = 3
_ANSWERED_BY: Final = {
    "constraints": "constraint.revoked",
    "decisions": "decision.revoked",
    "open_questions": "question.answered",
    "todos": "todo.done",
}
_LISTS: Final = ("constraints", "decisions", "open_questions", "artifacts", "todos", "effects")
_TEXTS: Final = ("success", "reason")


class Owner(NamedTuple):
    """Who owns the work from ``version`` on, by which handoff."""

    agent: str
    version: int
    handoff_id: str


class TwoOwners(NamedTuple):
    """``version`` is an item or acceptance of ``agent``, which had handed over to ``owner`` at ``handed_over``."""

    version: int
    agent: str
    owner: str
    handed_over: int


class Broken(NamedTuple):
    """The offer, acceptance or item at ``version`` does not continue what was there."""

    version: int
    handoff_id: str
    reason: Reason


class PingPong(NamedTuple):
    """The acceptances, by version, by which work went back to who had it, with no new artifact or decision between."""

    versions: tuple[int, ...]
    agents: tuple[str, ...]


class Lost(NamedTuple):
    """``field`` held something in the offer at ``before``, nothing in the one at ``version``; no event ended it."""

    version: int
    field: str
    before: int


def owners(events: Iterable[RecordedEvent]) -> list[Owner]:
    """Give who owned the work, in order; a return to an earlier handoff gives it back to who had accepted that."""
    found: list[Owner] = []
    accepted: dict[str, str] = {}
    for event, before, after in _steps(events):
        if event.type == ACCEPTED and after is not before and after is not None and after.by is not None:
            accepted[after.handoff_id] = after.by
            found.append(Owner(after.by, event.version, after.handoff_id))
        elif event.type == ROLLED_BACK and event.data.get("to") in accepted:
            to = event.data["to"]
            if not found or found[-1].handoff_id != to:
                found.append(Owner(accepted[to], event.version, to))
    return found


def owner(events: Iterable[RecordedEvent]) -> Owner | None:
    """Give who owns the work now; None where it was never handed over."""
    found = owners(events)
    return found[-1] if found else None


def two_owners(events: Sequence[RecordedEvent]) -> list[TwoOwners]:
    """Find items and acceptances of an agent that has handed over and was not given the work back."""
    turns = {each.version: each for each in owners(events)}
    handed: dict[str, int] = {}
    current: str | None = None
    found = []
    for event in events:
        turn = turns.get(event.version)
        if turn is not None:
            giver = current if current is not None else _giver(event, events)
            if giver is not None and giver != turn.agent:
                handed[giver] = event.version
            handed.pop(turn.agent, None)
            current = turn.agent
        elif event.type in (ITEM, ACCEPTED) and event.agent in handed and current is not None:
            found.append(TwoOwners(event.version, event.agent, current, handed[event.agent]))
    return found


def _giver(event: RecordedEvent, events: Sequence[RecordedEvent]) -> str | None:
    """Give who handed over at the first acceptance: the envelope says."""
    handoff = fold(each for each in events if each.version <= event.version).get(event.data["handoff_id"])
    return None if handoff is None else handoff.from_agent


def broken(events: Sequence[RecordedEvent]) -> list[Broken]:
    """Find handoffs that break the chain of context, task and handoff.

    Of another context; of a task that was never opened; of another task than the handoff before, which it does not
    follow; and those on which the receiver acts though it never acknowledged.
    """
    opened = {event.data["task_id"]: event.data.get("follows") for event in events if event.type == "task.opened"}
    found: list[Broken] = []
    waiting: dict[str, Handoff] = {}
    last: Handoff | None = None
    for event, before, after in _steps(events):
        if event.type == OFFERED and after is not None and after is not before:
            if after.envelope["context_id"] != event.context:
                found.append(Broken(event.version, after.handoff_id, "context changed"))
            if after.task_id not in opened:
                found.append(Broken(event.version, after.handoff_id, "unknown task"))
            elif last is not None and not _follows(opened, after.task_id, last.task_id):
                found.append(Broken(event.version, after.handoff_id, "task changed"))
            if _late(waiting, after.from_agent, event, found):
                del waiting[str(after.from_agent)]
            waiting[after.owner] = after
            last = after
        elif event.type == ITEM and event.agent is not None:
            if _late(waiting, event.agent, event, found):
                del waiting[event.agent]
        elif after is not None and after is not before and after.status != "offered":
            waiting.pop(after.owner, None)
    return found


def _late(waiting: Mapping[str, Handoff], agent: str | None, event: RecordedEvent, found: list[Broken]) -> bool:
    """Note that an agent acts on an offer that it never acknowledged, unless it had the work anyway."""
    handoff = waiting.get(agent) if agent is not None else None
    if handoff is None or handoff.from_agent == agent:
        return False
    found.append(Broken(event.version, handoff.handoff_id, "missing acknowledgement"))
    return True


def _follows(opened: Mapping[str, str | None], task: str, before: str) -> bool:
    seen: set[str] = set()
    at: str | None = task
    while at is not None and at not in seen:
        if at == before:
            return True
        seen.add(at)
        at = opened.get(at)
    return False


def ping_pong(events: Iterable[RecordedEvent]) -> list[PingPong]:
    """Find work that went back to who had it within three handoffs, without a new artifact or decision meanwhile."""
    turns: list[Owner] = []
    found = []
    made = 0
    progress: list[int] = []
    for event, before, after in _steps(events):
        if event.type in (ARTIFACT, "decision.confirmed"):
            made += 1
        if event.type != ACCEPTED or after is None or after is before or after.by is None:
            continue
        if not turns and after.from_agent is not None:
            turns.append(Owner(after.from_agent, event.version, after.handoff_id))
            progress.append(made)
        turns.append(Owner(after.by, event.version, after.handoff_id))
        progress.append(made)
        for back in range(2, min(PING_PONG_WITHIN, len(turns) - 1) + 1):
            start = len(turns) - 1 - back
            if turns[start].agent == after.by and progress[start] == made:
                route = turns[start:]
                versions = dict.fromkeys(each.version for each in route[1:])
                found.append(PingPong(tuple(versions), tuple(each.agent for each in route)))
                break
    return found


def lost_fields(events: Iterable[RecordedEvent]) -> list[Lost]:
    """Find fields that one envelope of the lineage held and the next one lacks, though nothing ended them."""
    found: list[Lost] = []
    previous: tuple[int, Mapping[str, Any]] | None = None
    ended: set[str] = set()
    for event, before, after in _steps(events):
        ended.add(event.type)
        if event.type != OFFERED or after is None or after is before:
            continue
        envelope = after.envelope
        if previous is not None:
            version, earlier = previous
            found += [
                Lost(event.version, field, version)
                for field in (*_LISTS, *_TEXTS)
                if earlier.get(field) and not envelope.get(field) and _ANSWERED_BY.get(field) not in ended
            ]
        previous = (event.version, envelope)
        ended = set()
    return found


def _steps(
    events: Iterable[RecordedEvent],
) -> Iterable[tuple[RecordedEvent, Handoff | None, Handoff | None]]:
    """Go through events with the handoff that each is a step of, before and after it; None for other events."""
    handoffs: dict[str, Handoff] = {}
    for event in events:
        if not event.type.startswith("handoff."):
            yield event, None, None
            continue
        handoff_id = event.data["handoff_id"]
        before = handoffs.get(handoff_id)
        after = stepped(before, event)
        if after is not None:
            handoffs[handoff_id] = after
        yield event, before, after
