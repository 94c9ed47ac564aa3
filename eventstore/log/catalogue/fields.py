"""What the data of events is made of: names, texts, versions, ranges, digests, references.

Strict throughout: no value is coerced, no unknown field passes. Text is any ``str`` that JSON can
carry, lone surrogates included. A field that may be left out may also be null, unless it is a list.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from typing import Annotated, Any, Final, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    Strict,
    model_validator,
)

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class Data(BaseModel):
    """The data of an event, or a part of it."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def _not_empty(text: str) -> str:
    if not text:
        raise ValueError("should not be empty")
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("should not be blank")
    return text


def _sha256(text: str) -> str:
    if not _SHA256.fullmatch(text):
        raise ValueError("should be a SHA-256 digest: 64 characters of 0-9 a-f")
    return text


def _event_id(text: str) -> str:
    try:
        uuid.UUID(text)
    except ValueError:
        raise ValueError("should be an event id: a UUID") from None
    return text


def _time(text: str) -> str:
    try:
        when = dt.datetime.fromisoformat(text)
    except ValueError:
        when = None
    if when is None or when.tzinfo is None:
        raise ValueError("should be a time with its zone, such as '2026-01-31T12:00:00Z'")
    return text


def _ascending(ends: tuple[int, int]) -> tuple[int, int]:
    if ends[0] > ends[1]:
        raise ValueError("should be [from, to] with from no greater than to")
    return ends


Text: TypeAlias = InstanceOf[str]
Name: TypeAlias = Annotated[InstanceOf[str], AfterValidator(_not_empty), Field(json_schema_extra={"minLength": 1})]
Statement: TypeAlias = Annotated[
    InstanceOf[str], AfterValidator(_not_blank), Field(json_schema_extra={"pattern": r"\S"})
]
Sha256: TypeAlias = Annotated[
    InstanceOf[str], AfterValidator(_sha256), Field(json_schema_extra={"pattern": "^[0-9a-f]{64}$"})
]
EventId: TypeAlias = Annotated[InstanceOf[str], AfterValidator(_event_id), Field(json_schema_extra={"format": "uuid"})]
Time: TypeAlias = Annotated[InstanceOf[str], AfterValidator(_time), Field(json_schema_extra={"format": "date-time"})]

Count: TypeAlias = Annotated[int, Field(ge=0)]
Ordinal: TypeAlias = Annotated[int, Field(ge=1)]
Seconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Usage: TypeAlias = dict[Text, Any]
"""What the model's provider counted, as it gave it."""

# JSON has no tuple: a list comes in, hence not strict about the pair itself; load() gives a tuple.
Range: TypeAlias = Annotated[tuple[Ordinal, Ordinal], Strict(False), AfterValidator(_ascending)]
"""Versions of a stream, 1-based, both ends inclusive."""


class Reference(Data):
    """An event, by id or by version (of this stream unless named), or an artifact's version."""

    event_id: EventId | None = None
    stream: Name | None = None
    uri: Name | None = None
    version: Ordinal | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Reference:
        given = {name for name, value in self if value is not None}
        if given not in ({"event_id"}, {"version"}, {"stream", "version"}, {"uri", "version"}):
            raise ValueError("should be {event_id}, {version}, {stream, version} or {uri, version}, nothing else")
        return self


class ArtifactVersion(Data):
    """One version of an artifact, by reference."""

    uri: Name
    version: Ordinal
    name: Name | None = None
    digest: Name | None = None


class EffectNote(Data):
    """An effect by its key, with what was known of it."""

    key: Name
    tool: Name | None = None
    state: Name | None = None
    result: Any = None
