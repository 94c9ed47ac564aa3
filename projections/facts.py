"""What is held true in a conversation: constraints, decisions, questions and to-dos, folded from its events.

A fact belongs to the lineage: a branch inherits those up to its fork point, and later changes on one side aren't seen
by the other. What does not fit (an answer to no question, a second revocation) changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from eventstore.log.events import RecordedEvent

Kind: TypeAlias = Literal["constraint", "decision", "question", "todo"]
State: TypeAlias = Literal["holds", "revoked", "open", "answered", "done"]

TYPES: Final = (
    "constraint.added",
    "constraint.revoked",
    "decision.confirmed",
    "decision.revoked",
    "question.opened",
    "question.answered",
    "todo.added",
    "todo.done",
)
ADDED: Final[Mapping[Kind, str]] = {
    "constraint": "constraint.added",
    "decision": "decision.confirmed",
    "question": "question.opened",
    "todo": "todo.added",
}
ENDED: Final[Mapping[Kind, str]] = {
    "constraint": "constraint.revoked",
    "decision": "decision.revoked",
    "question": "question.answered",
    "todo": "todo.done",
}
_ENDS: Final[Mapping[Kind, State]] = {
    "constraint": "revoked",
    "decision": "revoked",
    "question": "answered",
    "todo": "done",
}


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact as of some version: ``version`` is that of the event that stated it, ``ended`` that of its end.

    A constraint or decision ``holds`` until it is ``revoked``; a question is ``open`` until it is ``answered``, a to-do
    until it is ``done``.
    """

    fact_id: str
    kind: Kind
    text: str
    state: State
    stream: str
    version: int
    evidence: tuple[dict[str, Any], ...] = ()
    agent: str | None = None
    answer: str | None = None
    answer_evidence: tuple[dict[str, Any], ...] = ()
    reason: str | None = None
    ended: int | None = None
    deduplicated: bool = field(default=False, compare=False)
    """Whether the call that returned it repeated an earlier one."""

    @property
    def question_id(self) -> str:
        """The same id, for a question."""
        return self.fact_id

    @property
    def todo_id(self) -> str:
        """The same id, for a to-do."""
        return self.fact_id

    @property
    def current(self) -> bool:
        """Whether it is to be reckoned with: it holds, or is open."""
        return self.state in ("holds", "open")


@dataclass(frozen=True, slots=True)
class Facts:
    """Every fact that was ever stated, by id, in the order in which they were stated."""

    by_id: Mapping[str, Fact]

    def __iter__(self) -> Iterator[Fact]:
        return iter(self.by_id.values())

    def current(self, kind: Kind) -> list[Fact]:
        """Give those of a kind that hold or are open."""
        return [fact for fact in self if fact.kind == kind and fact.current]

    def texts(self, kind: Kind) -> list[str]:
        """Give what those say, each text once."""
        return list(dict.fromkeys(fact.text for fact in self.current(kind)))

    def shown(self) -> list[Fact]:
        """Give all but those that were revoked: answered questions and done to-dos stay, with their state."""
        return [fact for fact in self if fact.state != "revoked"]


_KINDS: Final[Mapping[str, Kind]] = {name: kind for kind, name in ADDED.items()}
_ENDED_KINDS: Final[Mapping[str, Kind]] = {name: kind for kind, name in ENDED.items()}
_IDS: Final[Mapping[Kind, str]] = {
    "constraint": "fact_id",
    "decision": "fact_id",
    "question": "question_id",
    "todo": "todo_id",
}


def id_field(kind: Kind) -> str:
    """Give the field of the events' data that holds the id of a fact of this kind."""
    return _IDS[kind]


def fold(events: Iterable[RecordedEvent]) -> Facts:
    """Fold a lineage's events, in order; those of other types are passed over."""
    facts: dict[str, Fact] = {}
    for event in events:
        if event.type in _KINDS:
            fact = stated(event)
            facts.setdefault(fact.fact_id, fact)
        elif event.type in _ENDED_KINDS:
            kind = _ENDED_KINDS[event.type]
            fact_id = event.data[_IDS[kind]]
            held = facts.get(fact_id)
            if held is not None and held.kind == kind and held.current:
                facts[fact_id] = ended(held, event)
    return Facts(facts)


def stated(event: RecordedEvent) -> Fact:
    """Read the fact that an event states.

    A decision whose evidence is nothing but events that were not there yet is a guess: an open question.
    """
    kind = _KINDS[event.type]
    data = event.data
    evidence = tuple(data.get("evidence", ()))
    fact_id = data[_IDS[kind]]
    if kind == "decision" and not any(_precedes(reference, event) for reference in evidence):
        kind = "question"
    state: State = "holds" if kind in ("constraint", "decision") else "open"
    return Fact(fact_id, kind, data["text"], state, event.stream, event.version, evidence, event.agent)


def ended(fact: Fact, event: RecordedEvent) -> Fact:
    """Give a fact after the event that ends it."""
    data = event.data
    done = replace(fact, state=_ENDS[fact.kind], ended=event.version, reason=data.get("reason"))
    if fact.kind != "question":
        return done
    return replace(done, answer=data["text"], answer_evidence=tuple(data.get("evidence", ())))


def _precedes(reference: Mapping[str, Any], event: RecordedEvent) -> bool:
    if reference.get("event_id") is not None:
        return bool(reference["event_id"] != str(event.event_id))
    own = reference.get("uri") is None and reference.get("stream") in (None, event.stream)
    return not own or bool(reference["version"] < event.version)
