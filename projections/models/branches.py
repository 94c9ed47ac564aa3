"""``branches``: which stream goes on from which, where, and how deep. One row a branch."""

from __future__ import annotations

from collections.abc import Iterable

from eventstore.log.events import RecordedEvent
from projections.read_model import Key, ReadModel, Row


class Branches(ReadModel):
    """A branch's depth is one more than its parent's, so the order of a context's forks counts."""

    name = "branches"
    version = 1
    types = ("stream.forked",)
    ordered = "context"
    key = ("tenant", "stream")
    columns = {
        "tenant": "text NOT NULL",
        "stream": "text NOT NULL",
        "context": "text NOT NULL",
        "parent": "text NOT NULL",
        "owner": "text NOT NULL",  # of the event at the fork point
        "fork_at": "bigint NOT NULL",
        "depth": "integer NOT NULL",
        "root": "text NOT NULL",
        "agent": "text",
        "forked_at": "timestamptz NOT NULL",
        "version": "bigint NOT NULL",
        "position": "bigint NOT NULL",
    }
    indexes = ("CREATE INDEX ON {branches} (tenant, parent)",)

    def keys(self, event: RecordedEvent) -> Iterable[Key]:
        """Look at the branch's row and its parent's."""
        return [(event.tenant, event.stream), (event.tenant, event.data["parent"])]

    def step(self, rows: dict[Key, Row], event: RecordedEvent) -> None:
        """Put the branch below its parent."""
        parent = event.data["parent"]
        above = rows.get((event.tenant, parent))
        rows[event.tenant, event.stream] = {
            "tenant": event.tenant,
            "stream": event.stream,
            "context": event.context,
            "parent": parent,
            "owner": event.data.get("owner") or parent,
            "fork_at": event.data["at"],
            "depth": 1 + (above["depth"] if above is not None else 0),
            "root": above["root"] if above is not None else parent,
            "agent": event.agent,
            "forked_at": event.recorded_at,
            "version": event.version,
            "position": event.position,
        }
