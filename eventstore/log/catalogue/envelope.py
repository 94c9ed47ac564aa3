"""The envelope, schema version 2: the structured snapshot that crosses a handoff.

Bodies are referenced, never embedded: an envelope has at most ``MAX_BYTES``. ``owner`` is the receiver. Version 1 had
neither ``open_questions`` nor ``budget``, nor any of the optional fields; what it lacks comes in empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import orjson
from pydantic import Field, ValidationError

from eventstore.errors import HandoffRefused, InvalidItem, describe
from eventstore.log import codec
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
from eventstore.log.catalogue.refusals import refusal
from eventstore.log.events import Json

MAX_BYTES: Final = 65_536
"""Of an envelope as compact JSON in UTF-8."""
SCHEMA_VERSION: Final = 2
_V1: Final = frozenset(
    ("schema_version", "context_id", "task_id", "handoff_id", "goal", "constraints", "decisions", "artifacts")
) | {"owner", "status"}


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

    def check(self) -> list[str]:
        """Name the fields that are missing for a receiver to go on by itself.

        ``success``: how it can tell that it is done; ``constraints``: what it must not do; ``artifacts``: which one it
        continues. Empty where nothing is missing.
        """
        told = {"goal": self.goal.strip(), "success": (self.success or "").strip()}
        held = {"constraints": self.constraints, "artifacts": self.artifacts}
        return [field for field, value in (told | held).items() if not value]

    def as_json(self) -> dict[str, Json]:
        """Give the envelope as a JSON object: the fields that were given, nulls aside."""
        return dict(_plain(self.model_dump(exclude_unset=True, exclude_none=True, warnings=False)))

    @classmethod
    def load(cls, data: Json) -> Envelope:
        """Make an envelope of a JSON object of this schema version or an older one.

        Raises:
            errors.HandoffRefused: with the field that is wrong; ``schema_version`` where newer code wrote it.
        """
        if not isinstance(data, Mapping):
            raise HandoffRefused("envelope", f"{describe(data)} should be a JSON object")
        version = data.get("schema_version")
        if type(version) is not int or version < 1:
            raise HandoffRefused("schema_version", f"{describe(version)} should be an integer, 1 or {SCHEMA_VERSION}")
        if version > SCHEMA_VERSION:
            raise HandoffRefused(
                "schema_version",
                f"{version}, known here up to {SCHEMA_VERSION}; newer code wrote it: upgrade this program",
            )
        given = dict(data) if version == SCHEMA_VERSION else _from_1(data)
        try:
            envelope = cls.model_validate(given)
        except ValidationError as error:
            fault = refusal("the envelope", cls, given, error)
            path = fault.path.removeprefix("data").lstrip(".")
            field = path.partition(".")[0].partition("[")[0]
            raise HandoffRefused(field, fault.reason if path == field else f"{path}: {fault.reason}") from None
        check_size(envelope.as_json())
        return envelope

    @classmethod
    def loads(cls, text: str | bytes) -> Envelope:
        """Make an envelope of JSON text; see ``load``."""
        try:
            data = orjson.loads(text)
        except ValueError as error:
            raise HandoffRefused("envelope", f"{describe(text)} is no JSON: {error}") from None
        return cls.load(data)


def check_size(envelope: Mapping[str, Json]) -> int:
    """Return the bytes of an envelope as compact JSON.

    Raises:
        errors.HandoffRefused: over ``MAX_BYTES``; the field is the largest one.
    """
    sizes = {}
    for name, value in envelope.items():
        try:
            sizes[name] = len(codec.encode(value, name)[1]) + len(name) + 4  # quotes, colon, comma
        except InvalidItem as error:
            raise HandoffRefused(name, f"{error.path}: {error.reason}") from None
    size = sum(sizes.values()) + 1
    if size > MAX_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        raise HandoffRefused(
            largest,
            f"the envelope has {size:,} bytes of JSON, at most {MAX_BYTES:,}; {sizes[largest]:,} of them are "
            f"{largest!r}: refer to bodies as artifacts, by uri and version",
        )
    return size


def _from_1(data: Mapping[str, Json]) -> dict[str, Json]:
    extra = sorted(set(data) - _V1)
    if extra:
        raise HandoffRefused(extra[0], "schema version 1 has no such field; does schema_version say the wrong one?")
    empty: dict[str, Any] = {"constraints": [], "decisions": [], "artifacts": [], "open_questions": []}
    budget = {"max_tool_calls": 0, "max_tokens": 0}
    return empty | {"budget": budget, "status": "ready"} | dict(data) | {"schema_version": SCHEMA_VERSION}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
