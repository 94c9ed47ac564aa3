"""``conversations``: what there is, how much of it, and when something happened last. One row a stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eventstore.log import names
from eventstore.log.events import ITEM, Json, RecordedEvent
from projections.pairs import calls, results
from projections.read_model import Key, ReadModel, Row, storable

LONGEST: Final = 80
"""Characters of a title."""


class Conversations(ReadModel):
    """Counts of a stream's own events; the prefix that a branch shares is its parent's.

    Any order of the events gives the same row, so one that can't be decoded holds up no other.
    """

    name = "conversations"
    version = 1
    ordered = None
    key = ("tenant", "stream")
    columns = {
        "tenant": "text NOT NULL",
        "stream": "text NOT NULL",
        "context": "text NOT NULL",
        "title": "text",
        "title_version": "bigint",
        "tags": "jsonb",
        "tags_version": "bigint",
        "events": "bigint NOT NULL",
        "counts": "jsonb NOT NULL",
        "calls": "jsonb NOT NULL",  # kind and id → calls less results, where that is not 0
        "closed": "boolean NOT NULL",
        "version": "bigint NOT NULL",
        "position": "bigint NOT NULL",
        "first_at": "timestamptz NOT NULL",
        "last_at": "timestamptz NOT NULL",
        "last_agent": "text",
        "agent_version": "bigint",
    }
    indexes = ("CREATE INDEX ON {conversations} (tenant, last_at)",)
    views = {
        "conversations": """
            SELECT c.tenant, c.context, c.stream, c.title, d.tags || coalesce(c.tags, '{}') AS tags, c.events,
                   coalesce((c.counts ->> 'item.appended')::bigint, 0) AS items, c.counts,
                   (SELECT count(*) FROM jsonb_each(c.calls) AS e WHERE e.value::integer > 0) AS open_calls,
                   c.closed, c.first_at, c.last_at, c.last_agent, c.version, c.position, c.title_version
              FROM {conversations} c
              LEFT JOIN convstore.tenants t ON t.name = c.tenant
              LEFT JOIN convstore.directory d ON d.tenant_id = t.tenant_id AND d.name = c.stream"""
    }

    def keys(self, event: RecordedEvent) -> Iterable[Key]:
        """Look at the stream's row."""
        return [(event.tenant, event.stream)]

    def step(self, rows: dict[Key, Row], event: RecordedEvent) -> None:
        """Count the event."""
        key = (event.tenant, event.stream)
        old = rows.get(key)
        row = dict(old) if old is not None else _new(event)
        if event.version >= row["version"]:
            row |= {"version": event.version, "position": event.position, "last_at": event.recorded_at}
        if event.agent is not None and event.version > (row["agent_version"] or 0):
            row |= {"last_agent": event.agent, "agent_version": event.version}
        row["first_at"] = min(row["first_at"], event.recorded_at)
        row["events"] += 1
        row["counts"] = {**row["counts"], event.type: row["counts"].get(event.type, 0) + 1}
        if event.type == ITEM:
            self._item(row, event)
        elif event.type == "stream.tagged" and event.version > (row["tags_version"] or 0):
            row |= {"tags": event.data["tags"], "tags_version": event.version}
        elif event.type == "stream.closed":
            row["closed"] = True
        rows[key] = row

    def _item(self, row: dict[str, Json], event: RecordedEvent) -> None:
        if event.version < (row["title_version"] or event.version + 1):
            title = title_of(event.data)
            if title:
                row |= {"title": title, "title_version": event.version}
        changes = [(key, 1) for key in calls(event.data)] + [(key, -1) for key in results(event.data)]
        for (kind, ident), change in changes:
            name = f"{kind} {names.storable('call id', ident)}"
            left = row["calls"].get(name, 0) + change
            row["calls"] = {k: v for k, v in row["calls"].items() if k != name} | ({name: left} if left else {})


def title_of(item: Json) -> str | None:
    """Give a user's text in one line of at most 80 characters; None where the item is not a user's, or has no text."""
    if not isinstance(item, dict) or item.get("role") != "user" or item.get("type", "message") != "message":
        return None
    content = item.get("content")
    parts = [content] if isinstance(content, str) else content if isinstance(content, list) else []
    text = next((t for part in parts if isinstance(t := part.get("text") if isinstance(part, dict) else part, str)), "")
    line = " ".join(storable(text[: 20 * LONGEST]).split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1].rstrip() + "…"


def _new(event: RecordedEvent) -> dict[str, Json]:
    return {
        "tenant": event.tenant,
        "stream": event.stream,
        "context": event.context,
        "title": None,
        "title_version": None,
        "tags": None,
        "tags_version": None,
        "events": 0,
        "counts": {},
        "calls": {},
        "closed": False,
        "version": 0,
        "position": 0,
        "first_at": event.recorded_at,
        "last_at": event.recorded_at,
        "last_agent": None,
        "agent_version": None,
    }
