"""Whether a receiver could begin by itself: it acted before it asked for what it had been given. From what it did.

A question asks for what was held where it repeats a question that was asked or answered before, or where a decision, a
constraint or an answer says what it is about: contains it, or has all of its words that matter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eventstore.log.events import ITEM, Json, RecordedEvent
from projections.facts import Facts
from projections.facts import fold as fold_facts
from projections.handoffs import Handoff, fold

_SENTENCE: Final = re.compile(r"[^.!?\u3002\uff01\uff1f\n]*[?\uff1f]")
_WORD: Final = re.compile(r"\w+")
_SMALL: Final = frozenset(
    _WORD.findall(
        "a about am an and any are as at be been but by can could did do does for from had has have how i if in into "
        "is it its may me might must my need not of on or our shall should so than that the their them then there "
        "these they this those to us want was we were what when where which who why will with would yet you your"
    )
)
_ACTS: Final = (
    "artifact.published",
    "effect.intended",
    "task.changed",
    "handoff.offered",
    "handoff.committed",
    "decision.confirmed",
    "todo.done",
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question at ``version`` and the words by which what it asks for was held already."""

    version: int
    question: str
    held: str


@dataclass(frozen=True, slots=True)
class Start:
    """How the receiver of a handoff began, up to the next acceptance.

    ``clean``: it acted, at ``acted``, and had not asked before for what was held; None while it has done neither.
    ``asked`` are all its questions for what was held.
    """

    handoff_id: str
    agent: str
    accepted: int
    clean: bool | None
    acted: int | None
    asked: tuple[Asked, ...] = ()
    questions: tuple[int, ...] = ()
    """The versions of all questions that it asked, held or not."""


def clean_starts(events: Sequence[RecordedEvent]) -> list[Start]:
    """Judge each accepted handoff of a lineage, from the events of all types in order."""
    handoffs = fold(events)
    accepted = [each for each in handoffs.values() if each.accepted is not None]
    accepted.sort(key=lambda handoff: handoff.accepted or 0)
    ends = [*(each.accepted for each in accepted[1:]), None]
    return [_start(handoff, events, end) for handoff, end in zip(accepted, ends, strict=True)]


def _start(handoff: Handoff, events: Sequence[RecordedEvent], end: int | None) -> Start:
    begun = handoff.accepted or 0
    before = [event for event in events if event.version <= begun]
    held = _held(handoff.envelope, fold_facts(before), before)
    acted: int | None = None
    asked: list[Asked] = []
    questions: list[int] = []
    for event in events:
        if event.version <= begun or (end is not None and event.version >= end) or event.agent != handoff.by:
            continue
        found = list(questions_of(event))
        if found:
            questions.append(event.version)
            known = [Asked(event.version, each, by) for each in found if (by := held.by(each)) is not None]
            asked += known
        if acted is None and _acts(event, found):
            acted = event.version
    first = asked[0].version if asked else None
    clean = None
    if acted is not None or first is not None:
        clean = acted is not None and (first is None or acted < first)
    return Start(handoff.handoff_id, str(handoff.by), begun, clean, acted, tuple(asked), tuple(questions))


def _acts(event: RecordedEvent, questions: Sequence[str]) -> bool:
    """Tell whether an event is work: a call, an answer, something made; neither a question nor a thought."""
    if event.type != ITEM:
        return event.type in _ACTS
    item = event.data
    if not isinstance(item, dict):
        return not questions
    kind = item.get("type", "message")
    return kind != "reasoning" and (kind != "message" or bool(item.get("tool_calls")) or not questions)


def questions_of(event: RecordedEvent) -> Iterator[str]:
    """Yield the questions that an event asks: an open question, or the sentences of a message that end in its mark."""
    if event.type == "question.opened":
        yield event.data["text"]
    elif event.type == ITEM:
        for text in _texts(event.data):
            for match in _SENTENCE.finditer(text):
                if _WORD.search(match[0]):
                    yield match[0].strip()


def _texts(item: Json) -> Iterator[str]:
    if not isinstance(item, dict) or item.get("type", "message") != "message":
        return
    content = item.get("content")
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else []:
        text = part.get("text") if isinstance(part, dict) else None
        if isinstance(text, str):
            yield text


def normal(text: str) -> str:
    """Reduce a sentence to what tells it from another: its words, in lower case."""
    return " ".join(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in normal(text).split() if word not in _SMALL)


@dataclass(frozen=True, slots=True)
class Held:
    """What a receiver was given: questions that were asked or answered before, and statements."""

    questions: Mapping[str, str]
    statements: Sequence[str]

    def by(self, question: str) -> str | None:
        """Give the words by which what a question asks for is held; None where it is new."""
        asked = normal(question)
        if asked in self.questions:
            return self.questions[asked]
        words = _words(question)
        for statement in self.statements:
            told = normal(statement)
            if told and (f" {told} " in f" {asked} " or (told in asked and not told.isascii())):
                return statement
            if len(words) > 1 and words <= _words(statement):
                return statement
        return None


def _held(envelope: Mapping[str, Any], facts: Facts, before: Iterable[RecordedEvent]) -> Held:
    questions = {normal(each): each for event in before if event.type == ITEM for each in questions_of(event)}
    answered = [fact for fact in facts if fact.answer is not None]
    questions |= {normal(fact.text): fact.text for fact in answered}
    statements = [*envelope["decisions"], *envelope["constraints"]]
    statements += [*facts.texts("decision"), *facts.texts("constraint")]
    statements += [fact.answer for fact in answered if fact.answer is not None]
    open_ones = {normal(text) for text in envelope["open_questions"]}
    return Held({key: text for key, text in questions.items() if key not in open_ones}, list(dict.fromkeys(statements)))
