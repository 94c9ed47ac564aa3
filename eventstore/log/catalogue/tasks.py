"""Tasks in the states of A2A, and the artifacts that come of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, Literal, TypeAlias, get_args

from pydantic import AfterValidator, Field

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
STATES: Final[tuple[str, ...]] = get_args(TaskStatus)
TERMINAL: Final = frozenset({"completed", "canceled", "failed", "rejected"})
OPENED: Final = "task.opened"
CHANGED: Final = "task.changed"
PUBLISHED: Final = "artifact.published"

_MAX_BYTES: Final = {"uri": 2048, "name": 512, "digest": 256, "summary": 4096}


def _reference(text: str) -> str:
    if text[:5].lower() == "data:":
        raise ValueError("should say where the body is; a data: URI is the body itself, store it elsewhere")
    return _short("uri")(text)


def _short(field: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > _MAX_BYTES[field]:
            raise ValueError(
                f"should have at most {_MAX_BYTES[field]:,} bytes, not {size:,}: an artifact is a reference, its body "
                "is stored elsewhere"
            )
        return text

    return check


@event("task.opened", version=1)
class TaskOpened(Data):
    """A task, submitted to ``owner``; ``follows`` names an earlier one, ``compensates`` the effects to make good."""

    task_id: Name
    goal: Statement
    follows: Name | None = None
    compensates: list[Name] = Field(default_factory=list)
    owner: Name | None = None


@event("task.changed", version=1)
class TaskChanged(Data):
    """The task is in another state."""

    task_id: Name
    status: TaskStatus
    reason: Text | None = None


@event("artifact.published", version=1)
class ArtifactPublished(Data):
    """A deliverable, referenced by ``uri`` and ``version``, never embedded."""

    name: Annotated[Name, AfterValidator(_short("name"))]
    uri: Annotated[Name, AfterValidator(_reference)]
    version: Ordinal
    digest: Annotated[Name, AfterValidator(_short("digest"))] | None = None
    summary: Annotated[Text, AfterValidator(_short("summary"))] | None = None
    derived_from: list[Reference | Name] = Field(default_factory=list)
