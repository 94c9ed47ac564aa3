"""The events about an effect, and what its state forbids. No I/O.

``unique_key`` is what makes it run once: an attempt has one intention, one outcome and one undoing in a context,
whoever writes them and on whatever branch. It holds the key's digest, so no key can look like another's attempt.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Final

from eventstore import errors
from eventstore.errors import ConvstoreError, InvalidItem, InvalidName, describe
from eventstore.log import canonical, codec, names
from eventstore.log.events import Event, Json
from projections.effects import Effect

LONGEST_REASON: Final = 1000
LONGEST_LEASE: Final = 366 * 86_400


@dataclass(frozen=True, slots=True)
class Claim:
    """An effect that a caller wants to run."""

    key: str
    tool: str
    arguments: Json
    digest: str
    lease: float
    agent: str | None
    task_id: str | None
    run_id: str | None

    def intended(self, attempt: int) -> Event:
        """Give the event that claims the attempt."""
        data = {
            "key": self.key,
            "tool": self.tool,
            "arguments": self.arguments,
            "arguments_sha256": self.digest,
            "attempt": attempt,
            "lease": self.lease,
        }
        return replace(self._event("effect.intended", data, _unique(self.key, attempt)), task_id=self.task_id)

    def succeeded(self, attempt: int, result: Json) -> Event:
        """Give the event that says that it happened."""
        data = {"key": self.key, "attempt": attempt, "result": result}
        return self._event("effect.succeeded", data, _unique(self.key, attempt, "outcome"))

    def failed(self, attempt: int, error: Any) -> Event:
        """Give the event that says that it did not happen; an error that is no JSON value is described."""
        if isinstance(error, BaseException):
            error = told(error)
        elif not codec.holds(error):
            error = describe(error, LONGEST_REASON)
        data = {"key": self.key, "attempt": attempt, "error": error}
        return self._event("effect.failed", data, _unique(self.key, attempt, "outcome"))

    def indeterminate(self, attempt: int, reason: str, happened: bool | None) -> Event:
        """Give the event that says that its caller does not know."""
        data = {"key": self.key, "attempt": attempt, "reason": reason, "happened": happened}
        return self._event("effect.indeterminate", data, _unique(self.key, attempt, "doubt"))

    def _event(self, kind: str, data: Json, unique_key: str) -> Event:
        # An id of its own, so that it can be sent again. The task is the intention's alone: it may have ended by the
        # time that there is an outcome, and what happened has to be recorded all the same.
        return Event(
            type=kind,
            data=data,
            subject=self.key,
            unique_key=unique_key,
            agent=self.agent,
            run_id=self.run_id,
            event_id=names.fresh_ids(1)[0],
        )


def claim(
    tool: object,
    key: object,
    arguments: Json,
    lease: object,
    agent: str | None,
    task_id: str | None,
    run_id: str | None,
) -> Claim:
    """Check what was given."""
    checked = check_key(key)
    if type(tool) is not str or not tool:
        raise InvalidName("tool", tool, "a tool's name is a str of at least one character")
    if not isinstance(lease, int | float) or not 0 < lease <= LONGEST_LEASE:
        raise InvalidItem("lease", f"{describe(lease)}; give seconds above 0, at most a year")
    given = {} if arguments is None else arguments
    codec.encode(given, "arguments")
    return Claim(checked, tool, given, canonical.digest(given), float(lease), agent, task_id, run_id)


def check_key(key: object) -> str:
    """Return ``key`` if it can be an effect's: any string but the empty one."""
    if type(key) is not str or not key:
        raise InvalidName("effect key", key, "a key is a str of at least one character")
    return key


def resolved(effect: Effect, succeeded: bool, result: Json, reason: str | None, agent: str | None) -> Event:
    """Give the event that says what became of an effect."""
    data = {"key": effect.key, "attempt": effect.attempt, "succeeded": succeeded, "result": result, "reason": reason}
    unique_key = _unique(effect.key, effect.attempt, "outcome")
    return Event(type="effect.resolved", data=data, subject=effect.key, unique_key=unique_key, agent=agent)


def compensated(effect: Effect, result: Json, agent: str | None) -> Event:
    """Give the event that says that an effect was undone."""
    data = {"key": effect.key, "attempt": effect.attempt, "result": result}
    unique_key = _unique(effect.key, effect.attempt, "undoing")
    return Event(type="effect.compensated", data=data, subject=effect.key, unique_key=unique_key, agent=agent)


def refusal(effect: Effect) -> ConvstoreError:
    """Give the error for who would run an effect that is pending, indeterminate or undone."""
    if effect.state == "pending":
        return errors.EffectPending(
            effect.key, effect.age, effect.by, tool=effect.tool, lease=effect.lease, attempt=effect.attempt
        )
    if effect.state == "compensated":
        return errors.EffectCompensated(effect.key, effect.tool, effect.settled_by or effect.by, effect.compensation)
    return errors.EffectIndeterminate(
        effect.key, effect.tool, effect.attempt, effect.by, effect.reason or "", happened=effect.happened
    )


def conflict(effect: Effect, given: str, value: Json) -> errors.IdempotencyConflict:
    """Give the error for who takes a key for something else than it stands for."""
    stored = f"tool {effect.tool!r} with arguments {describe(effect.arguments, 200)}, {effect.state}"
    if effect.state in ("succeeded", "compensated"):
        stored += f" with result {describe(effect.result, 200)}"
    return errors.IdempotencyConflict(f"effect key {describe(effect.key)}", stored, f"{given} {describe(value, 200)}")


def told(error: BaseException) -> str:
    """Name an exception, shortened."""
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"


def same(one: Json, other: Json) -> bool:
    """Tell whether two results are the same value."""
    return codec.holds(other) and canonical.canonical(one) == canonical.canonical(other)


def _unique(key: str, attempt: int, part: str = "intention") -> str:
    return f"effect:{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}:{attempt}:{part}"
