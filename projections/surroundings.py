"""What stands around handoffs: artifacts, tasks and effects, as far as a handoff needs them, folded from events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from eventstore.log.events import RecordedEvent

ARTIFACT: Final = "artifact.published"
TASKS: Final = ("task.opened", "task.changed")
EFFECTS: Final = (
    "effect.intended",
    "effect.succeeded",
    "effect.failed",
    "effect.resolved",
    "effect.compensated",
)
TERMINAL: Final = frozenset({"completed", "canceled", "failed", "rejected"})
"""The states of A2A that a task does not leave."""

Pointers: TypeAlias = dict[str, dict[str, Any]]
"""uri → the artifact that is current there: ``name``, ``uri``, ``version``, perhaps ``digest`` and ``summary``."""
EffectState: TypeAlias = Literal["indeterminate", "succeeded", "failed", "compensated"]

_POINTER: Final = ("name", "uri", "version", "digest", "summary")


def artifacts_of(events: Iterable[RecordedEvent]) -> dict[tuple[str, int], dict[str, Any]]:
    """Give what was published, by uri and version."""
    published = (event for event in events if event.type == ARTIFACT)
    return {(event.data["uri"], event.data["version"]): event.data for event in published}


def pointer(artifact: Mapping[str, Any]) -> dict[str, Any]:
    """Reduce an artifact, as published or in an envelope, to what points to it."""
    return {name: artifact[name] for name in _POINTER if artifact.get(name) is not None}


def tasks_of(events: Iterable[RecordedEvent]) -> dict[str, str]:
    """Give the status of each task, in the order in which they were opened; a terminal one stays."""
    tasks: dict[str, str] = {}
    for event in events:
        if event.type == "task.opened":
            tasks.setdefault(event.data["task_id"], "submitted")
        elif event.type == "task.changed" and tasks.get(event.data["task_id"], "failed") not in TERMINAL:
            tasks[event.data["task_id"]] = event.data["status"]
    return tasks


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect by its key; ``version`` is that of the event that gave it this state."""

    key: str
    tool: str
    state: EffectState
    version: int
    result: Any = None

    @property
    def stands(self) -> bool:
        """Whether it happened and was not undone, or may have happened."""
        return self.state in ("succeeded", "indeterminate")

    def note(self) -> dict[str, Any]:
        """Give what an event or an envelope says of it."""
        note = {"key": self.key, "tool": self.tool, "state": self.state}
        return note if self.result is None else note | {"result": self.result}


def effects_of(events: Iterable[RecordedEvent]) -> dict[str, Effect]:
    """Give each effect's last state. One that was begun and has no outcome yet may have happened."""
    effects: dict[str, Effect] = {}
    for event in events:
        if event.type not in EFFECTS:
            continue
        data = event.data
        key = data["key"]
        if event.type == "effect.intended":
            effects[key] = Effect(key, data["tool"], "indeterminate", event.version)
        elif key in effects:
            effects[key] = replace(
                effects[key], state=_outcome(event), version=event.version, result=data.get("result")
            )
    return effects


def _outcome(event: RecordedEvent) -> EffectState:
    if event.type == "effect.compensated":
        return "compensated"
    happened = event.data["succeeded"] if event.type == "effect.resolved" else event.type == "effect.succeeded"
    return "succeeded" if happened else "failed"
