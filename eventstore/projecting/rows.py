"""What the rows of builds and parked events are in Python, and what becomes of a batch."""

from __future__ import annotations

import datetime as dt
import uuid
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from eventstore.errors import ConvstoreError
from eventstore.log.events import RecordedEvent

Place: TypeAlias = tuple[str | None, str | None]
"""Within what the order of events counts: tenant, and stream or context."""
LONGEST: Final = 1000
"""Characters of an error that are kept."""


@dataclass(frozen=True, slots=True)
class Build:
    """A row of ``convstore.projections``."""

    build: int
    name: str
    version: int
    state: str
    tables: list[str]
    cursor: str | None
    position: int
    applied: int
    parked: int
    accept_parked: bool
    failures: int
    stopped: bool
    error: str | None
    worker: str | None
    updated_at: dt.datetime


@dataclass(frozen=True, slots=True)
class Parked:
    """An event that a projection could not take. ``held``: how many wait behind it."""

    projection: str
    projection_version: int
    state: str
    build: int
    position: int
    tenant: str | None
    context: str | None
    stream: str | None
    version: int
    event_id: uuid.UUID
    type: str
    error: str
    attempts: int
    held: int
    parked_at: dt.datetime


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of a parked event: with those behind it applied, or parked again, it or one behind it."""

    parked: Parked
    applied: int
    error: str | None


@dataclass(frozen=True, slots=True)
class ProjectionState:
    """How far a build is. ``state``: live, building, or new where nobody has run it yet.

    ``lag`` counts the events behind its position, of any type, up to 10,000 (``lag_capped``); ``lag_seconds`` is the
    age of the oldest. All is None where its cursor is refused, as ``error`` then says.
    """

    name: str
    version: int
    state: str
    build: int | None
    position: int
    lag: int | None
    lag_seconds: float | None
    lag_capped: bool
    applied: int
    parked: int
    stopped: bool
    error: str | None
    worker: str | None
    updated_at: dt.datetime | None


class Step(Enum):
    """How one step went."""

    MORE = "more"  # and there is more to read
    IDLE = "idle"  # all is read
    NOTHING = "nothing"  # another worker is at it, or it waits for its next try, or is stopped


class Passing(Exception):
    """What is not the events' fault: the server's, or another transaction's in the way."""


class Failing(Exception):
    """What a projection raised for a batch; it will be tried again."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(told(cause))


@dataclass(slots=True)
class Outcome:
    """What became of a batch. ``stopped``: the event before which the projection has to stop, and why."""

    applied: int = 0
    parked: list[tuple[RecordedEvent, Exception]] = field(default_factory=list)
    held: Counter[Place] = field(default_factory=Counter)
    stopped: tuple[RecordedEvent, Exception] | None = None


def told(error: BaseException) -> str:
    """Write an error in a line that the database can hold."""
    text = " ".join(str(error).split())
    text = text if isinstance(error, ConvstoreError | Passing | Failing) else f"{type(error).__name__}: {text}"
    text = text.replace("\x00", "\ufffd").encode(errors="replace").decode()
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
