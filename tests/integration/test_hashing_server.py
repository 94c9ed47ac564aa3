"""The server makes the hashes that Python makes: what one writes, the other can check."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import uuid
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventstore import Event, EventStore
from eventstore.log import codec, hashing

SECRET = bytes(range(32))

often = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
storable = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=12)
nasty = st.sampled_from(["", "null", '"', "\\", "\x01\x1f\x7f", "\b\f\n\r\t/", "\u2028\ufeff\uffff", "🙂", '", "', "é"])
maybe = st.none() | nasty | storable
json_text = st.text(st.characters(), max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | json_text,
    lambda v: st.lists(v, max_size=3) | st.dictionaries(json_text, v, max_size=3),
    max_leaves=8,
)


def one(conn: psycopg.Connection[Any], expression: str, params: list[Any]) -> Any:
    row = conn.execute("SELECT " + expression, params).fetchone()
    assert row is not None
    return row[0]


@pytest.fixture(scope="module")
def conn(contract_url: str) -> Any:
    with psycopg.connect(contract_url, autocommit=True, options="-c search_path=convstore") as opened:
        yield opened


@often
@given(
    event_id=st.uuids(),
    version=st.integers(1, 32_767),
    kind=nasty | storable,
    fields=st.tuples(*[maybe] * 6),
    content=st.binary(min_size=32, max_size=32),
)
def test_event_hash(conn: Any, event_id: uuid.UUID, version: int, kind: str, fields: Any, content: bytes) -> None:
    made = one(
        conn,
        "event_hash(%s, %s::int2, %s, %s::text, %s::text, %s::text, %s::text, %s::text, %s::text, %s)",
        [event_id, version, kind, *fields, content],
    )
    assert made == hashing.event_hash(event_id, version, (kind, *fields), content)


@often
@given(event_id=st.uuids(), data=values, metadata=st.none() | st.dictionaries(json_text, values, max_size=3))
def test_content_hash(conn: Any, event_id: uuid.UUID, data: Any, metadata: Any) -> None:
    form, stored = codec.encode(data, "")
    held = codec.encode_metadata(metadata, "")
    made = one(
        conn,
        "content_hash(%s, %s, %s::int2, %s::json, %s::json)",
        [SECRET, event_id, form, stored.decode(), None if held is None else held.decode()],
    )
    assert made == hashing.content_hash(SECRET, event_id, form, stored, held)


@often
@given(names=st.tuples(*[nasty | storable] * 3))
def test_names_hash(conn: Any, names: tuple[str, str, str]) -> None:
    assert one(conn, "names_hash(%s, %s, %s)", list(names)) == hashing.names_hash(*names)


@often
@given(
    previous=st.none() | st.binary(min_size=32, max_size=32),
    first=st.integers(1, 2**62),
    at=st.datetimes(dt.datetime(1990, 1, 1), dt.datetime(9990, 1, 1), timezones=st.just(dt.UTC)),
    rows=st.lists(st.tuples(st.integers(1, 2**48 - 1), st.binary(min_size=32, max_size=32)), min_size=1, max_size=4),
)
def test_append_chain(conn: Any, previous: bytes | None, first: int, at: dt.datetime, rows: Any) -> None:
    joined = b"".join(position.to_bytes(8, "big") + digest for position, digest in rows)
    made = one(conn, "append_chain(%s::bytea, %s, %s, %s, %s)", [previous, SECRET, first, at, joined])
    assert made == hashing.append_chain(previous, SECRET, first, at, rows)


@pytest.mark.parametrize("setting", ["TimeZone = 'Asia/Kolkata'", "DateStyle = 'SQL, DMY'", "bytea_output = 'escape'"])
def test_settings_of_the_session_change_no_hash(store: EventStore, url: str, setting: str) -> None:
    with psycopg.connect(url) as conn:
        conn.execute("SET " + setting)  # type: ignore[call-overload]
        conn.execute("SET extra_float_digits = 0")
        mine = store.using(conn)
        mine.conversation("a").append([{"x": 0.1}, 2], metadata={"é": 1})
        mine.conversation("a").append([3])
        assert [e.data for e in mine.conversation("a").events()] == [{"x": 0.1}, 2, 3]
    assert store.verify().ok


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def array(*items: Any) -> bytes:
    return json.dumps(items, ensure_ascii=False).encode()


def chains_by_hand(db: psycopg.Connection, stream: str, previous: bytes, first: int, upto: int | None = None) -> bytes:
    """Check a stream's own rows by docs/hashing.md alone, and give the chain at its version ``upto``, or its last."""
    (secret,) = db.execute("SELECT secret FROM contexts").fetchone() or ()
    columns = "event_id, schema_version, type, subject, unique_key, agent, call_id, task_id, run_id"
    rows = db.execute(
        f"SELECT {columns}, format, data::text, metadata::text, version, position, recorded_at, hash, chain"  # type: ignore[call-overload]
        " FROM events WHERE stream_id = (SELECT stream_id FROM directory WHERE name = %s) ORDER BY version",
        [stream],
    ).fetchall()
    names = sha(array("convstore/1/stream", "default", "ctx", stream))
    chain, pending = previous, b""
    for event_id, *fields, form, data, metadata, version, position, at, digest, stored in rows:
        salt = sha(secret, event_id.bytes)
        content = sha(salt, form.to_bytes(2, "big"), b"[", data.encode(), b", ", (metadata or "null").encode(), b"]")
        assert sha(content, array("convstore/1", str(event_id), *fields)) == digest
        pending += position.to_bytes(8, "big") + digest
        since = (at - dt.datetime(2000, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        folded = sha(b"convstore/1/append", names, first.to_bytes(8, "big"), since.to_bytes(8, "big"), chain, pending)
        if version == upto:
            return folded
        if stored is not None:
            assert folded == stored
            chain, first, pending = folded, version + 1, b""
    assert pending == b""
    return chain


def test_an_auditor_can_check_a_stream_from_its_rows(store: EventStore, db: psycopg.Connection) -> None:
    """By docs/hashing.md alone, without this package's code."""
    chat = store.conversation("support", context="ctx")
    chat.append([{"n": 2**80, "é": "\ud800\x00"}], agent="planner", metadata={"trace": "\u2028"})
    chat.append_events(
        [Event(type="x.a", data=[], subject='s"', unique_key="u"), Event(type="x.b", data=None, run_id="")]
    )
    chains_by_hand(db, "support", b"", 1)
    db.execute("UPDATE events SET chain = sha256(chain) WHERE version = 3")
    with pytest.raises(AssertionError):
        chains_by_hand(db, "support", b"", 1)


@pytest.mark.parametrize("at", range(6))
def test_an_auditor_can_check_a_branch_from_its_rows(store: EventStore, db: psycopg.Connection, at: int) -> None:
    """At 0, at the end of an append (1, 5) and inside of one."""
    name = 'pläne "\\/\x7f\t'
    chat = store.conversation(name, context="ctx")
    chat.append([1])
    chat.append([2, 3, 4, 5])
    branch = chat.fork("branch", at=at, agent="planner", metadata={"trace": 1})
    branch.append([6, 7])
    twig = branch.fork("twig", at=at)
    twig.append([8])
    branch.fork("inner", at=at + 2)
    start = chains_by_hand(db, name, b"", 1, at) if at else b""
    chains_by_hand(db, "branch", start, at + 1)
    chains_by_hand(db, "twig", start, at + 1)
    chains_by_hand(db, "inner", chains_by_hand(db, "branch", start, at + 1, at + 2), at + 3)
    quoted = json.dumps(name, ensure_ascii=False)
    query = (
        "SELECT name, data::text FROM events JOIN streams USING (context_id, stream_id) WHERE type = 'stream.forked'"
    )
    told = dict(db.execute(query).fetchall())
    assert told == {
        "branch": f'{{"parent":{quoted},"at":{at}}}',
        "twig": f'{{"parent":"branch","at":{at},"owner":{quoted}}}' if at else '{"parent":"branch","at":0}',
        "inner": f'{{"parent":"branch","at":{at + 2}}}',
    }
    with pytest.raises(AssertionError):
        chains_by_hand(db, "branch", b"\x00" * 32, at + 1)
    assert store.verify().ok
