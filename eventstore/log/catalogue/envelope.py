"""The envelope, schema version 2: the structured snapshot that crosses a handoff.

Bodies are referenced, never embedded. ``owner`` is the receiver.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from eventstore.log.catalogue.fields import (
    Count,
    Data,
    EffectNote,
    Name,
    Ordinal,
    Range,
    Reference,
    Sha256,
    Statement,
    Text,
    Time,
)


class EnvelopeArtifact(Data):
    """A deliverable that the receiver goes on with."""

    name: Name
    uri: Name
    version: Ordinal
    digest: Name | None = None
    summary: Text | None = None
    derived_from: list[Reference | Name] = Field(default_factory=list)


class EnvelopeEffect(EffectNote):
    """A side effect that the receiver must not repeat."""

    tool: Name
    state: Name


class Budget(Data):
    """What the receiver may spend."""

    max_tool_calls: Count
    max_tokens: Count


class History(Data):
    """How the history was handed over: what of it, from where; what was trimmed, by category."""

    mode: Name
    covers: Range | None = None
    summary: Text | None = None
    sources: list[Reference | Name] = Field(default_factory=list)
    updated_at: Time | None = None
    source_digest: Sha256 | None = None
    bytes: Count | None = None
    tokens: Count | None = None
    trimmed: dict[Name, Count] = Field(default_factory=dict)


class Envelope(Data):
    """What the receiver needs to go on, and to tell when it is done."""

    schema_version: Literal[2]
    context_id: Name
    task_id: Name
    handoff_id: Name
    goal: Statement
    constraints: list[Statement]
    decisions: list[Statement]
    open_questions: list[Statement]
    artifacts: list[EnvelopeArtifact]
    budget: Budget
    owner: Name
    status: Name

    context_version: Count | None = None
    from_agent: Name | None = None
    reason: Text | None = None
    success: Text | None = None
    todos: list[Statement] = Field(default_factory=list)
    effects: list[EnvelopeEffect] = Field(default_factory=list)
    history: History | None = None
