"""The hashes are what docs/hashing.md says, to the byte; three vectors hold them fast.

The expected values are put together here from ``hashlib`` and ``struct`` alone, as an auditor would, and written down.
"""

from __future__ import annotations

import datetime as dt
import hashlib
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
ORIGIN = "282d32e0ac3500f5ae990a52a863ef51ee4248309c735ce687bd4701b7e225a7"
DATA_HASHES = [
    "d4a4660d99df2be3cb0a2f76fa3d68ce2d85fe89a45e96a7b54eb9b899cb532e",
    "6527fe9f4d0ce8a4f51bcb7e6f5af0bf40cf9ee7412c9abb35827fc75a139e28",
    "40b8f5e4d5aee43d49b50b003b8d89fab755b248f7e7742510ead7ed2b1cff8e",
]
HASHES = [
    "0a89cd5b5088a0eda454ad0991491ba48e566e694e9ca5404ea0fd078221bddf",
    "61a00a879d56cdb2a411f72d96957fa481b89e78199c420c30d773a3d3d72282",
    "28711bf89215e37291d5bfa5d79e0b8eed5659f92cfe953d34b9adb72c682510",
]
CHAINS = [
    "55dbb091d1e799b99bc1671674dc27470e0836ddfe51411b8c376ea64496fe98",
    "7cf34c092600d2abfa5ad584047a9737569774c0d80d16b681311640b7423988",
]
AT = [dt.datetime(2025, 3, 4, 5, 6, 7, 891011, UTC), dt.datetime(2025, 3, 4, 5, 6, 8, 0, UTC)]


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def spelled(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff\xff\xff"
    return struct.pack(">i", len(text.encode())) + text.encode()


def event_digest(number: int) -> bytes:
    event_id, version, fields, metadata, form, data = EVENTS[number]
    return hashing.event_hash(event_id, version, fields, metadata, hashing.data_hash(SECRET, event_id, form, data))


@pytest.mark.parametrize("number", range(3))
def test_vectors_of_event_hashes(number: int) -> None:
    event_id, version, fields, metadata, form, data = EVENTS[number]
    salted = sha(sha(SECRET, event_id.bytes), struct.pack(">h", form), data)
    assert hashing.data_hash(SECRET, event_id, form, data) == salted
    assert salted.hex() == DATA_HASHES[number]
    by_hand = sha(
        b"convstore/1",
        event_id.bytes,
        struct.pack(">h", version),
        *map(spelled, fields),
        sha(metadata or b""),
        salted,
    )
    assert event_digest(number) == by_hand
    assert by_hand.hex() == HASHES[number]


def test_vectors_of_origin_and_chain() -> None:
    origin = sha(spelled("default"), spelled("ctx"), spelled("support-42"))
    assert hashing.origin("default", "ctx", "support-42") == origin
    assert origin.hex() == ORIGIN
    first = hashing.append_chain(None, origin, 1, AT[0], [(7, event_digest(0))])
    by_hand = sha(
        b"convstore/1/append",
        origin,
        struct.pack(">qq", 1, 1741064767891011),
        struct.pack(">q", 7),
        event_digest(0),
    )
    assert first == by_hand
    assert first.hex() == CHAINS[0]
    rows = [(9, event_digest(1)), (10, event_digest(2))]
    second = hashing.append_chain(first, origin, 2, AT[1], rows)
    by_hand = sha(
        b"convstore/1/append",
        first,
        origin,
        struct.pack(">qq", 2, 1741064768000000),
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
    digests = [hashing.event_hash(FIRST, 1, fields, None, b"\x00" * 32) for fields in (one, other)]
    assert (digests[0] == digests[1]) is equal


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=2, max_size=2, unique=True))
def test_data_format_and_secret_all_enter(two: list[bytes]) -> None:
    digests = {hashing.data_hash(SECRET, FIRST, form, data) for data in two for form in (1, 2)}
    digests |= {hashing.data_hash(SECRET[::-1], FIRST, 1, two[0]), hashing.data_hash(SECRET, SECOND, 1, two[0])}
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
