"""``responses``: each response of a model that was recorded; and ``usage``: its tokens by tenant, model and day."""

from __future__ import annotations

from collections.abc import Iterable

from eventstore.log.events import Json, RecordedEvent
from projections.read_model import Key, ReadModel, Row, count, storable_json


class Responses(ReadModel):
    """One row a response. Usage is counted as the provider names it: input and output, or prompt and completion."""

    name = "responses"
    version = 1
    types = ("response.recorded",)
    ordered = None
    key = ("tenant", "stream", "version")
    columns = {
        "tenant": "text NOT NULL",
        "stream": "text NOT NULL",
        "version": "bigint NOT NULL",
        "context": "text NOT NULL",
        "response_id": "text NOT NULL",
        "model": "text",
        "input_tokens": "bigint",
        "output_tokens": "bigint",
        "total_tokens": "bigint",
        "usage": "jsonb",
        "seen_version": "bigint",  # of the stream, that the model was shown
        "agent": "text",
        "recorded_at": "timestamptz NOT NULL",
        "position": "bigint NOT NULL",
    }
    indexes = ("CREATE INDEX ON {responses} (tenant, model, recorded_at)",)
    views = {
        "responses": "SELECT * FROM {responses}",
        "usage": """
            SELECT tenant, model, (recorded_at AT TIME ZONE 'UTC')::date AS day, count(*) AS responses,
                   sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
                   sum(total_tokens) AS total_tokens, min(position) AS first_position, max(position) AS last_position
              FROM {responses} GROUP BY 1, 2, 3""",
    }

    def keys(self, event: RecordedEvent) -> Iterable[Key]:
        """Look at the response's row."""
        return [(event.tenant, event.stream, event.version)]

    def step(self, rows: dict[Key, Row], event: RecordedEvent) -> None:
        """Add the response."""
        data, usage = event.data, event.data.get("usage")
        given, made = (
            _tokens(usage, "input_tokens", "prompt_tokens"),
            _tokens(usage, "output_tokens", "completion_tokens"),
        )
        total = _tokens(usage, "total_tokens")
        if total is None and given is not None and made is not None:
            total = given + made
        rows[event.tenant, event.stream, event.version] = {
            "tenant": event.tenant,
            "stream": event.stream,
            "version": event.version,
            "context": event.context,
            "response_id": data["response_id"],
            "model": data.get("model"),
            "input_tokens": given,
            "output_tokens": made,
            "total_tokens": count(total),
            "usage": None if usage is None else storable_json(usage),
            "seen_version": (data.get("receipt") or {}).get("version"),
            "agent": event.agent,
            "recorded_at": event.recorded_at,
            "position": event.position,
        }


def _tokens(usage: Json, *names: str) -> int | None:
    if not isinstance(usage, dict):
        return None
    return next((n for name in names if (n := count(usage.get(name))) is not None), None)
