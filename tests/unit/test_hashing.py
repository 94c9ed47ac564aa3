"""The hashes are what docs/hashing.md says, to the byte; its vectors hold them fast.

The expected values are put together here from ``hashlib``, ``json`` and ``struct`` alone, as an auditor would.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import struct
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.log import hashing

SECRET = bytes(range(32))
FIRST = uuid.UUID("00000000-0000-4000-8000-000000000001")
SECOND = uuid.UUID("6f0e1d3c-5b0a-5c3e-9f0e-2d1c7a4b8e55")
THIRD = uuid.UUID("ffffffff-ffff-4fff-bfff-ffffffffffff")
# event id, schema version, (type, subject, unique_key, agent, call_id, task_id, run_id), metadata, format, data
EVENTS: list[tuple[uuid.UUID, int, tuple[str | None, ...], bytes | None, int, bytes]] = [
    (FIRST, 1, ("item.appended", None, None, None, None, None, None), None, 1, b'{"role":"user","content":"hi"}'),
    (
        SECOND,
        2,
        ("x.note", "msg_1", "once", "planner", "call_1", "task_1", "run_1"),
        b'{"trace":"abc"}',
        2,
        b'{"n":1208925819614629174706176}',
    ),
    (THIRD, 1, ("x.note", "", "", "日本", "🙂", "", ""), b"{}", 1, '"é\u2028"'.encode()),
]
CONTENTS = [
    "07134a2435e5261a527be05483e4199f7fac9b5473ae95fca8036c01af64c5f2",
    "70b84a7fa67772d0c32d8a6772601287ba65235d60bb031a97fc2a50293a2786",
    "02f82baecd290e04fd887e80ba58afcff4d4fc036ccc03b05ec9d34785cde3a4",
]
HASHES = [
    "7163475e9fcd83c94216d212268e6778ee52ea840eaf5d6b72a221b7dfa5b6cc",
    "f8912d083bcf0d1c809b9fac35dd14de959eb4830182d87292f9f8a8da1ac027",
    "203128929206b0be149f2b3683fd03e8ebf384ee079ad7023a2f1eceb943b0e6",
]
NAMES = "5c5e1fe07d85a9c7299851b885d4d33a9469eec1969ce4552a98684c41946152"
CHAINS = [
    "e24953cca537d37d39140288d384647372aaa99b8fc65aed4e4e0117a3d64370",
    "f62e42ca78f423104209e85a1cad4ff4f8b5383ea6e8249c6abc3823c6891489",
]
AT = [dt.datetime(2025, 3, 4, 5, 6, 7, 891011, dt.UTC), dt.datetime(2025, 3, 4, 5, 6, 8, 0, dt.UTC)]


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def array(*values: Any) -> bytes:
    return json.dumps(values, ensure_ascii=False).encode()


def digest_of(number: int) -> bytes:
    event_id, version, fields, metadata, form, data = EVENTS[number]
    content = hashing.content_hash(SECRET, event_id, form, data, metadata)
    return hashing.event_hash(event_id, version, fields, content)


@pytest.mark.parametrize("number", range(3))
def test_vectors_of_events(number: int) -> None:
    event_id, version, fields, metadata, form, data = EVENTS[number]
    both = b"[" + data + b", " + (metadata or b"null") + b"]"
    content = sha(sha(SECRET, event_id.bytes), struct.pack(">h", form), both)
    assert hashing.content_hash(SECRET, event_id, form, data, metadata) == content
    assert content.hex() == CONTENTS[number]
    by_hand = sha(content, array("convstore/1", str(event_id), version, *fields))
    assert digest_of(number) == by_hand
    assert by_hand.hex() == HASHES[number]


def test_vectors_of_names_and_chain() -> None:
    names = sha(array("convstore/1/stream", "default", "ctx", "support-42"))
    assert hashing.names_hash("default", "ctx", "support-42") == names
    assert names.hex() == NAMES
    first = hashing.append_chain(None, names, 1, AT[0], [(7, digest_of(0))])
    place = struct.pack(">qq", 1, 794379967891011)
    assert first == sha(b"convstore/1/append", names, place, struct.pack(">q", 7), digest_of(0))
    assert first.hex() == CHAINS[0]
    second = hashing.append_chain(first, names, 2, AT[1], [(9, digest_of(1)), (10, digest_of(2))])
    place = struct.pack(">qq", 2, 794379968000000)
    rows = struct.pack(">q", 9) + digest_of(1) + struct.pack(">q", 10) + digest_of(2)
    assert second == sha(b"convstore/1/append", names, place, first, rows)
    assert second.hex() == CHAINS[1]


maybe = st.none() | st.sampled_from(["", "null", '"', '", "', "\\", "a"]) | st.text(max_size=4)
seven = st.tuples(*[maybe] * 7)


@given(seven, seven)
def test_no_two_rows_of_fields_share_a_preimage(one: tuple[str | None, ...], other: tuple[str | None, ...]) -> None:
    digests = [hashing.event_hash(FIRST, 1, fields, bytes(32)) for fields in (one, other)]
    assert (digests[0] == digests[1]) is (one == other)


def test_a_field_in_anothers_place_is_another_event() -> None:
    rows = [tuple("x" if place == n else None for place in range(7)) for n in range(7)]
    rows += [tuple("" if place == n else None for place in range(7)) for n in range(7)]
    assert len({hashing.event_hash(FIRST, 1, fields, bytes(32)) for fields in rows}) == 14
    assert len({hashing.event_hash(FIRST, version, rows[0], bytes(32)) for version in (1, 2, 12)}) == 3
    assert hashing.names_hash("a", "b", "c") != hashing.names_hash("a", "bc", "")


documents = st.recursive(st.none() | st.integers(0, 3) | st.text(max_size=3), lambda v: st.lists(v, max_size=3))
encoded = documents.map(lambda value: json.dumps(value).encode())


@given(st.tuples(encoded, encoded), st.tuples(encoded, encoded))
def test_no_two_contents_share_a_preimage(one: tuple[bytes, bytes], other: tuple[bytes, bytes]) -> None:
    digests = [hashing.content_hash(SECRET, FIRST, 1, *content) for content in (one, other)]
    assert (digests[0] == digests[1]) is (one == other)


def test_secret_id_and_format_enter_the_content_hash() -> None:
    digests = {
        hashing.content_hash(secret, event_id, form, b"1", metadata)
        for secret in (SECRET, SECRET[::-1])
        for event_id in (FIRST, SECOND)
        for form in (1, 2)
        for metadata in (None, b"{}")
    }
    assert len(digests) == 16


def test_every_part_of_an_append_enters_its_chain() -> None:
    rows = [(1, b"a" * 32), (2, b"b" * 32)]
    good = hashing.append_chain(b"p" * 32, b"o" * 32, 5, AT[0], rows)
    microsecond = AT[0] + dt.timedelta(microseconds=1)
    others = [
        hashing.append_chain(None, b"o" * 32, 5, AT[0], rows),
        hashing.append_chain(b"P" * 32, b"o" * 32, 5, AT[0], rows),
        hashing.append_chain(b"p" * 32, b"O" * 32, 5, AT[0], rows),
        hashing.append_chain(b"p" * 32, b"o" * 32, 6, AT[0], rows),
        hashing.append_chain(b"p" * 32, b"o" * 32, 5, microsecond, rows),
        hashing.append_chain(b"p" * 32, b"o" * 32, 5, AT[0], rows[::-1]),
        hashing.append_chain(b"p" * 32, b"o" * 32, 5, AT[0], rows[:1]),
        hashing.append_chain(b"p" * 32, b"o" * 32, 5, AT[0], [(1, b"a" * 32), (3, b"b" * 32)]),
    ]
    assert len({good, *others}) == 1 + len(others)
