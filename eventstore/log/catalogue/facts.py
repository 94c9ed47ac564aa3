"""What is held true: constraints, decisions, questions and to-dos.

A decision needs evidence; without it a statement can only be an open question.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from eventstore.log.catalogue.fields import Data, Name, Reference, Statement, Text
from eventstore.log.catalogue.registry import event


@event("constraint.added", version=1)
class ConstraintAdded(Data):
    """Something that has to be kept to."""

    fact_id: Name
    text: Statement
    evidence: list[Reference] = Field(default_factory=list)


@event("constraint.revoked", version=1)
class ConstraintRevoked(Data):
    """The constraint no longer holds."""

    fact_id: Name
    reason: Text
    evidence: list[Reference] = Field(default_factory=list)


@event("decision.confirmed", version=1)
class DecisionConfirmed(Data):
    """A decision, with at least one reference that proves it."""

    fact_id: Name
    text: Statement
    evidence: Annotated[list[Reference], Field(min_length=1)]


@event("decision.revoked", version=1)
class DecisionRevoked(Data):
    """The decision no longer holds."""

    fact_id: Name
    reason: Text
    evidence: list[Reference] = Field(default_factory=list)


@event("question.opened", version=1)
class QuestionOpened(Data):
    """Something that is not known yet."""

    question_id: Name
    text: Statement
    evidence: list[Reference] = Field(default_factory=list)


@event("question.answered", version=1)
class QuestionAnswered(Data):
    """The answer to an open question."""

    question_id: Name
    text: Statement
    evidence: list[Reference] = Field(default_factory=list)


@event("todo.added", version=1)
class TodoAdded(Data):
    """Something left to do."""

    todo_id: Name
    text: Statement
    evidence: list[Reference] = Field(default_factory=list)


@event("todo.done", version=1)
class TodoDone(Data):
    """The to-do is done."""

    todo_id: Name
    evidence: list[Reference] = Field(default_factory=list)
