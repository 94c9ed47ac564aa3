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


def test_an_auditor_can_check_a_stream_from_its_rows(store: EventStore, db: psycopg.Connection) -> None:
    """By docs/hashing.md alone, without this package's code."""
    chat = store.conversation("support", context="ctx")
    chat.append([{"n": 2**80, "é": "\ud800\x00"}], agent="planner", metadata={"trace": "\u2028"})
    chat.append_events(
        [Event(type="x.a", data=[], subject='s"', unique_key="u"), Event(type="x.b", data=None, run_id="")]
    )

    def sha(*parts: bytes) -> bytes:
        return hashlib.sha256(b"".join(parts)).digest()

    def array(*items: Any) -> bytes:
        return json.dumps(items, ensure_ascii=False).encode()

    (secret,) = db.execute("SELECT secret FROM contexts").fetchone() or ()
    columns = "event_id, schema_version, type, subject, unique_key, agent, call_id, task_id, run_id"
    rows = db.execute(
        f"SELECT {columns}, format, data::text, metadata::text, version, position, recorded_at, hash, chain"  # type: ignore[call-overload]
        " FROM events ORDER BY version"
    ).fetchall()
    chain, pending = b"", b""
    first = 1
    for event_id, *fields, form, data, metadata, version, position, at, digest, stored in rows:
        salt = sha(secret, event_id.bytes)
        content = sha(salt, form.to_bytes(2, "big"), b"[", data.encode(), b", ", (metadata or "null").encode(), b"]")
        assert sha(content, array("convstore/1", str(event_id), *fields)) == digest
        pending += position.to_bytes(8, "big") + digest
        if stored is not None:
            names = sha(array("convstore/1/stream", "default", "ctx", "support"))
            since = (at - dt.datetime(2000, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
            place = first.to_bytes(8, "big") + since.to_bytes(8, "big")
            chain = sha(b"convstore/1/append", names, place, chain, pending)
            assert chain == stored
            first, pending = version + 1, b""
    assert pending == b""
    assert first == 4
