"""The steps of a handoff, each an event.

Offered (attempt n), then accepted, rejected or failed; accepted, then committed or failed; committed or failed, then
rolled back. Not accepted and failed, it may be offered again.
"""

from __future__ import annotations

from pydantic import Field, model_validator

from eventstore.log.catalogue.envelope import Envelope
from eventstore.log.catalogue.fields import (
    ArtifactVersion,
    Count,
    Data,
    EffectNote,
    Name,
    Ordinal,
    Text,
)
from eventstore.log.catalogue.registry import event
from eventstore.log.catalogue.tasks import TaskStatus


class ReturnPoint(Data):
    """The last accepted or committed handoff, the version of that step, and the artifacts as of it.

    Without such a handoff: the version before the failed one was offered.
    """

    handoff_id: Name | None = None
    version: Count | None = None
    artifacts: list[ArtifactVersion] = Field(default_factory=list)


@event("handoff.offered", version=1)
class HandoffOffered(Data):
    """An envelope offered to its owner, complete or known to lack ``missing``."""

    handoff_id: Name
    attempt: Ordinal
    envelope: Envelope
    allow_incomplete: bool = False
    missing: list[Text] = Field(default_factory=list)

    @model_validator(mode="after")
    def _same_handoff(self) -> HandoffOffered:
        if self.handoff_id != self.envelope.handoff_id:
            raise ValueError(
                f"should name one handoff, not {self.handoff_id!r} and, in its envelope, {self.envelope.handoff_id!r}"
            )
        return self


@event("handoff.accepted", version=1)
class HandoffAccepted(Data):
    """The receiver's acknowledgement; ``context_version`` is the envelope's."""

    handoff_id: Name
    ack_id: Name
    by: Name
    context_version: Count | None = None


@event("handoff.rejected", version=1)
class HandoffRejected(Data):
    """The receiver declines."""

    handoff_id: Name
    reason: Text


@event("handoff.committed", version=1)
class HandoffCommitted(Data):
    """The work that was handed over is done."""

    handoff_id: Name


@event("handoff.failed", version=1)
class HandoffFailed(Data):
    """The handoff came to nothing; ``effects`` are those that had happened."""

    handoff_id: Name
    reason: Text
    effects: list[EffectNote | Name] = Field(default_factory=list)
    return_to: ReturnPoint


@event("handoff.rolled_back", version=1)
class HandoffRolledBack(Data):
    """Work goes on from the handoff ``to`` and its ``artifacts`` as of ``version``; ``effects`` need compensation.

    One event for each handoff that is undone; where none is, the work within ``to`` begins again: it names itself.
    Without ``to``, it goes on from before the first offer.
    """

    handoff_id: Name
    to: Name | None = None
    version: Count | None = None
    artifacts: list[ArtifactVersion] = Field(default_factory=list)
    effects: list[EffectNote | Name] = Field(default_factory=list)
    task: TaskStatus | None = None
