"""The contract of values and names: what was appended is read back equal, types included; the rest writes nothing."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
from typing import Any

import psycopg
import pytest
from contract import Untouched

from eventstore import Event
from eventstore.errors import InvalidEvent, InvalidItem, InvalidName
from eventstore.log.batch import MAX_BATCH_BYTES
from eventstore.log.codec import MAX_EVENT_BYTES

NASTY: dict[str, Any] = {
    "nul": "a\x00b",
    "nul in a key": {"a\x00": {"\x00": 1}},
    "lone surrogate": "\ud83d",
    "surrogates the wrong way round": "\udc00\ud800",
    "surrogate in a key": {"\ud800": "\udfff"},
    "line separators": "a\u2028b\u2029c\r\n\t\x7f\x1f",
    "astral": "🙂 \U0010ffff \uffff \ufeff",
    "escapes": '"\\/\b\f',
    "2**80": 2**80,
    "2**64": 2**64,
    "2**64-1": 2**64 - 1,
    "2**63": 2**63,
    "-2**63": -(2**63),
    "-2**63-1": -(2**63) - 1,
    "4,000 digits": 10**4000 - 1,
    "1e22": 1e22,
    "1e300": 1e300,
    "-0.0": -0.0,
    "0.1": 0.1,
    "least float": 5e-324,
    "1.0": 1.0,
    "big beside float": [2**80, 1.0, -0.0, 0.1, 1e22],
    "key order": {"b": 1, "a": {"z": 1, "y": 2}, "": 0},
    "true and 1": [True, 1, 1.0, False, 0, None],
    "empty": [[], {}, "", [[]], [{}], {"": {}}],
    "text": "plain",
    "a bare null": None,
    "looks like json": '{"a": 1}',
    "depth 200": None,
}
_deep: Any = []
for _ in range(199):
    _deep = [_deep]
NASTY["depth 200"] = _deep


def exact(value: Any) -> Any:
    """The value with its types and order written out."""
    if isinstance(value, dict):
        return ["dict", [[k, exact(v)] for k, v in value.items()]]
    if isinstance(value, list):
        return ["list", [exact(v) for v in value]]
    if isinstance(value, float):
        return ["float", value.hex()]
    return [type(value).__name__, value]


@pytest.mark.parametrize("name", NASTY)
def test_a_value_is_read_back_equal_types_included(any_store: Any, name: str) -> None:
    value = NASTY[name]
    chat = any_store.conversation("a")
    chat.append([value])
    chat.append(
        [value, {"in": value} if name != "depth 200" else 1], metadata={"m": value} if name != "depth 200" else None
    )
    chat.append_events([Event(type="x.own", data=value)])
    one, two, three, four = chat.events()
    assert [exact(e.data) for e in (one, two, four)] == [exact(value)] * 3
    if name != "depth 200":
        assert exact(three.data) == exact({"in": value})
        assert exact(two.metadata) == exact(three.metadata) == exact({"m": value})
    assert any_store.verify().ok


def test_a_mixed_batch_is_read_back_equal(any_store: Any) -> None:
    chat = any_store.conversation("a")
    values = list(NASTY.values())
    assert chat.append(values, key="k").last_version == len(values)
    assert [exact(e.data) for e in chat.events()] == [exact(v) for v in values]
    assert chat.append(values, key="k").deduplicated
    assert any_store.verify().ok


def test_10_mb_are_read_back_equal(any_store: Any) -> None:
    chat = any_store.conversation("a")
    big = {"text": "é🙂x\u2028" * 1_000_000}
    chat.append([big, "after"])
    first, second = chat.events()
    assert first.data == big
    assert second.data == "after"


def _looped() -> Any:
    loop: list[Any] = [1]
    loop.append({"again": loop})
    return loop


def _nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = {"k": value}
    return value


REFUSED: dict[str, tuple[Any, str]] = {
    "nan": ({"content": {"score": math.nan}}, "[3].content.score"),
    "infinity": ([1, math.inf], "[3][1]"),
    "-infinity": (-math.inf, "[3]"),
    "int key": ({"a": {1: 1}}, "[3].a"),
    "none key": ({None: 1}, "[3]"),
    "tuple": ({"a": (1,)}, "[3].a"),
    "datetime": ({"at": dt.datetime(2025, 1, 1, tzinfo=dt.UTC)}, "[3].at"),
    "bytes": ([b"x"], "[3][0]"),
    "str subclass": (type("Text", (str,), {})("x"), "[3]"),
    "dict subclass": (type("Map", (dict,), {})(), "[3]"),
    "int subclass": (type("Number", (int,), {})(1), "[3]"),
    "set": ({1}, "[3]"),
    "object": (object(), "[3]"),
    "depth 201": (_nested(201), "[3]" + ".k" * 200),
    "holds itself": (_looped(), "[3]" + "[1].again" * 100),
    "5,000 digits": (10**5000, "[3]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_cannot_be_kept_is_refused_by_place_before_any_write(
    any_store: Any, contract_db: psycopg.Connection, name: str
) -> None:
    value, path = REFUSED[name]
    chat = any_store.conversation("a")
    with Untouched(contract_db):
        with pytest.raises(InvalidItem) as caught:
            chat.append([0, 1, 2, value, 4], key="k")
        assert caught.value.path == path
        with pytest.raises(InvalidItem, match=r"^\[1\].data"):
            chat.append_events([Event(type="x.a", data=0), Event(type="x.a", data=value)])
        with pytest.raises(InvalidItem, match="metadata"):
            chat.append([0], metadata={"m": value})
    assert chat.append([0], key="k").deduplicated is False


def test_an_event_holds_16_mib(any_store: Any, contract_db: psycopg.Connection) -> None:
    chat = any_store.conversation("a")
    chat.append([1])
    with Untouched(contract_db), pytest.raises(InvalidItem, match=r"^\[1\]: 16,777,217 bytes"):
        chat.append([1, "x" * (MAX_EVENT_BYTES - 1)])
    assert chat.append(["x" * (MAX_EVENT_BYTES - 2)]).last_version == 2
    assert [len(e.data) for e in chat.events(2)] == [MAX_EVENT_BYTES - 2]


def test_a_batch_holds_64_mib(any_store: Any, contract_db: psycopg.Connection) -> None:
    chat = any_store.conversation("a")
    part = "x" * (MAX_BATCH_BYTES // 8 - 2)
    with Untouched(contract_db), pytest.raises(InvalidItem, match=r"^\[8\]: the batch passes 64 MiB"):
        chat.append([part] * 8 + [1])
    assert chat.append([part] * 8).last_version == 8
    assert [len(e.data) for e in chat.events()] == [len(part)] * 8


def test_a_batch_holds_10_000_events(any_store: Any, contract_db: psycopg.Connection) -> None:
    chat = any_store.conversation("a")
    with Untouched(contract_db), pytest.raises(InvalidItem, match="10,001 events"):
        chat.append([0] * 10_001)
    assert chat.append(list(range(10_000)), key="k").last_version == 10_000
    assert [e.data for e in chat.events(9_999)] == [9_998, 9_999]
    assert chat.append(list(range(10_000)), key="k").deduplicated
    with Untouched(contract_db), pytest.raises(InvalidItem, match="10,001 events"):
        chat.append([0] * 10_001, key="k")


BAD_NAMES = {
    "empty": "",
    "513": "x" * 513,
    "nul": "a\x00",
    "surrogate": "a\ud800",
    "int": 7,
    "none": None,
    "bytes": b"a",
}


@pytest.mark.parametrize("which", BAD_NAMES)
def test_a_name_that_cannot_be_kept_is_refused(any_store: Any, contract_db: psycopg.Connection, which: str) -> None:
    name: Any = BAD_NAMES[which]
    with Untouched(contract_db):
        with pytest.raises(InvalidName, match=r"^stream"):
            any_store.conversation(name)
        with pytest.raises(InvalidName, match=r"^tenant"):
            any_store.for_tenant(name)
        if name is not None:
            with pytest.raises(InvalidName, match=r"^context"):
                any_store.conversation("a", context=name)
            with pytest.raises(InvalidName, match=r"^tag"):
                any_store.conversation("a", tags={name: "x"})
        if name != "":
            with pytest.raises(InvalidName, match=r"^tag"):
                any_store.conversation("a", tags={"x": name})


@pytest.mark.parametrize(
    "name", ["x" * 512, "日" * 512, "🙂" * 512, " ", "'\"; --", "%s $1 {}", "\\", "a\n\t\u2028"], ids=ascii
)
def test_any_other_name_is_kept(any_store: Any, name: str) -> None:
    scope = any_store.for_tenant(any_store.tenant[:-10] + name[:400])
    chat = scope.conversation(name, context=name, tags={name: name})
    chat.append([1])
    chat.append([2])
    assert [(e.stream, e.context, e.tenant) for e in chat.events()] == [(name, name, scope.tenant)] * 2
    assert [(s.name, s.tags) for s in scope.conversations(tags={name: name}).streams][-1] == (name, {name: name})
    assert scope.verify().ok


LONG = "id-" + "é" * 300
DIGESTED = "sha256:" + hashlib.sha256(LONG.encode()).hexdigest()


def test_ids_over_512_bytes_are_kept_as_their_digest(any_store: Any) -> None:
    chat = any_store.conversation("a")
    ids: dict[str, Any] = {"agent": LONG, "task_id": LONG, "run_id": LONG}
    item = {"id": LONG, "call_id": LONG, "type": "function_call"}
    chat.append([item], **ids)
    chat.append([item, item], **ids)
    chat.append_events([Event(type="x.a", data=1, subject=LONG, call_id=LONG, unique_key=LONG, **ids)])
    chat.append_events([Event(type="x.a", data=1, subject="a\x00", call_id="\ud800", agent="")])
    events = list(chat.events())
    for event in events[:4]:
        assert {event.agent, event.task_id, event.run_id, event.subject, event.call_id} == {DIGESTED}
    assert [e.data for e in events[:3]] == [item] * 3
    assert events[3].unique_key == DIGESTED
    assert events[4].subject == "sha256:" + hashlib.sha256(b"a\x00").hexdigest()
    assert events[4].call_id == "sha256:" + hashlib.sha256(b"\xed\xa0\x80").hexdigest()
    assert events[4].agent == ""
    assert any_store.verify().ok


def test_an_items_id_and_call_id_are_noted_and_other_shapes_are_not(any_store: Any) -> None:
    chat = any_store.conversation("a")
    chat.append([{"id": "msg_1"}, {"call_id": "c"}, {"id": 5, "call_id": ["x"]}, {"id": ""}, ["id"], "id"])
    assert [(e.subject, e.call_id) for e in chat.events()] == [("msg_1", None), (None, "c")] + [(None, None)] * 4


def test_an_unknown_type_or_data_that_does_not_fit_writes_nothing(
    any_store: Any, contract_db: psycopg.Connection
) -> None:
    chat = any_store.conversation("a")
    with Untouched(contract_db):
        for kind in ("item.apended", "", "x.", "X.a", "x." + "a" * 127, "x.a b", "x.a\x00", None, 5):
            with pytest.raises(InvalidEvent, match=r"\[1\].type"):
                chat.append_events([Event(type="x.a", data=1), Event(type=kind, data=1)])
        with pytest.raises(InvalidEvent):
            chat.append_events([Event(type="items.retracted", data={"ranges": []})])
        with pytest.raises(InvalidEvent, match=r"^\[0\]"):
            chat.append_events([{"type": "x.a"}])


def test_what_is_stored_is_the_bytes_that_the_client_encoded(any_store: Any, contract_db: psycopg.Connection) -> None:
    any_store.conversation("a").append([{"b": 1e22, "a": "é\u2028"}])
    row = contract_db.execute(
        "SELECT data::text FROM convstore.events JOIN convstore.tenants t USING (tenant_id) WHERE t.name = %s",
        [any_store.tenant],
    ).fetchone()
    assert row is not None
    assert json.loads(row[0]) == {"b": 1e22, "a": "é\u2028"}
    assert row[0] == '{"b":1e+22,"a":"é\u2028"}'
