"""Verification of one stream, and of what lies beside the streams, across the wall between tenants."""

from __future__ import annotations

import psycopg
import pytest

from eventstore import EventStore

FORGED = """
INSERT INTO events
SELECT (json_populate_record(e, json_build_object('version', -9223372036854775808, 'position', 999999,
          'event_id', gen_random_uuid()))).*
  FROM events e WHERE e.position = 1
"""
OTHER = "(SELECT tenant_id FROM tenants WHERE name = 'other')"


@pytest.fixture
def filled(store: EventStore, db: psycopg.Connection) -> EventStore:
    store.conversation("s", context="c").append([1, 2, 3])
    store.for_tenant("other").conversation("s", context="d").append([1])
    assert store.verify().ok
    assert store.verify("s").ok
    db.execute("ALTER TABLE events DROP CONSTRAINT events_check")
    return store


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE streams SET tenant_id = {OTHER} WHERE stream_id = (SELECT min(stream_id) FROM streams)",
        f"UPDATE contexts SET tenant_id = {OTHER} WHERE context_id = (SELECT min(context_id) FROM contexts)",
        FORGED,
        "UPDATE contexts SET secret = sha256(secret)",
    ],
    ids=["the stream's tenant", "the context's tenant", "a row before all", "the context's secret"],
)
def test_a_stream_is_checked_with_all_that_it_hangs_on(
    filled: EventStore, db: psycopg.Connection, statement: str
) -> None:
    db.execute(statement.encode())
    assert not filled.verify("s").ok
    assert not filled.verify().ok


def test_events_of_no_tenant_are_found(filled: EventStore, db: psycopg.Connection) -> None:
    db.execute(b"UPDATE events SET tenant_id = 999 WHERE tenant_id = " + OTHER.encode())
    db.execute(b"DELETE FROM streams WHERE tenant_id = " + OTHER.encode())
    db.execute(b"DELETE FROM directory WHERE tenant_id = " + OTHER.encode())
    assert not filled.verify().ok
