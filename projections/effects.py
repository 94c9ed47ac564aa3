"""What became of effects, folded from the events about them.

An attempt is pending while its lease lasts, then indeterminate, until it has an outcome; it is indeterminate at once
where its caller says so. Its first outcome counts, as the log admits no other. A failure frees the key for the next
attempt; an attempt that succeeded is the last. Time is the server's, given by who read the events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

from eventstore.log.events import Json, RecordedEvent

State: TypeAlias = Literal["pending", "indeterminate", "succeeded", "failed", "compensated"]
_Parts: TypeAlias = dict[str, RecordedEvent]

# What an event is to its attempt.
_PARTS: Final = {
    "effect.intended": "intention",
    "effect.succeeded": "outcome",
    "effect.failed": "outcome",
    "effect.resolved": "outcome",
    "effect.indeterminate": "doubt",
    "effect.compensated": "undoing",
}


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect and the attempt that counts: the one that succeeded, else the last."""

    key: str
    state: State
    attempt: int
    tool: str
    arguments: Json
    arguments_sha256: str
    by: str
    """The agent that ran it; the stream where none was named."""
    begun_at: datetime
    age: float
    """Seconds since then."""
    lease: float
    result: Json
    """What the tool returned, or what its resolution says; of one that was undone too."""
    error: Json
    """Why it failed."""
    reason: str | None
    """Why it is indeterminate, or was resolved as it was."""
    happened: bool | None
    """Whether it is known that it happened."""
    resolved: bool
    """Whether somebody said what became of it."""
    settled_by: str | None
    settled_at: datetime | None
    compensation: Json
    """What undoing it gave."""
    task_id: str | None
    run_id: str | None
    versions: tuple[tuple[str, int], ...]
    """The events that this was folded from, of all attempts: (stream, version)."""


def fold_effects(events: Iterable[RecordedEvent], now: datetime) -> list[Effect]:
    """Give the effects as of ``now``, in the order in which they were begun; the events may come in any order."""
    own: dict[str, list[RecordedEvent]] = {}
    for event in sorted(events, key=lambda event: event.position):
        if event.type in _PARTS:
            own.setdefault(event.data["key"], []).append(event)
    return [_effect(key, about, now) for key, about in own.items()]


def _effect(key: str, events: list[RecordedEvent], now: datetime) -> Effect:
    attempts: dict[int, _Parts] = {}
    for event in events:
        attempts.setdefault(event.data["attempt"], {}).setdefault(_PARTS[event.type], event)
    number = next((n for n, parts in attempts.items() if _happened(parts)), max(attempts))
    parts = attempts[number]
    intention, outcome, doubt, undoing = map(parts.get, ("intention", "outcome", "doubt", "undoing"))
    begun = intention or events[0]
    claim = begun.data if intention is not None else {}
    age = max((now - begun.recorded_at).total_seconds(), 0.0)
    lease = float(claim.get("lease", 0))
    reason, happened = None, None
    if outcome is not None:
        happened, reason = _happened(parts), outcome.data.get("reason")
    elif doubt is not None:
        happened, reason = doubt.data.get("happened"), doubt.data["reason"]
    elif age >= lease:
        reason = f"its lease of {lease:g} s is over"
    last = undoing or outcome
    return Effect(
        key=key,
        state=_state(parts, age < lease),
        attempt=number,
        tool=claim.get("tool", ""),
        arguments=claim.get("arguments"),
        arguments_sha256=claim.get("arguments_sha256", ""),
        by=_by(begun),
        begun_at=begun.recorded_at,
        age=age,
        lease=lease,
        result=outcome.data.get("result") if outcome is not None else None,
        error=outcome.data.get("error") if outcome is not None else None,
        reason=reason,
        happened=happened,
        resolved=outcome is not None and outcome.type == "effect.resolved",
        settled_by=None if last is None else _by(last),
        settled_at=None if last is None else last.recorded_at,
        compensation=None if undoing is None else undoing.data.get("result"),
        task_id=begun.task_id,
        run_id=begun.run_id,
        versions=tuple((event.stream, event.version) for event in events),
    )


def _state(parts: _Parts, leased: bool) -> State:
    if "undoing" in parts:
        return "compensated"
    if "outcome" in parts:
        return "succeeded" if _happened(parts) else "failed"
    return "pending" if leased and "doubt" not in parts else "indeterminate"


def _happened(parts: _Parts) -> bool:
    if "undoing" in parts:
        return True
    outcome = parts.get("outcome")
    if outcome is None:
        return False
    return outcome.type == "effect.succeeded" or (outcome.type == "effect.resolved" and outcome.data["succeeded"])


def _by(event: RecordedEvent) -> str:
    return event.agent or event.stream
