"""Recorded events without a database: a line that grows by what is said of it."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

from eventstore import RecordedEvent
from eventstore.log import catalogue
from eventstore.log.events import ITEM

BEGIN = dt.datetime(2026, 1, 31, tzinfo=dt.UTC)


class Line(list[RecordedEvent]):
    """Events of one stream, or of a branch: ``stream`` owns what is added from now on."""

    def __init__(self, stream: str = "s", context: str = "ctx") -> None:
        super().__init__()
        self.stream = stream
        self.context = context

    def add(self, kind: str, data: Any, **columns: Any) -> RecordedEvent:
        """Add an event; its data fits the catalogue."""
        catalogue.check(kind, data)
        version = len(self) + 1
        given = {
            "tenant": "t",
            "context": self.context,
            "stream": self.stream,
            "version": version,
            "position": version,
            "event_id": uuid.uuid4(),
            "type": kind,
            "schema_version": 1,
            "data": data,
            "metadata": {},
            "recorded_at": BEGIN + dt.timedelta(seconds=version),
            "hash": b"",
        } | dict.fromkeys(("subject", "agent", "call_id", "task_id", "run_id", "unique_key"))
        self.append(RecordedEvent(**(given | columns)))
        return self[-1]

    def says(self, agent: str | None, text: str) -> RecordedEvent:
        """Add a message."""
        return self.add(ITEM, {"type": "message", "role": "assistant", "content": text}, agent=agent)

    def calls(self, agent: str, name: str) -> RecordedEvent:
        """Add a call of a tool."""
        return self.add(ITEM, {"type": "function_call", "name": name, "arguments": "{}", "call_id": "c"}, agent=agent)

    def publish(self, uri: str, version: int) -> RecordedEvent:
        """Add an artifact."""
        return self.add("artifact.published", {"name": uri, "uri": uri, "version": version}, subject=uri)

    def offer(self, handoff_id: str, giver: str | None, owner: str, attempt: int = 1, **fields: Any) -> RecordedEvent:
        """Add an offer."""
        envelope = envelope_of(handoff_id, owner, **fields)
        if giver is not None:
            envelope["from_agent"] = giver
        data = {"handoff_id": handoff_id, "attempt": attempt, "envelope": envelope}
        return self.add("handoff.offered", data, subject=handoff_id, agent=giver)

    def accept(self, handoff_id: str, by: str) -> RecordedEvent:
        """Add an acceptance."""
        data = {"handoff_id": handoff_id, "ack_id": f"ack {handoff_id}", "by": by}
        return self.add("handoff.accepted", data, subject=handoff_id, agent=by)

    def step(self, name: str, handoff_id: str, **more: Any) -> RecordedEvent:
        """Add a later step."""
        return self.add(f"handoff.{name}", {"handoff_id": handoff_id} | more, subject=handoff_id)


def envelope_of(handoff_id: str, owner: str, **fields: Any) -> dict[str, Any]:
    """Make an envelope."""
    return {
        "schema_version": 2,
        "context_id": "ctx",
        "task_id": "t1",
        "handoff_id": handoff_id,
        "goal": "go on",
        "constraints": [],
        "decisions": [],
        "open_questions": [],
        "artifacts": [],
        "budget": {"max_tool_calls": 1, "max_tokens": 1},
        "owner": owner,
        "status": "ready",
    } | fields
