"""``verify`` finds what the database's owner changed behind the store's back, and names the place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import sql

from eventstore import Event, EventStore
from eventstore.errors import StreamNotFound
from eventstore.log import hashing
from eventstore.log.audit import VerifyReport

COLUMNS = (
    "context_id, stream_id, version, position, recorded_at, event_id, tenant_id, schema_version, format, hash, chain,"
    " type, subject, agent, call_id, task_id, run_id, unique_key, metadata, data"
)
TABLES = ("tenants", "contexts", "directory", "streams", "events")
S = "(SELECT stream_id FROM directory WHERE name = 's')"
T = "(SELECT stream_id FROM directory WHERE name = 't')"
CONTENT = "content does not have the hash"
CHAIN = "chain does not fit"


def row(version: int, stream: str = S) -> str:
    return f"WHERE stream_id = {stream} AND version = {version}"


def change(column: str, value: str, version: int = 3) -> str:
    return f"UPDATE events SET {column} = {value} {row(version)}"


def copy_of(version: int, stream: str = S, /, **other: str) -> str:
    """Insert a row like that of ``version``, with other values in some columns."""
    fresh = {"event_id": "gen_random_uuid()", "unique_key": "NULL", "position": "nextval('position')"} | other
    values = ", ".join(fresh.get(column, column) for column in map(str.strip, COLUMNS.split(",")))
    return f"INSERT INTO events ({COLUMNS}) SELECT {values} FROM events {row(version, stream)}"


def swap(one: int, other: int, columns: str) -> str:
    picked = ", ".join(f"e.{column}" for column in columns.split(", "))
    return (
        f"WITH e AS (SELECT * FROM events WHERE stream_id = {S} AND version IN ({one}, {other})) UPDATE events u"
        f" SET ({columns}) = (SELECT {picked} FROM e WHERE e.version = {one} + {other} - u.version)"
        f" WHERE stream_id = {S} AND version IN ({one}, {other})"
    )


def swap_versions(one: int, other: int) -> str:
    return (
        f"{change('version', '1000', one)}; {change('version', str(one), other)}; {change('version', str(other), 1000)}"
    )


# What s holds: 1 | 2 3 4 | 5, which clears the history | 6 7 | 8; a bar ends an append.
TAMPERED: dict[str, tuple[str, int, str]] = {
    "one character of data": (change("data", "replace(data::text, 'three', 'threE')::json"), 3, CONTENT),
    "white space in data": (change("data", "(data::text || ' ')::json"), 3, CONTENT),
    "data of two rows": (swap(3, 6, "data"), 3, CONTENT),
    "data of the first row": (change("data", "'0'", 1), 1, CONTENT),
    "data of the last row": (change("data", "'0'", 8), 8, CONTENT),
    "data and hash of two rows": (swap(1, 8, "data, hash"), 1, CONTENT),
    "type": (change("type", "'x.other'"), 3, CONTENT),
    "subject": (change("subject", "'another'"), 3, CONTENT),
    "subject taken away": (change("subject", "NULL"), 3, CONTENT),
    "subject that was null": (change("subject", "'something'", 1), 1, CONTENT),
    "subject that was null, emptied": (change("subject", "''", 1), 1, CONTENT),
    "agent": (change("agent", "'another'"), 3, CONTENT),
    "agent and subject swapped": (change("(agent, subject)", "(subject, agent)"), 3, CONTENT),
    "call_id": (change("call_id", "'another'"), 3, CONTENT),
    "task_id": (change("task_id", "'another'"), 3, CONTENT),
    "run_id": (change("run_id", "'another'"), 3, CONTENT),
    "unique_key": (change("unique_key", "'another'"), 3, CONTENT),
    "metadata": (change("metadata", """'{"trace":"another"}'"""), 3, CONTENT),
    "metadata taken away": (change("metadata", "NULL"), 3, CONTENT),
    "metadata that was null": (change("metadata", "'{}'", 1), 1, CONTENT),
    "metadata that was null, as JSON": (change("metadata", "'null'", 1), 1, CONTENT),
    "event_id": (change("event_id", "gen_random_uuid()"), 3, CONTENT),
    "schema_version": (change("schema_version", "schema_version + 1"), 3, CONTENT),
    "format": (change("format", "3 - format"), 3, CONTENT),
    "hash": (change("hash", "sha256(hash)"), 3, CONTENT),
    "recorded_at within an append": (change("recorded_at", "recorded_at + interval '1 us'"), 3, "time is not that of"),
    "recorded_at of an append": (change("recorded_at", "recorded_at + interval '1 us'", 1), 1, CHAIN),
    "recorded_at put back": (change("recorded_at", "recorded_at - interval '1 year'", 5), 5, "time is before"),
    "recorded_at beyond all times": (change("recorded_at", "'infinity'", 8), 8, CHAIN),
    "recorded_at before all times": (change("recorded_at", "'-infinity'", 1), 1, CHAIN),
    "position within an append": (change("position", "nextval('position')"), 4, "its position"),
    "position of an append": (change("position", "nextval('position')", 8), 8, CHAIN),
    "position of the first row": (change("position", "nextval('position')", 1), 1, CHAIN),
    "positions of two rows": (
        f"UPDATE events SET position = position + 1000000 {row(2)};"
        f"UPDATE events SET position = position - 1 {row(3)}; UPDATE events SET position = position - 999999 {row(2)}",
        3,
        "its position",
    ),
    "tenant_id": (change("tenant_id", "(SELECT tenant_id FROM tenants WHERE name = 'other')"), 3, "tenant"),
    "chain": (change("chain", "sha256(chain)", 4), 4, CHAIN),
    "chain taken away": (change("chain", "NULL", 4), 5, "time is not that of"),
    "chain taken away at the end": (change("chain", "NULL", 8), 8, "no chain"),
    "chain where there was none": (change("chain", "sha256('')", 3), 3, CHAIN),
    "versions of two rows": (swap_versions(3, 4), 3, CHAIN),
    "versions of two rows within": (swap_versions(2, 3), 3, "its position"),
    "versions of two appends": (swap_versions(5, 8), 5, CHAIN),
    "a middle row deleted": (f"DELETE FROM events {row(3)}", 4, "version 3 is missing"),
    "the first row deleted": (f"DELETE FROM events {row(1)}", 2, "version 1 is missing"),
    "a whole append deleted, the rest moved up": (
        f"DELETE FROM events {row(5)}; UPDATE events SET version = version - 1 {row(6)};"
        f"UPDATE events SET version = version - 1 {row(7)}; UPDATE events SET version = version - 1 {row(8)};"
        f"UPDATE streams SET head = 7, control = 0 WHERE stream_id = {S}",
        6,
        CHAIN,
    ),
    "the last row deleted": (f"DELETE FROM events {row(8)}", 7, "the stream's head is 8"),
    "all rows deleted": (f"DELETE FROM events WHERE stream_id = {S}", 0, "the stream's head is 8"),
    "half an append deleted, with the head": (
        f"DELETE FROM events WHERE stream_id = {S} AND version > 6; UPDATE streams SET head = 6 WHERE stream_id = {S}",
        6,
        "its tail is missing",
    ),
    "a row beyond the head": (copy_of(8, version="9"), 9, "beyond the head, which is 8"),
    "a row far beyond the head": (copy_of(8, version="100"), 100, "version 9 is missing"),
    "a row below version 1": (copy_of(1, version="0"), 0, "versions count from 1"),
    "a row far below version 1": (copy_of(1, version="-5"), -5, "versions count from 1"),
    "a row moved to another stream": (
        f"UPDATE events SET (context_id, stream_id, version) ="
        f" (SELECT context_id, stream_id, 100 FROM directory WHERE name = 't') {row(3)}",
        4,
        "version 3 is missing",
    ),
    "control": (f"UPDATE streams SET control = 4 WHERE stream_id = {S}", 8, "version 4 changed the transcript last"),
    "closed": (f"UPDATE streams SET closed = true WHERE stream_id = {S}", 8, "closed"),
    "the stream's time": (f"UPDATE streams SET recorded_at = now() WHERE stream_id = {S}", 8, "time"),
    "a lower head": (f"UPDATE streams SET head = 5 WHERE stream_id = {S}", 6, "beyond the head, which is 5"),
    "a higher head": (f"UPDATE streams SET head = 9 WHERE stream_id = {S}", 8, "the stream's head is 9"),
    "the stream's secret": (f"UPDATE streams SET secret = sha256(secret) WHERE stream_id = {S}", 0, "secrets differ"),
    "the digest of its names": (f"UPDATE streams SET origin = sha256(origin) WHERE stream_id = {S}", 0, "other names"),
    "the stream's name": ("UPDATE directory SET name = 'renamed' WHERE name = 's'", 0, "other names"),
    "the context's name": ("UPDATE contexts SET name = 'renamed' WHERE name = 'c'", 0, "other names"),
    "the stream's row deleted": (f"DELETE FROM streams WHERE stream_id = {S}", 0, "is missing"),
}


@pytest.fixture
def filled(store: EventStore) -> EventStore:
    """A store with two streams in one context, a third one, and another tenant."""
    s = store.conversation("s", context="c")
    s.append([{"text": "one"}])
    s.append_events(
        [
            Event(
                type="x.note",
                data={"text": text},
                metadata={"trace": text},
                subject=f"subject {text}",
                agent="agent",
                call_id=f"call {text}",
                task_id="task",
                run_id="run",
                unique_key=f"only {text}",
            )
            for text in ("two", "three", "four")
        ]
    )
    s.append_events([Event(type="history.cleared", data={"reason": "enough"})])
    s.append([{"text": "six"}, {"text": "seven"}])
    s.append([{"text": "eight"}], key="k")
    t = store.conversation("t", context="c")
    t.append([{"text": "one"}, {"text": "two"}])
    t.append([{"text": "three"}])
    store.conversation("u").append([1])
    store.for_tenant("other").conversation("o").append([1, 2, 3])
    return store


@contextmanager
def restored(db: psycopg.Connection) -> Iterator[None]:
    """Put every row back as it was, to the byte."""
    for table in TABLES:
        db.execute(sql.SQL("CREATE TEMPORARY TABLE {} AS TABLE {}").format(backup(table), sql.Identifier(table)))
    yield
    for table in TABLES:
        db.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier("convstore", table)))
        db.execute(
            sql.SQL("INSERT INTO {} OVERRIDING SYSTEM VALUE TABLE {}").format(
                sql.Identifier("convstore", table), backup(table)
            )
        )
        db.execute(sql.SQL("DROP TABLE {}").format(backup(table)))


def backup(table: str) -> sql.Identifier:
    return sql.Identifier(f"{table}_as_it_was")


def tamper(db: psycopg.Connection, statements: str) -> None:
    db.execute("ALTER TABLE events DROP CONSTRAINT IF EXISTS events_check")  # who may change rows may do that too
    with db.transaction():
        for statement in statements.split(";"):
            done = db.execute(statement.encode())
            assert done.rowcount > 0, f"changed nothing: {statement}"


def assert_bad(report: VerifyReport, stream: str, version: int, reason: str) -> None:
    assert not report.ok
    assert report.first_bad is not None
    assert (report.first_bad.stream, report.first_bad.version) == (stream, version)
    assert reason in report.first_bad.reason


def test_what_nobody_touched_is_right(filled: EventStore) -> None:
    assert filled.verify() == VerifyReport(checked=12, streams=3, first_bad=None)
    assert filled.verify("t") == VerifyReport(checked=3, streams=1, first_bad=None)
    assert filled.for_tenant("other").verify() == VerifyReport(checked=3, streams=1, first_bad=None)
    with pytest.raises(StreamNotFound):
        filled.verify("o")


@pytest.mark.parametrize("what", TAMPERED)
def test_a_change_is_found_where_it_was_made(filled: EventStore, db: psycopg.Connection, what: str) -> None:
    statements, version, reason = TAMPERED[what]
    name = "renamed" if what == "the stream's name" else "s"
    with restored(db):
        tamper(db, statements)
        assert_bad(filled.verify(), name, version, reason)
        assert_bad(filled.verify(name), name, version, reason)
        assert filled.verify("u").ok
        assert filled.for_tenant("other").verify("o").ok
    assert filled.verify().ok
    assert filled.for_tenant("other").verify().ok


def test_a_row_that_was_moved_shows_in_both_streams(filled: EventStore, db: psycopg.Connection) -> None:
    move = f"UPDATE events SET (context_id, stream_id, version) = (SELECT context_id, {T}, 4 LIMIT 1) {row(8)}"
    tamper(db, move)
    assert_bad(filled.verify("s"), "s", 7, "the stream's head is 8")
    assert_bad(filled.verify("t"), "t", 4, "beyond the head, which is 3")


def test_a_forged_event_with_the_right_hash_does_not_fit_the_chain(filled: EventStore, db: psycopg.Connection) -> None:
    """The owner knows the secret, so the hash alone proves little."""
    (event,) = filled.conversation("s").events(8, 8)
    found = db.execute(f"SELECT secret FROM streams WHERE stream_id = {S}".encode()).fetchone()
    assert found is not None
    data = b'{"text":"forged"}'
    fields = (event.type, None, None, None, None, None, None)
    digest = hashing.content_hash(found[0], event.event_id, 1, data, None)
    forged = hashing.event_hash(event.event_id, event.schema_version, fields, digest)
    with restored(db):
        db.execute(f"UPDATE events SET data = %s, hash = %s {row(8)}".encode(), [data.decode(), forged])
        assert_bad(filled.verify(), "s", 8, CHAIN)
        tamper(db, f"UPDATE events SET (data, hash, chain) = ('{data.decode()}', '\\x{forged.hex()}', NULL) {row(8)}")
        assert_bad(filled.verify(), "s", 8, "no chain")
    assert filled.verify().ok


def test_two_streams_that_swapped_their_names_are_found(filled: EventStore, db: psycopg.Connection) -> None:
    tamper(
        db,
        "UPDATE directory SET name = 'x' WHERE name = 's'; UPDATE directory SET name = 's' WHERE name = 't';"
        "UPDATE directory SET name = 't' WHERE name = 'x'",
    )
    assert_bad(filled.verify("s"), "s", 0, "other names")
    assert_bad(filled.verify("t"), "t", 0, "other names")
    # With the digest of the new names in place the events give it away.
    for name in "st":
        digest = hashing.names_hash("default", "c", name)
        db.execute(
            "UPDATE streams SET origin = %s, name = %s"
            " WHERE stream_id = (SELECT stream_id FROM directory WHERE name = %s)",
            [digest, name, name],
        )
    assert_bad(filled.verify("t"), "t", 1, CHAIN)
    assert_bad(filled.verify("s"), "s", 2, CHAIN)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM directory WHERE name = 't'",
        f"UPDATE events SET stream_id = 4711 WHERE stream_id = {T}; DELETE FROM streams WHERE stream_id = {T};"
        "DELETE FROM directory WHERE name = 't'",
    ],
)
def test_events_that_belong_to_no_stream_are_found(filled: EventStore, db: psycopg.Connection, statement: str) -> None:
    with restored(db):
        tamper(db, statement)
        report = filled.verify()
        assert report.first_bad is not None
        assert report.first_bad.version == 1
        assert "belongs to no stream" in report.first_bad.reason
    assert filled.verify().ok


def test_a_tail_removed_with_its_traces_shows_only_against_a_saved_chain(
    filled: EventStore, db: psycopg.Connection
) -> None:
    saved = chain_at(db, 8)
    earlier = chain_at(db, 7)
    assert saved is not None
    assert earlier is not None
    tamper(
        db,
        f"DELETE FROM events {row(8)};"
        f"UPDATE streams SET head = 7, recorded_at = (SELECT recorded_at FROM events {row(7)}) WHERE stream_id = {S}",
    )
    assert filled.verify("s").ok
    assert chain_at(db, 8) is None
    filled.conversation("s").append([{"text": "another eight"}], key="k")
    assert filled.verify("s").ok
    assert chain_at(db, 8) != saved
    assert chain_at(db, 7) == earlier


def chain_at(db: psycopg.Connection, version: int) -> bytes | None:
    found = db.execute(f"SELECT chain FROM events {row(version)}".encode()).fetchone()
    return None if found is None else found[0]
