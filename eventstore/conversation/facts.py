# Generated from facts_async.py by ops/generate_sync.py: edit that one.
"""Facts of a conversation: what is held true, with evidence. Each is an event, and stands until another one ends it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeAlias

from eventstore.conversation.control import find_done
from eventstore.conversation.evidence import Evidence, check_evidence
from eventstore.conversation.stream import Stream
from eventstore.conversation.transcripts import check_at, read_basis
from eventstore.errors import IdempotencyConflict, InvalidItem, UniqueKeyConflict, describe
from eventstore.log import names
from eventstore.log.events import Event, Json, RecordedEvent
from projections.facts import ADDED, ENDED, TYPES, Fact, Facts, Kind, fold, id_field, stated

FactList: TypeAlias = list[Fact]  # by a name of its own: below, list is the method
_WORDS: Final = {
    "constraint": "no constraint",
    "decision": "no decision",
    "question": "no question",
    "todo": "no to-do",
}


class FactLog:
    """What is held true in a conversation, on a branch what it inherited included.

    Every writing call takes ``key=``, any string: the same call with it again writes nothing and returns the first
    result. A fact may be named by its id or by itself.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def constrain(
        self, text: str, *, evidence: Iterable[Evidence] = (), agent: str | None = None, key: str | None = None
    ) -> Fact:
        """State something that has to be kept to.

        Raises ``InvalidItem`` where the text is blank, or evidence names nothing in this context.
        """
        return self._state("constraint", text, evidence, agent, key)

    def confirm(
        self, text: str, evidence: Iterable[Evidence] = (), *, agent: str | None = None, key: str | None = None
    ) -> Fact:
        """Record a decision, with at least one reference that proves it.

        Args:
            text: what was decided.
            evidence: recorded events, event ids, versions of this stream, (stream, version) or ``{"uri", "version"}``;
                each must exist in this context.
            agent: who confirms.
            key: any string; makes a retry safe.

        Raises:
            InvalidItem: no evidence, so it can only be an open question: ``ask(text)``; or it names nothing here.
        """
        return self._state("decision", text, evidence, agent, key)

    def ask(
        self, text: str, *, evidence: Iterable[Evidence] = (), agent: str | None = None, key: str | None = None
    ) -> Fact:
        """Record something that is not known yet: an open question."""
        return self._state("question", text, evidence, agent, key)

    def todo(
        self, text: str, *, evidence: Iterable[Evidence] = (), agent: str | None = None, key: str | None = None
    ) -> Fact:
        """Record something left to do."""
        return self._state("todo", text, evidence, agent, key)

    def revoke(
        self,
        fact_id: str | Fact,
        reason: str,
        *,
        evidence: Iterable[Evidence] = (),
        agent: str | None = None,
        key: str | None = None,
    ) -> Fact:
        """Take a constraint or a decision back; say why.

        Raises ``InvalidItem`` where there is none of that id, or it is revoked already.
        """
        return self._end(("constraint", "decision"), fact_id, "reason", reason, evidence, agent, key)

    def answer(
        self,
        question_id: str | Fact,
        text: str,
        evidence: Iterable[Evidence] = (),
        *,
        agent: str | None = None,
        key: str | None = None,
    ) -> Fact:
        """Answer an open question.

        Raises ``InvalidItem`` where there is none of that id, or it is answered already.
        """
        return self._end(("question",), question_id, "text", text, evidence, agent, key)

    def done(
        self,
        todo_id: str | Fact,
        *,
        evidence: Iterable[Evidence] = (),
        agent: str | None = None,
        key: str | None = None,
    ) -> Fact:
        """Mark a to-do as done.

        Raises ``InvalidItem`` where there is none of that id, or it is done already.
        """
        return self._end(("todo",), todo_id, None, None, evidence, agent, key)

    def list(self, at: int | datetime | None = None) -> FactList:
        """Return the facts as of a version or a moment, in the order in which they were stated.

        Constraints and decisions that were revoked are left out; answered questions and done to-dos are there, with
        their ``state``. One round trip for the head.
        """
        return (read_facts(self._stream, at)).shown()

    def _state(self, kind: Kind, text: str, evidence: Iterable[Evidence], agent: str | None, key: str | None) -> Fact:
        stream = self._stream
        earlier = find_done(stream, key, ADDED[kind])
        if earlier is not None:
            if earlier.data["text"] != text:
                raise IdempotencyConflict(f"key {key!r}", describe(earlier.data["text"]), describe(text))
            return replace(stated(earlier), deduplicated=True)
        references = check_evidence(stream, evidence, required=kind == "decision")
        event_id = new_id(stream, key)
        data: dict[str, Json] = {id_field(kind): fact_id_of(kind, event_id), "text": text}
        if references:
            data["evidence"] = references
        event = Event(type=ADDED[kind], data=data, subject=data[id_field(kind)], agent=agent, event_id=event_id)
        result = stream.append_events([event])
        if result.deduplicated and key is not None:  # another call with this key came first
            return self._state(kind, text, evidence, agent, key)
        return Fact(
            data[id_field(kind)],
            kind,
            text,
            "holds" if kind in ("constraint", "decision") else "open",
            stream.name,
            result.last_version,
            tuple(references),
            agent,
        )

    def _end(
        self,
        kinds: tuple[Kind, ...],
        given: str | Fact,
        word: str | None,
        text: str | None,
        evidence: Iterable[Evidence],
        agent: str | None,
        key: str | None,
    ) -> Fact:
        stream = self._stream
        fact_id = given.fact_id if isinstance(given, Fact) else given
        if type(fact_id) is not str:
            raise InvalidItem(id_field(kinds[0]), f"{describe(fact_id)}; give the fact or its id")
        earlier = self._done(kinds, key)
        facts = read_facts(stream, None if earlier is None else earlier.version)
        fact = facts.by_id.get(fact_id)
        if fact is None or fact.kind not in kinds:
            words = " and ".join(_WORDS[kind] for kind in kinds)
            raise InvalidItem(id_field(kinds[0]), f"{fact_id!r}: there is {words} of this id in stream {stream.name!r}")
        name = id_field(fact.kind)
        if earlier is not None:
            stored = (earlier.data.get(name), word and earlier.data[word])
            if stored != (fact_id, text):
                raise IdempotencyConflict(f"key {key!r}", describe(stored), describe((fact_id, text)))
            return replace(fact, deduplicated=True)
        if not fact.current:
            raise InvalidItem(name, f"{fact_id!r} was {fact.state} at version {fact.ended}")
        data: dict[str, Json] = {name: fact_id}
        if word is not None:
            data[word] = text
        references = check_evidence(stream, evidence, required=False)
        if references:
            data["evidence"] = references
        event = Event(
            type=ENDED[fact.kind],
            data=data,
            subject=fact_id,
            agent=agent,
            unique_key=f"fact/{fact_id}/ended/{stream.name}",  # once on each branch
            event_id=new_id(stream, key),
        )
        try:
            stream.append_events([event])
        except UniqueKeyConflict:
            return self._end(kinds, given, word, text, evidence, agent, key)  # and it tells by whom
        found = read_facts(stream, None)
        return found.by_id[fact_id]

    def _done(self, kinds: tuple[Kind, ...], key: str | None) -> RecordedEvent | None:
        try:
            return find_done(self._stream, key, ENDED[kinds[0]])
        except IdempotencyConflict:
            if len(kinds) == 1:
                raise
            return find_done(self._stream, key, ENDED[kinds[1]])


def read_facts(stream: Stream, at: int | datetime | None) -> Facts:
    """Fold a stream's facts as of a version or a moment; None for the head."""
    check_at(at)
    last = None
    if at is not None:
        basis = read_basis(stream.route.caller, stream.tenant, stream.name, at, 0)
        if basis is None:
            return Facts({})
        last = basis.version
    events = stream.events(1, last, types=TYPES)
    found = list(events)
    return fold(found)


def new_ids(stream: Stream, key: str | None, n: int) -> list[uuid.UUID]:
    """Give the ids of events to append, derived from ``key`` where there is one."""
    if key is None:
        return names.fresh_ids(n)
    return names.derived_ids(stream.tenant, stream.name, names.check_key(key), n)


def new_id(stream: Stream, key: str | None) -> uuid.UUID:
    """Give the id of one event to append."""
    return new_ids(stream, key, 1)[0]


def fact_id_of(kind: Kind, event_id: uuid.UUID) -> str:
    """Derive a fact's id from that of the event which states it."""
    return f"{kind}_{event_id.hex}"
