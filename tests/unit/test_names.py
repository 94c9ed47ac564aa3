"""Names are checked, ids from outside are kept or digested, ids of events follow from the append's key."""

from __future__ import annotations

import hashlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.errors import InvalidName
from eventstore.log import names

anything = st.text(st.characters(), max_size=600)


@pytest.mark.parametrize(
    "name", ["a", "x" * 512, "日" * 512, "🙂" * 512, " ", "a\nb", "../..", "'; DROP TABLE events --", "%"]
)
def test_a_name_is_kept_as_it_is(name: str) -> None:
    assert names.check_name("stream", name) == name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "at least one character"),
        ("x" * 513, "513 characters"),
        ("a\x00b", r"U\+0000"),
        ("ab\ud800", "lone surrogate at character 2"),
        (None, "not NoneType"),
        (7, "not int"),
        (b"a", "not bytes"),
        (type("Name", (str,), {})("a"), "not Name"),
    ],
    ids=["empty", "513", "nul", "surrogate", "none", "int", "bytes", "subclass"],
)
def test_a_name_that_postgres_cannot_hold_is_refused(name: object, reason: str) -> None:
    with pytest.raises(InvalidName, match=reason) as caught:
        names.check_name("stream", name)
    assert caught.value.what == "stream"
    assert caught.value.value is name
    assert len(str(caught.value)) < 200


@given(anything)
def test_an_id_is_never_refused_and_always_storable(value: str) -> None:
    kept = names.storable("subject", value)
    assert kept is not None
    raw = kept.encode()  # no lone surrogate left
    assert len(raw) <= 512
    assert "\x00" not in kept
    if kept != value:
        digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
        assert kept == f"sha256:{digest}"
    assert names.storable("subject", value) == kept


def test_an_id_is_digested_only_where_it_must_be() -> None:
    for kept in ("", "x" * 512, "é" * 256, "call_1"):
        assert names.storable("call_id", kept) == kept
    for digested in ("x" * 513, "é" * 257, "a\x00", "\ud800"):
        assert str(names.storable("call_id", digested)).startswith("sha256:")
    assert names.storable("call_id", None) is None
    with pytest.raises(InvalidName, match="not int"):
        names.storable("call_id", 5)


@given(anything)
def test_any_string_is_a_key(key: str) -> None:
    assert names.check_key(key) == key
    ids = names.derived_ids("t", "s", key, 3)
    assert ids == names.derived_ids("t", "s", key, 3)
    assert len(set(ids)) == 3
    assert all(i.version == 5 and i.variant == uuid.RFC_4122 for i in ids)


@pytest.mark.parametrize("key", [None, 1, b"k", uuid.UUID(int=1)], ids=repr)
def test_a_key_is_a_str(key: object) -> None:
    with pytest.raises(InvalidName, match="a key is a str"):
        names.check_key(key)


@given(st.tuples(anything, anything, anything), st.tuples(anything, anything, anything))
def test_ids_of_another_tenant_stream_or_key_are_others(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    equal = one == other
    assert (names.derived_ids(*one, 1) == names.derived_ids(*other, 1)) is equal


def test_where_one_name_ends_and_the_next_begins_matters() -> None:
    assert names.derived_ids("t", "ab", "c", 1) != names.derived_ids("t", "a", "bc", 1)
    assert names.derived_ids("ta", "b", "c", 1) != names.derived_ids("t", "ab", "c", 1)


def test_derived_ids_never_change_between_releases() -> None:
    """A retry may come from a process of the next release: these are literals on purpose."""
    assert [str(i) for i in names.derived_ids("default", "support-42", "turn-1", 2)] == DERIVED
    assert names.derived_ids("default", "support-42", "turn-1", 5)[:2] == [uuid.UUID(i) for i in DERIVED]


DERIVED = ["6a10e096-7887-5612-b11b-501f766619ab", "578db108-816d-5b6f-ab14-d584815df3ca"]


def test_an_event_id_is_a_uuid_or_its_text() -> None:
    given_id = uuid.uuid4()
    assert names.check_event_id(given_id, "ids[0]") == given_id
    assert names.check_event_id(str(given_id), "ids[0]") == given_id
    for bad in ("x", 5, None, b"\x00" * 16, str(given_id)[:-1]):
        with pytest.raises(InvalidName, match=r"^ids\[2\]"):
            names.check_event_id(bad, "ids[2]")
