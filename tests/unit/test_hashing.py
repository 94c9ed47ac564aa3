"""The hashes are what docs/hashing.md says, to the byte; three vectors hold them fast.

The expected values are put together here from ``hashlib`` and ``struct`` alone, as an auditor would, and written down.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.log import hashing

UTC = dt.UTC
SECRET = bytes(range(32))
FIRST = uuid.UUID("00000000-0000-4000-8000-000000000001")
SECOND = uuid.UUID("6f0e1d3c-5b0a-5c3e-9f0e-2d1c7a4b8e55")
THIRD = uuid.UUID("ffffffff-ffff-4fff-bfff-ffffffffffff")
# event id, schema version, (type, subject, unique_key, agent, call_id, task_id, run_id), metadata, format, data
EVENTS = [
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
ORIGIN = "5c5e1fe07d85a9c7299851b885d4d33a9469eec1969ce4552a98684c41946152"
CONTENT_HASHES = [
    "07134a2435e5261a527be05483e4199f7fac9b5473ae95fca8036c01af64c5f2",
    "70b84a7fa67772d0c32d8a6772601287ba65235d60bb031a97fc2a50293a2786",
    "02f82baecd290e04fd887e80ba58afcff4d4fc036ccc03b05ec9d34785cde3a4",
]
HASHES = [
    "7163475e9fcd83c94216d212268e6778ee52ea840eaf5d6b72a221b7dfa5b6cc",
    "f8912d083bcf0d1c809b9fac35dd14de959eb4830182d87292f9f8a8da1ac027",
    "203128929206b0be149f2b3683fd03e8ebf384ee079ad7023a2f1eceb943b0e6",
]
CHAINS = [
    "e24953cca537d37d39140288d384647372aaa99b8fc65aed4e4e0117a3d64370",
    "f62e42ca78f423104209e85a1cad4ff4f8b5383ea6e8249c6abc3823c6891489",
]
AT = [dt.datetime(2025, 3, 4, 5, 6, 7, 891011, UTC), dt.datetime(2025, 3, 4, 5, 6, 8, 0, UTC)]


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def event_digest(number: int) -> bytes:
    event_id, version, fields, metadata, form, data = EVENTS[number]
    return hashing.event_hash(event_id, version, fields, hashing.content_hash(SECRET, event_id, form, data, metadata))


@pytest.mark.parametrize("number", range(3))
def test_vectors_of_event_hashes(number: int) -> None:
    event_id, version, fields, metadata, form, data = EVENTS[number]
    salted = sha(sha(SECRET, event_id.bytes), struct.pack(">h", form), b"[", data, b", ", metadata or b"null", b"]")
    assert hashing.content_hash(SECRET, event_id, form, data, metadata) == salted
    assert salted.hex() == CONTENT_HASHES[number]
    head = json.dumps(["convstore/1", str(event_id), version, *fields], ensure_ascii=False).encode()
    by_hand = sha(salted, head)
    assert event_digest(number) == by_hand
    assert by_hand.hex() == HASHES[number]


def test_vectors_of_origin_and_chain() -> None:
    origin = sha(b'["convstore/1/stream", "default", "ctx", "support-42"]')
    assert hashing.names_hash("default", "ctx", "support-42") == origin
    assert origin.hex() == ORIGIN
    first = hashing.append_chain(None, origin, 1, AT[0], [(7, event_digest(0))])
    by_hand = sha(
        b"convstore/1/append",
        origin,
        struct.pack(">qq", 1, 1741064767891011 - 946684800000000),
        struct.pack(">q", 7),
        event_digest(0),
    )
    assert first == by_hand
    assert first.hex() == CHAINS[0]
    rows = [(9, event_digest(1)), (10, event_digest(2))]
    second = hashing.append_chain(first, origin, 2, AT[1], rows)
    by_hand = sha(
        b"convstore/1/append",
        origin,
        struct.pack(">qq", 2, 1741064768000000 - 946684800000000),
        first,
        struct.pack(">q", 9),
        event_digest(1),
        struct.pack(">q", 10),
        event_digest(2),
    )
    assert second == by_hand
    assert second.hex() == CHAINS[1]


maybe = st.none() | st.text(max_size=8)
seven = st.tuples(*[maybe] * 7)


@given(seven, seven)
def test_no_two_rows_of_fields_share_a_preimage(one: tuple[str | None, ...], other: tuple[str | None, ...]) -> None:
    equal = one == other
    digests = [hashing.event_hash(FIRST, 1, fields, b"\x00" * 32) for fields in (one, other)]
    assert (digests[0] == digests[1]) is equal


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=2, max_size=2, unique=True))
def test_data_format_and_secret_all_enter(two: list[bytes]) -> None:
    digests = {hashing.content_hash(SECRET, FIRST, form, data, None) for data in two for form in (1, 2)}
    digests |= {
        hashing.content_hash(SECRET[::-1], FIRST, 1, two[0], None),
        hashing.content_hash(SECRET, SECOND, 1, two[0], None),
    }
    assert len(digests) == 6


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
