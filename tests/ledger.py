"""A projection in which a lost, repeated or misplaced event shows: a chain of hashes a stream. And its fold, apart.

``convstore project run --also ledger:LEDGER`` runs it. An event whose data is ``{"poison": true}`` can't be applied
until ``LEDGER_MENDED`` is set.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import psycopg

from eventstore import EventStore, RecordedEvent, UndecodableEvent
from eventstore.projecting import Projection, Statement

Row = tuple[int, int, str]


class Ledger(Projection):
    name = "ledger"
    tables = {
        "ledger": "tenant text, stream text, events bigint, version bigint, digest text, PRIMARY KEY (tenant, stream)"
    }
    mended = False

    def apply(self, batch: Sequence[RecordedEvent]) -> Generator[Statement, list[tuple[Any, ...]], None]:
        keys = sorted({(event.tenant, event.stream) for event in batch})
        found = yield Statement(
            "SELECT t.* FROM unnest($1::text[], $2::text[]) k (a, b)"
            " JOIN {ledger} t ON (t.tenant, t.stream) = (k.a, k.b)",
            [[key[0] for key in keys], [key[1] for key in keys]],
        )
        rows: dict[Any, Row] = {(row[0], row[1]): (row[2], row[3], row[4]) for row in found}
        for event in batch:
            poison = isinstance(event.data, dict) and event.data.get("poison")
            if poison and not (self.mended or os.environ.get("LEDGER_MENDED")):
                raise ValueError(f"poison at {event.position}")
            key = (event.tenant, event.stream)
            rows[key] = chained(rows.get(key), event)
        for key, row in rows.items():
            yield Statement(
                "INSERT INTO {ledger} VALUES ($1, $2, $3, $4, $5) ON CONFLICT (tenant, stream) DO UPDATE"
                " SET events = excluded.events, version = excluded.version, digest = excluded.digest",
                [*key, *row],
            )


class Ledger2(Ledger):
    """The next version, with a column more."""

    version = 2
    tables = {
        "ledger": "tenant text, stream text, events bigint, version bigint, digest text,"
        " made_by integer DEFAULT 2, PRIMARY KEY (tenant, stream)"
    }

    def apply(self, batch: Sequence[RecordedEvent]) -> Generator[Statement, list[tuple[Any, ...]], None]:
        work = super().apply(batch)
        rows = None
        while True:
            try:
                statement = work.send(rows)  # type: ignore[arg-type]
            except StopIteration:
                return
            sql = statement.sql.replace("SELECT t.*", "SELECT t.tenant, t.stream, t.events, t.version, t.digest")
            rows = yield Statement(sql, statement.params)


class Waiting(Ledger):
    """Waits in the middle of a batch for a lock that the test holds."""

    def apply(self, batch: Sequence[RecordedEvent]) -> Generator[Statement, list[tuple[Any, ...]], None]:
        yield from super().apply(batch)
        yield Statement("SELECT pg_advisory_xact_lock(4711)::text")


WAITING = Waiting()
LEDGER = Ledger()
LEDGER2 = Ledger2()


def chained(row: Row | None, event: RecordedEvent) -> Row:
    events, _, digest = row or (0, 0, "")
    link = hashlib.sha256(f"{digest} {event.position} {event.version}".encode()).hexdigest()[:16]
    return events + 1, event.version, link


def fold(store: EventStore, *, without: Iterable[int] = ()) -> dict[tuple[str, str], Row]:
    """The whole log, but the events at some positions."""
    rows: dict[tuple[str, str], Row] = {}
    left_out = set(without)
    for event in store.subscribe(idle=0, all_tenants=True):
        if event.position not in left_out and not isinstance(event, UndecodableEvent):
            rows[event.tenant, event.stream] = chained(rows.get((event.tenant, event.stream)), event)
    return rows


def view(conn: psycopg.Connection[Any], table: str = "convstore_views.ledger") -> dict[tuple[str, str], Row]:
    """What the view shows."""
    rows = conn.execute(f"SELECT tenant, stream, events, version, digest FROM {table}").fetchall()  # type: ignore[arg-type]
    return {(row[0], row[1]): (row[2], row[3], row[4]) for row in rows}
