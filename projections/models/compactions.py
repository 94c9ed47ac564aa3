"""``compactions``: what each covers, what it saved, and whether it is shown still and up to date. One row each."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Sequence
from typing import Any, Final

from eventstore.log.events import RecordedEvent
from projections.projection import Projection, Rows, Statement
from projections.read_model import given, texts
from projections.transcript import EMPTY, Ranges

_COLUMNS: Final = {
    "tenant": "text",
    "stream": "text",
    "version": "bigint",
    "context": "text",
    "covers_from": "bigint",
    "covers_to": "bigint",
    "items": "bigint",
    "basis": "text",
    "depth": "bigint",
    "method": "text",
    "model": "text",
    "bytes_before": "bigint",
    "bytes_after": "bigint",
    "tokens_before": "bigint",
    "tokens_after": "bigint",
    "seconds": "float8",
    "stale": "boolean",
    "shown": "boolean",
    "agent": "text",
    "recorded_at": "timestamptz",
    "position": "bigint",
}
_KEY: Final = ("tenant", "stream", "version")
_SAME: Final = ("items", "basis", "depth", "method", "model", "bytes_before", "bytes_after", "tokens_before")
_FLAGS: Final = {name: _COLUMNS[name] for name in (*_KEY, "stale", "shown")}


class Compactions(Projection):
    """The fold of the transcript tells which are stale and which are shown, so its ranges are kept beside.

    Of a stream's own control events: what a branch does to a compaction of its parent does not show in the parent's.
    """

    name = "compactions"
    version = 1
    types = ("history.compacted", "items.retracted", "history.cleared")
    ordered = "stream"
    tables = {
        "compactions": ", ".join(
            f"{name} {kind}" for name, kind in [*_COLUMNS.items(), ("PRIMARY KEY", f"({', '.join(_KEY)})")]
        ),
        "compaction_ranges": "tenant text, stream text, ranges jsonb NOT NULL, PRIMARY KEY (tenant, stream)",
    }
    views = {"compactions": "SELECT * FROM {compactions}"}

    def apply(self, batch: Sequence[RecordedEvent]) -> Generator[Statement, Rows, None]:
        """Fold each stream's control events, and note what they changed."""
        streams = list(dict.fromkeys((event.tenant, event.stream) for event in batch))
        columns = [texts(column) for column in zip(*streams, strict=True)]
        pair = given({"tenant": "text", "stream": "text"})
        found = yield Statement(
            f"SELECT r.* FROM {pair} k CROSS JOIN LATERAL (SELECT t.tenant, t.stream, t.ranges"
            " FROM {compaction_ranges} t WHERE (t.tenant, t.stream) = (k.tenant, k.stream) LIMIT 1) r",
            columns,
        )
        ranges = {(tenant, stream): Ranges.loads(value) for tenant, stream, value in found}
        made: dict[tuple[Any, ...], dict[str, Any]] = {}
        flags: dict[tuple[Any, ...], tuple[bool, bool]] = {}
        for event in batch:
            place = (event.tenant, event.stream)
            before = ranges.get(place, EMPTY)
            after = ranges[place] = before.apply(event.version, event.type, event.data)
            for version, stale, shown in _changes(before, after):
                flags[*place, version] = stale, shown
            if event.type == "history.compacted":
                made[*place, event.version] = _row(event)
                flags.setdefault((*place, event.version), (False, False))
        for key, row in made.items():
            row["stale"], row["shown"] = flags.pop(key)
        yield from _write("compactions", _COLUMNS, made.values())
        yield from _write(
            "compaction_ranges",
            {"tenant": "text", "stream": "text", "ranges": "jsonb"},
            [{"tenant": t, "stream": s, "ranges": json.dumps(ranges[t, s].dumps())} for t, s in streams],
            key=("tenant", "stream"),
        )
        if flags:
            rows = [(*key, *values) for key, values in flags.items()]
            yield Statement(
                f"UPDATE {{compactions}} t SET stale = k.stale, shown = k.shown FROM {given(_FLAGS)} k"
                " WHERE (t.tenant, t.stream, t.version) = (k.tenant, k.stream, k.version)",
                [texts(column) for column in zip(*rows, strict=True)],
            )


def _changes(before: Ranges, after: Ranges) -> Iterable[tuple[int, bool, bool]]:
    """Give version, stale and shown of each compaction that one control event changed."""
    old = {compaction.version: compaction.stale for compaction in before.compactions}
    new = {compaction.version: compaction.stale for compaction in after.compactions}
    for version, stale in old.items():
        if version not in new:
            yield version, stale, False
    for version, stale in new.items():
        if old.get(version) != stale:
            yield version, stale, True


def _row(event: RecordedEvent) -> dict[str, Any]:
    data = event.data
    return {
        **{name: getattr(event, name) for name in ("tenant", "stream", "version", "context", "agent", "position")},
        **{name: data.get(name) for name in (*_SAME, "tokens_after", "seconds")},
        "covers_from": data["covers"][0],
        "covers_to": data["covers"][1],
        "recorded_at": event.recorded_at,
    }


def _write(
    table: str, columns: dict[str, str], rows: Iterable[dict[str, Any]], key: Sequence[str] = _KEY
) -> Iterable[Statement]:
    rows = list(rows)
    if rows:
        names = ", ".join(columns)
        rest = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in key)
        yield Statement(
            f"INSERT INTO {{{table}}} ({names}) SELECT {names} FROM {given(columns)} k"
            f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {rest}",
            [texts([row[name] for row in rows]) for name in columns],
        )
