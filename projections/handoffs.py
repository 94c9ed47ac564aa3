"""Handoffs and where each stands, folded from the events of a lineage.

A step that does not fit the life cycle changes nothing: the log may hold what nobody should have written. On a branch a
parent's open offer does not count; what was accepted does, and with it the points that work can return to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from eventstore.log.events import RecordedEvent
from projections.surroundings import ARTIFACT, Effect, Pointers, effects_of, pointer

Status: TypeAlias = Literal["offered", "accepted", "rejected", "committed", "failed", "rolled_back"]

OFFERED: Final = "handoff.offered"
ACCEPTED: Final = "handoff.accepted"
REJECTED: Final = "handoff.rejected"
COMMITTED: Final = "handoff.committed"
FAILED: Final = "handoff.failed"
ROLLED_BACK: Final = "handoff.rolled_back"
TYPES: Final = (OFFERED, ACCEPTED, REJECTED, COMMITTED, FAILED, ROLLED_BACK)


@dataclass(frozen=True, slots=True)
class Handoff:
    """A handoff as of some version.

    ``offered`` is the version of its last offer, ``accepted`` that of its acceptance, ``version`` that of its last
    step; ``stream`` owns them.
    """

    handoff_id: str
    status: Status
    attempt: int
    stream: str
    first_offered: int
    offered: int
    version: int
    envelope: Mapping[str, Any] = field(repr=False)
    missing: tuple[str, ...] = ()
    accepted: int | None = None
    ack_id: str | None = None
    by: str | None = None
    reason: str | None = None
    effects: tuple[Any, ...] = ()
    return_to: Mapping[str, Any] | None = None

    @property
    def owner(self) -> str:
        """Who is to receive it."""
        return str(self.envelope["owner"])

    @property
    def from_agent(self) -> str | None:
        """Who gives it."""
        return self.envelope.get("from_agent")

    @property
    def task_id(self) -> str:
        """The task that it is about."""
        return str(self.envelope["task_id"])

    @property
    def confirmed(self) -> bool:
        """Whether work can return to it: it was accepted, and neither failed nor was undone."""
        return self.status in ("accepted", "committed")

    @property
    def can_be_offered(self) -> bool:
        """Whether it may be offered again: nobody has answered."""
        return self.status == "offered" or (self.status == "failed" and self.accepted is None)


def fold(events: Iterable[RecordedEvent]) -> dict[str, Handoff]:
    """Fold handoffs by id, in the order of their first offers."""
    handoffs: dict[str, Handoff] = {}
    for event in events:
        if event.type in TYPES:
            handoff_id = event.data["handoff_id"]
            after = stepped(handoffs.get(handoff_id), event)
            if after is not None:
                handoffs[handoff_id] = after
    return handoffs


def stepped(handoff: Handoff | None, event: RecordedEvent) -> Handoff | None:
    """Give a handoff after one more of its events; as it was where that does not fit."""
    data = event.data
    if event.type == OFFERED:
        return _offered(handoff, event)
    if handoff is None:
        return None
    if event.type == ACCEPTED and handoff.status == "offered":
        ack = {"ack_id": data["ack_id"], "by": data["by"]}
        return replace(handoff, status="accepted", accepted=event.version, version=event.version, **ack)
    if event.type == REJECTED and handoff.status == "offered":
        return replace(handoff, status="rejected", version=event.version, reason=data["reason"])
    if event.type == COMMITTED and handoff.status == "accepted":
        return replace(handoff, status="committed", version=event.version)
    if event.type == FAILED and handoff.status in ("offered", "accepted"):
        return replace(
            handoff,
            status="failed",
            version=event.version,
            reason=data["reason"],
            effects=tuple(data.get("effects", ())),
            return_to=data["return_to"],
        )
    if event.type == ROLLED_BACK and handoff.status in ("committed", "failed") and data.get("to") != data["handoff_id"]:
        return replace(handoff, status="rolled_back", version=event.version)
    return handoff


def _offered(handoff: Handoff | None, event: RecordedEvent) -> Handoff:
    first = event.version
    if handoff is not None:
        if not handoff.can_be_offered:
            return handoff
        first = handoff.first_offered
    data = event.data
    return Handoff(
        data["handoff_id"],
        "offered",
        data["attempt"],
        event.stream,
        first,
        event.version,
        event.version,
        data["envelope"],
        tuple(data.get("missing", ())),
    )


def inherited(handoffs: Mapping[str, Handoff], stream: str) -> dict[str, Handoff]:
    """Leave out what a branch does not inherit: the open offers of the streams that it descends from."""
    return {
        handoff_id: handoff
        for handoff_id, handoff in handoffs.items()
        if handoff.stream == stream or handoff.status != "offered"
    }


@dataclass(frozen=True, slots=True)
class Point:
    """Where work can return to: ``version`` of a handoff's acceptance or commit, and the artifacts as of it.

    Without a handoff it is the version before the first offer that came to nothing.
    """

    handoff_id: str | None
    version: int
    artifacts: Pointers

    def as_json(self) -> dict[str, Any]:
        """Give it as ``return_to`` of an event."""
        place: dict[str, Any] = {} if self.handoff_id is None else {"handoff_id": self.handoff_id}
        return place | {"version": self.version, "artifacts": references(self.artifacts)}


def references(artifacts: Pointers) -> list[dict[str, Any]]:
    """Give artifacts by reference: without what is said about them."""
    return [{name: each[name] for name in each if name != "summary"} for each in artifacts.values()]


@dataclass(frozen=True, slots=True)
class Course:
    """A lineage as handoffs see it: them, the artifacts that are current, and the points to return to, by handoff."""

    handoffs: dict[str, Handoff]
    artifacts: Pointers
    points: dict[str, Point]
    starts: dict[str, Point]
    """Before the first offer of each."""

    def confirmed(self, *, but: Sequence[str] = ()) -> list[Point]:
        """Give the points of the handoffs that stand, the last one last."""
        standing = (self.points[each.handoff_id] for each in self.handoffs.values() if each.confirmed)
        return sorted((point for point in standing if point.handoff_id not in but), key=lambda point: point.version)

    def return_point(self, handoff_id: str) -> Point:
        """Give where work returns to when a handoff comes to nothing."""
        before = self.confirmed(but=[handoff_id])
        return before[-1] if before else self.starts[handoff_id]

    def undone_by(self, point: Point) -> list[Handoff]:
        """Give the handoffs that a return to a point undoes, in order: what came after it and is not over already."""
        return [
            each
            for each in self.handoffs.values()
            if each.handoff_id != point.handoff_id and each.version > point.version
            if each.confirmed or each.status in ("offered", "failed")
        ]


def course(events: Iterable[RecordedEvent], stream: str) -> Course:
    """Fold what handoffs need of a lineage's events: steps of handoffs and published artifacts, in order.

    A roll-back restores the artifacts of its point; an acceptance makes those of its envelope the current ones.
    """
    handoffs: dict[str, Handoff] = {}
    artifacts: Pointers = {}
    points: dict[str, Point] = {}
    starts: dict[str, Point] = {}
    for event in events:
        if event.type == ARTIFACT:
            artifacts[event.data["uri"]] = pointer(event.data)
        if event.type not in TYPES:
            continue
        handoff_id = event.data["handoff_id"]
        before = handoffs.get(handoff_id)
        after = stepped(before, event)
        if after is not None:
            handoffs[handoff_id] = after
        if before is None and after is not None:
            starts[handoff_id] = Point(None, event.version - 1, dict(artifacts))
        if event.type == ROLLED_BACK and before is not None:
            artifacts = {each["uri"]: pointer(each) for each in event.data.get("artifacts", ())}
        elif after is not None and after is not before and after.confirmed:
            if event.type == ACCEPTED:
                named = (pointer(each) for each in after.envelope["artifacts"])
                artifacts |= {each["uri"]: artifacts.get(each["uri"], {}) | each for each in named}
            points[handoff_id] = Point(handoff_id, event.version, dict(artifacts))
    known = inherited(handoffs, stream)
    return Course(known, artifacts, points, {each: start for each, start in starts.items() if each in known})


def to_compensate(events: Iterable[RecordedEvent], point: Point, undone: Sequence[Handoff]) -> list[dict[str, Any]]:
    """Give the effects that happened, or may have, after a point, and those that the undone handoffs name."""
    effects = effects_of(events)
    notes = {key: effect.note() for key, effect in effects.items() if _later(effect, point)}
    for handoff in undone:
        for given in handoff.effects:
            note = given if isinstance(given, dict) else {"key": given}
            known = effects.get(note["key"])
            if known is None or known.stands:
                notes.setdefault(note["key"], note)
    return list(notes.values())


def _later(effect: Effect, point: Point) -> bool:
    return effect.stands and effect.version > point.version
