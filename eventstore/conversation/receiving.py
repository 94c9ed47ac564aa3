# Generated from receiving_async.py by ops/generate_sync.py: edit that one.
"""Taking in an envelope that was made elsewhere."""

from __future__ import annotations

from typing import Final

from eventstore.conversation.control import find_done
from eventstore.conversation.facts import fact_id_of, new_id
from eventstore.conversation.handoff_events import offered
from eventstore.conversation.handoff_rules import check_context, check_here, told
from eventstore.conversation.steps import REVOCATIONS, append_step, facts_of, look_around
from eventstore.conversation.stream import Stream
from eventstore.errors import HandoffRefused, IdempotencyConflict, UniqueKeyConflict
from eventstore.log import names
from eventstore.log.catalogue.envelope import Envelope
from eventstore.log.events import Event
from projections.facts import ADDED, Facts, Kind, id_field
from projections.facts import TYPES as FACTS
from projections.handoffs import OFFERED, TYPES, fold

_FIELDS: Final[dict[str, Kind]] = {"constraints": "constraint", "open_questions": "question", "todos": "todo"}


def receive(stream: Stream, text: str | bytes, key: str | None) -> Envelope:
    """Record a foreign envelope as an offer, with what it says as facts: never as decisions."""
    given = Envelope.loads(text)
    event_id = new_id(stream, key)
    while True:
        earlier = find_done(stream, key, OFFERED)
        if earlier is not None:
            if earlier.data["handoff_id"] != given.handoff_id:
                raise IdempotencyConflict(f"key {key!r}", earlier.data["handoff_id"], given.handoff_id)
            return Envelope.load(earlier.data["envelope"])
        look = look_around(stream, given, all_facts=True)
        check_context(given, look.context)
        held = facts_of(stream, look)
        envelope = without_guesses(given, held)
        steps = [each for each in look.about if each.type in TYPES]
        before = fold(steps).get(given.handoff_id)
        attempt = 1
        if before is not None:
            check_here(before, given.handoff_id, stream.name)
            stored = Envelope.load(before.envelope)
            if before.status == "offered" and _same(stored, envelope):
                return stored
            if not before.can_be_offered:
                raise HandoffRefused("handoff_id", f"{given.handoff_id!r} is taken: {told(before)}")
            attempt = before.attempt + 1
        offer = offered(envelope, look.head, envelope.from_agent, attempt, event_id)
        events = [offer, *_facts(envelope, held)]
        try:
            result = append_step(stream, events, look.head, [*TYPES, *FACTS, *REVOCATIONS])
        except UniqueKeyConflict:
            continue
        if result is not None:
            return Envelope.load(offer.data["envelope"])


def without_guesses(envelope: Envelope, facts: Facts) -> Envelope:
    """Turn the decisions that are not proved here into open questions."""
    proved = set(facts.texts("decision"))
    guesses = [text for text in envelope.decisions if text not in proved]
    if not guesses:
        return envelope
    questions = dict.fromkeys([*envelope.open_questions, *guesses])
    decisions = [text for text in envelope.decisions if text in proved]
    return envelope.model_copy(update={"decisions": decisions, "open_questions": list(questions)})


def _same(stored: Envelope, given: Envelope) -> bool:
    """Tell whether an envelope was recorded as it is given, but for what an offer fills in."""
    filled = {name: value for name, value in stored.as_json().items() if name in given.model_fields_set}
    return filled == given.as_json()


def _facts(envelope: Envelope, held: Facts) -> list[Event]:
    """State what the envelope says and the fold does not hold."""
    events = []
    for field, kind in _FIELDS.items():
        known = set(held.texts(kind)) if kind != "question" else {fact.text for fact in held if fact.kind == "question"}
        for text in dict.fromkeys(getattr(envelope, field)):
            if text in known:
                continue
            event_id = names.fresh_ids(1)[0]
            fact_id = fact_id_of(kind, event_id)
            events.append(
                Event(
                    type=ADDED[kind],
                    data={id_field(kind): fact_id, "text": text},
                    subject=fact_id,
                    agent=envelope.from_agent,
                    event_id=event_id,
                )
            )
    return events
