"""The events of handoffs, as they are appended. Pure."""

from __future__ import annotations

import uuid

from eventstore.log.catalogue.envelope import Envelope, check_size
from eventstore.log.events import Event, Json
from projections.handoffs import OFFERED, Handoff


def offered(envelope: Envelope, head: int, giver: str | None, attempt: int, event_id: uuid.UUID) -> Event:
    """Offer an envelope, with what it leaves open filled in: the version that it is as of, and the giver."""
    data = envelope.as_json()
    data.setdefault("context_version", head)
    if giver is not None:
        data.setdefault("from_agent", giver)
    check_size(data)
    offer: dict[str, Json] = {"handoff_id": envelope.handoff_id, "attempt": attempt, "envelope": data}
    missing = envelope.check()
    if missing:
        offer |= {"allow_incomplete": True, "missing": missing}
    return Event(
        type=OFFERED,
        data=offer,
        subject=envelope.handoff_id,
        agent=data.get("from_agent"),
        task_id=envelope.task_id,
        unique_key=f"handoff/{envelope.handoff_id}/offered/{attempt}",
        event_id=event_id,
    )


def step(kind: str, data: dict[str, Json], by: str | None, unique_key: str | None, event_id: uuid.UUID | None) -> Event:
    """Make one of the later steps. It names no task: a handoff can be ended also where its task is over."""
    return Event(type=kind, data=data, subject=data["handoff_id"], agent=by, unique_key=unique_key, event_id=event_id)


def end_of(handoff: Handoff) -> str:
    """Give the key that only one end of a handoff can hold: of an attempt, or of what was accepted."""
    which = f"/{handoff.attempt}" if handoff.status == "offered" else ""
    return f"handoff/{handoff.handoff_id}/ended{which}"
