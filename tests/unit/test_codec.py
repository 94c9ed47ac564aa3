"""What goes in comes out: byte for byte, type for type, or it is refused by place."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
import math
import uuid
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore.errors import InvalidItem
from eventstore.log import codec

# Text may hold NUL and lone surrogates; JSON from other languages does.
texts = st.text(st.characters(), max_size=20) | st.sampled_from(
    ["\x00", "\ud800", "\udfff\ud800", "\u2028", "\x7f", "é"]
)
integers = (
    st.integers() | st.integers(-(2**70), 2**70) | st.sampled_from([2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1])
)
floats = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | integers | floats | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=30,
)


def same(a: Any, b: Any) -> bool:
    """Equal with types, signs of zero and the order of keys: 1, 1.0 and True are three values."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(same, a.values(), b.values()))
    return bool(a == b)


@settings(max_examples=500, deadline=None)
@given(values)
def test_any_value_comes_back_as_it_was(value: Any) -> None:
    form, data = codec.encode(value, "[0]")
    assert same(codec.decode(form, data), value)


@settings(max_examples=200, deadline=None)
@given(values)
def test_what_is_stored_is_json_that_any_parser_reads(value: Any) -> None:
    form, data = codec.encode(value, "[0]")
    assert same(json.loads(data.decode("utf-8")), value)
    assert form in (codec.ORJSON, codec.STDLIB)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(texts, values, min_size=1, max_size=5))
def test_metadata_comes_back_as_it_was_whoever_wrote_it(metadata: dict[str, Any]) -> None:
    assert same(codec.decode_metadata(codec.encode_metadata(metadata, "m")), metadata)


@pytest.mark.parametrize("none", [None, {}, MappingProxyType({})], ids=repr)
def test_no_metadata_is_stored_as_none(none: object) -> None:
    assert codec.encode_metadata(none, "m") is None
    assert codec.decode_metadata(None) == {}


@pytest.mark.parametrize("bad", [[], 0, "", "x", 3, [("a", 1)]], ids=repr)
def test_metadata_that_is_no_mapping_is_refused(bad: object) -> None:
    with pytest.raises(InvalidItem, match="metadata is a mapping"):
        codec.encode_metadata(bad, "[0].metadata")


@pytest.mark.parametrize(
    "big", [2**64, 2**80, -(2**63) - 1, 10**4000, "\ud800", {"\udc00": 1}], ids=lambda v: repr(v)[:20]
)
def test_what_orjson_would_change_is_marked_for_the_other_reader(big: Any) -> None:
    form, data = codec.encode([big], "[0]")
    assert form == codec.STDLIB
    assert same(codec.decode(form, data), [big])


@pytest.mark.parametrize(
    "plain", [2**63, 2**64 - 1, -(2**63), 1e22, -0.0, 0.1, 5e-324, "é\u2028\x00", {"b": 1, "a": 2}], ids=repr
)
def test_what_orjson_keeps_it_writes(plain: Any) -> None:
    form, data = codec.encode([plain], "[0]")
    assert form == codec.ORJSON
    assert same(codec.decode(form, data), [plain])


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Map(dict):  # type: ignore[type-arg]
    pass


class Colour(enum.IntEnum):
    RED = 1


REFUSED: list[tuple[Any, str]] = [
    ({"a": [1, {"b": math.nan}]}, "[3].a[1].b"),
    ({"a": -math.inf}, "[3].a"),
    (math.inf, "[3]"),
    ({1: 2}, "[3]"),
    ({"a": {None: 2}}, "[3].a"),
    ({"a b": (1, 2)}, '[3]["a b"]'),
    ({"\ud800": {1}}, '[3]["\\ud800"]'),
    ([dt.datetime(2025, 1, 1, tzinfo=dt.UTC)], "[3][0]"),
    ([dt.date(2025, 1, 1)], "[3][0]"),
    (b"bytes", "[3]"),
    (uuid.UUID(int=1), "[3]"),
    (decimal.Decimal(1), "[3]"),
    (Text("x"), "[3]"),
    ({Text("x"): 1}, "[3]"),
    ({"n": Number(1)}, "[3].n"),
    ({"n": Map()}, "[3].n"),
    ({"n": Colour.RED}, "[3].n"),
    (MappingProxyType({}), "[3]"),
    (object(), "[3]"),
]


@pytest.mark.parametrize(("value", "path"), REFUSED, ids=[path + " " + type(v).__name__ for v, path in REFUSED])
def test_a_value_that_json_would_change_is_refused_by_place(value: Any, path: str) -> None:
    with pytest.raises(InvalidItem) as caught:
        codec.encode(value, "[3]")
    assert caught.value.path == path
    assert str(caught.value).startswith(path + ": ")


def nested(depth: int, kind: type) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind is list else {"k": value}
    return value


@pytest.mark.parametrize("kind", [list, dict])
def test_depth_200_is_kept_and_201_refused(kind: type) -> None:
    form, data = codec.encode(nested(200, kind), "[0]")
    assert same(codec.decode(form, data), nested(200, kind))
    with pytest.raises(InvalidItem, match="nested deeper than 200"):
        codec.encode(nested(201, kind), "[0]")
    with pytest.raises(InvalidItem, match="nested deeper than 200"):
        codec.encode(nested(5000, kind), "[0]")


def test_a_value_that_holds_itself_is_refused() -> None:
    row: list[Any] = []
    row.append(row)
    table: dict[str, Any] = {"rows": [row]}
    table["self"] = table
    for value in (row, table):
        with pytest.raises(InvalidItem, match="nested deeper than 200"):
            codec.encode(value, "[0]")


def test_an_integer_of_more_digits_than_python_converts_is_refused() -> None:
    with pytest.raises(InvalidItem, match="4,300 digits"):
        codec.encode({"n": 10**5000}, "[0]")


def test_the_limit_of_an_event_is_16_mib_of_encoded_bytes() -> None:
    fits = "x" * (codec.MAX_EVENT_BYTES - 2)
    assert len(codec.encode(fits, "[0]")[1]) == codec.MAX_EVENT_BYTES
    with pytest.raises(InvalidItem, match=r"\[7\]: 16,777,217 bytes encoded"):
        codec.encode(fits + "x", "[7]")
    with pytest.raises(InvalidItem, match="16 MiB"):  # what counts is bytes, not characters
        codec.encode("é" * (codec.MAX_EVENT_BYTES // 2), "[0]")
