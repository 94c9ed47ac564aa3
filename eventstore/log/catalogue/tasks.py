"""Tasks in the states of A2A, and the artifacts that come of them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from eventstore.log.catalogue.fields import Data, Name, Ordinal, Reference, Statement, Text
from eventstore.log.catalogue.registry import event

TaskStatus: TypeAlias = Literal[
    "submitted",
    "working",
    "input-required",
    "auth-required",
    "completed",
    "canceled",
    "failed",
    "rejected",
]


@event("task.opened", version=1)
class TaskOpened(Data):
    """A task; ``follows`` names an earlier one, ``compensates`` the effects to make good."""

    task_id: Name
    goal: Statement
    follows: Name | None = None
    compensates: list[Name] = Field(default_factory=list)


@event("task.changed", version=1)
class TaskChanged(Data):
    """The task is in another state."""

    task_id: Name
    status: TaskStatus
    reason: Text | None = None


@event("artifact.published", version=1)
class ArtifactPublished(Data):
    """A deliverable, referenced by ``uri`` and ``version``, never embedded."""

    name: Name
    uri: Name
    version: Ordinal
    digest: Name | None = None
    summary: Text | None = None
    derived_from: list[Reference | Name] = Field(default_factory=list)
