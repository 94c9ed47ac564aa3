"""The contract of an append, kept by every way to use the product: whole or not at all, no holes, repeats answered."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import psycopg
import pytest
from contract import Untouched

from eventstore import ANY, EXISTS, NO_STREAM, Event
from eventstore.errors import (
    ContextMismatch,
    IdempotencyConflict,
    InvalidEvent,
    InvalidItem,
    InvalidName,
    StreamClosed,
    UniqueKeyConflict,
    VersionConflict,
)


def stored(chat: Any) -> list[Any]:
    return [event.data for event in chat.events()]


def note(data: Any = 1, **fields: Any) -> Event:
    return Event(type="x.note", data=data, **fields)


def ids(n: int) -> list[uuid.UUID]:
    return [uuid.uuid4() for _ in range(n)]


def test_versions_count_from_1_without_a_hole(any_store: Any) -> None:
    chat = any_store.conversation("a")
    assert chat.head() == 0
    assert list(chat.events()) == []
    first = chat.append([1])
    second = chat.append([2, 3, 4])
    third = chat.append({"one": "mapping is one item"})
    assert [(r.first_version, r.last_version) for r in (first, second, third)] == [(1, 1), (2, 4), (5, 5)]
    assert not first.deduplicated
    assert chat.head() == 5
    events = list(chat.events())
    assert [e.version for e in events] == [1, 2, 3, 4, 5]
    positions = [e.position for e in events]
    assert positions == sorted(set(positions))
    assert [r.position for r in (first, second, third)] == [positions[0], positions[3], positions[4]]
    assert any_store.verify().ok


def test_no_refusal_repeat_or_rollback_leaves_a_hole(any_store: Any) -> None:
    chat = any_store.conversation("a")
    chat.append([1], key="k")
    for n in range(2, 8):
        with pytest.raises(VersionConflict):
            chat.append(["x"], expected=n + 5)
        with pytest.raises(IdempotencyConflict):
            chat.append(["x"], key="k")
        with pytest.raises(InvalidItem):
            chat.append(["x", float("nan")])
        assert chat.append([1], key="k").deduplicated
        with contextlib.suppress(ZeroDivisionError), any_store.transaction() as tx:
            tx.conversation("a").append(["gone"])
            raise ZeroDivisionError
        assert chat.append([n]).first_version == n
    assert stored(chat) == [1, 2, 3, 4, 5, 6, 7]
    assert any_store.verify().ok


FITS = [(ANY, 0, True), (NO_STREAM, 0, True), (EXISTS, 0, False), (0, 0, True), (1, 0, False)]
FITS += [(ANY, 2, True), (NO_STREAM, 2, False), (EXISTS, 2, True)]
FITS += [(0, 2, False), (1, 2, False), (2, 2, True), (3, 2, False)]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(("expected", "head", "fits"), FITS, ids=lambda v: repr(v))
def test_expected_version(
    any_store: Any, driver: Any, contract_db: psycopg.Connection, expected: Any, head: int, fits: bool, n: int
) -> None:
    if head:
        driver.store.for_tenant(any_store.tenant).conversation("a").append([1, 2])
    with driver.open(tenant=any_store.tenant) as fresh:  # whose ids are not cached, at the first call
        for chat in (fresh.conversation("a"), any_store.conversation("a")):
            if fits:
                assert chat.append([0] * n, expected=expected).first_version == head + 1
                return
            with Untouched(contract_db), pytest.raises(VersionConflict) as caught:
                chat.append([0] * n, expected=expected)
            assert caught.value.actual == head
            assert caught.value.expected is expected
            assert f"version {head}" in str(caught.value)


@pytest.mark.parametrize("bad", [-1, True, 1.0, "1", None, 2**63, object()], ids=repr)
def test_expected_is_a_condition_or_a_version(any_store: Any, contract_db: psycopg.Connection, bad: object) -> None:
    with Untouched(contract_db), pytest.raises(InvalidItem, match="expected"):
        any_store.conversation("a").append([1], expected=bad)


@pytest.mark.parametrize("expected", [ANY, NO_STREAM, EXISTS, 0, 1, 77], ids=repr)
@pytest.mark.parametrize("by", ["key", "ids"])
@pytest.mark.parametrize("n", [1, 3])
def test_an_exact_repeat_is_the_first_append_whatever_expected_says(
    any_store: Any, contract_db: psycopg.Connection, expected: Any, by: str, n: int
) -> None:
    chat = any_store.conversation("a")
    chat.append(["before"])
    items: list[Any] = [{"n": i} for i in range(n)]
    named: dict[str, Any] = {"key": "turn-1"} if by == "key" else {"ids": ids(n)}
    first = chat.append(items, **named)
    chat.append(["after"])
    with Untouched(contract_db):
        again = chat.append(items, expected=expected, **named)
    assert again.deduplicated
    assert not first.deduplicated
    assert (again.first_version, again.last_version, again.position) == (2, n + 1, first.position)
    assert again.event_ids == first.event_ids


CHANGED: dict[str, list[Any]] = {
    "other bytes": ["a", {"x": 1, "y": 3}, "c"],
    "other order of keys": ["a", {"y": 2, "x": 1}, "c"],
    "other type": ["a", {"x": 1.0, "y": 2}, "c"],
    "longer": ["a", {"x": 1, "y": 2}, "c", "d"],
    "shorter": ["a", {"x": 1, "y": 2}],
    "its first alone": ["a"],
    "reordered": ["c", {"x": 1, "y": 2}, "a"],
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_changed_batch_under_a_known_key_is_refused_whole(
    any_store: Any, contract_db: psycopg.Connection, change: str
) -> None:
    chat = any_store.conversation("a")
    chat.append(["a", {"x": 1, "y": 2}, "c"], key="k")
    for expected in (ANY, 3, NO_STREAM):
        with Untouched(contract_db), pytest.raises(IdempotencyConflict) as caught:
            chat.append(CHANGED[change], key="k", expected=expected)
        assert "'k'" in str(caught.value)


def test_another_type_under_a_known_key_is_refused(any_store: Any, contract_db: psycopg.Connection) -> None:
    chat = any_store.conversation("a")
    chat.append([1], key="k")
    with Untouched(contract_db), pytest.raises(IdempotencyConflict):
        chat.append_events([note(1)], key="k")


def test_known_ids_in_any_other_arrangement_are_refused_whole(any_store: Any, contract_db: psycopg.Connection) -> None:
    chat = any_store.conversation("a")
    a, b, c, d, e = ids(5)
    chat.append([1, 2, 3, 4], ids=[a, b, c, d])
    arrangements: dict[str, tuple[list[Any], list[uuid.UUID]]] = {
        "reordered with their data": ([2, 1, 3, 4], [b, a, c, d]),
        "reordered ids": ([1, 2, 3, 4], [b, a, c, d]),
        "partly known": ([4, 5], [d, e]),
        "partly known, new first": ([5, 1], [e, a]),
        "longer": ([1, 2, 3, 4, 5], [a, b, c, d, e]),
        "first part": ([1, 2], [a, b]),
        "middle part": ([2, 3], [b, c]),
        "last part": ([3, 4], [c, d]),
        "one of the middle": ([2], [b]),
        "with a hole": ([1, 3], [a, c]),
    }
    for items, given in arrangements.values():
        with Untouched(contract_db), pytest.raises(IdempotencyConflict):
            chat.append(items, ids=given)


@pytest.mark.parametrize("known", [False, True])
def test_an_id_twice_in_one_batch_is_refused(any_store: Any, contract_db: psycopg.Connection, known: bool) -> None:
    chat = any_store.conversation("a")
    given = uuid.uuid4()
    if known:
        chat.append([1], ids=[given])
    with Untouched(contract_db), pytest.raises(IdempotencyConflict, match=str(given)):
        chat.append([1, 1], ids=[given, str(given).upper()])
    with Untouched(contract_db), pytest.raises(IdempotencyConflict):
        chat.append_events([note(event_id=given), note(event_id=given)])


def test_two_appends_named_together_by_their_ids_are_a_repeat(any_store: Any, contract_db: psycopg.Connection) -> None:
    chat = any_store.conversation("a")
    one, two = ids(2), ids(3)
    chat.append([1, 2], ids=one)
    last = chat.append([3, 4, 5], ids=two)
    with Untouched(contract_db):
        r = chat.append([1, 2, 3, 4, 5], ids=one + two)
    assert (r.deduplicated, r.first_version, r.last_version, r.position) == (True, 1, 5, last.position)
    with Untouched(contract_db), pytest.raises(IdempotencyConflict):
        chat.append([3, 4, 5, 1, 2], ids=two + one)
    with Untouched(contract_db), pytest.raises(IdempotencyConflict):
        chat.append([1, 2, 3], ids=[*one, two[0]])


def test_metadata_is_not_compared_and_the_first_stays(any_store: Any, contract_db: psycopg.Connection) -> None:
    chat = any_store.conversation("a")
    chat.append([1, 2], key="k", metadata={"trace": "first"})
    with Untouched(contract_db):
        assert chat.append([1, 2], key="k", metadata={"trace": "second"}).deduplicated
        assert chat.append([1, 2], key="k").deduplicated
    assert [e.metadata for e in chat.events()] == [{"trace": "first"}] * 2


def test_a_key_belongs_to_its_stream(any_store: Any) -> None:
    for name in ("a", "b"):
        assert not any_store.conversation(name).append([name], key="k").deduplicated
    assert not any_store.for_tenant(any_store.tenant + "-2").conversation("a").append(["else"], key="k").deduplicated
    assert stored(any_store.conversation("a")) == ["a"]


@pytest.mark.parametrize(
    "key", ["", "\x00", "\ud800", "x" * 10_000, "é", "'; --"], ids=["empty", "nul", "surrogate", "long", "é", "sql"]
)
def test_any_string_is_a_key(any_store: Any, key: str) -> None:
    chat = any_store.conversation("a")
    assert not chat.append([1], key=key).deduplicated
    assert chat.append([1], key=key).deduplicated


def test_the_same_content_without_key_or_ids_is_another_append(any_store: Any) -> None:
    chat = any_store.conversation("a")
    assert [chat.append(["same"]).deduplicated for _ in range(3)] == [False] * 3
    assert chat.head() == 3


def test_context_is_fixed_by_the_first_append(any_store: Any, driver: Any, contract_db: psycopg.Connection) -> None:
    any_store.conversation("a", context="ctx").append([1])
    any_store.conversation("a").append([2])
    with driver.open(tenant=any_store.tenant) as fresh:  # which has no ids cached
        for opened in (any_store, fresh):
            with Untouched(contract_db), pytest.raises(ContextMismatch) as caught:
                opened.conversation("a", context="else").append([3])
            assert (caught.value.stored, caught.value.given) == ("ctx", "else")
            assert opened.conversation("a", context="ctx").append([3])
    assert {e.context for e in any_store.conversation("a").events()} == {"ctx"}
    any_store.conversation("alone").append([1])
    with Untouched(contract_db), pytest.raises(ContextMismatch):
        any_store.conversation("alone", context="ctx").append([2])
    assert any_store.conversation("alone", context="alone").append([2]).last_version == 2


def test_tags_are_fixed_by_the_first_append_and_found(any_store: Any) -> None:
    any_store.conversation("a", tags={"channel": "web", "lang": "日本"}).append([1])
    any_store.conversation("a", tags={"channel": "phone"}).append([2])
    any_store.conversation("b", tags={"channel": "web"}, context="ctx").append([1])
    any_store.conversation("c").append([1])

    def found(**given: Any) -> list[str]:
        return [s.name for s in any_store.conversations(**given).streams]

    assert found() == ["a", "b", "c"]
    assert found(tags={"channel": "web"}) == ["a", "b"]
    assert found(tags={"channel": "web", "lang": "日本"}) == ["a"]
    assert found(tags={"channel": "phone"}) == []
    assert found(context="ctx") == ["b"]
    assert any_store.conversations().streams[0].tags == {"channel": "web", "lang": "日本"}
    page = any_store.conversations(limit=2)
    assert [s.name for s in any_store.conversations(after=page.after).streams] == ["c"]


def test_nothing_is_appended_after_stream_closed(any_store: Any, contract_db: psycopg.Connection) -> None:
    chat = any_store.conversation("a")
    closing = [note(), Event(type="stream.closed", data={"reason": "done"})]
    with Untouched(contract_db), pytest.raises(InvalidEvent, match=r"\[0\].type"):
        chat.append_events(closing[::-1])
    chat.append_events(closing, key="close")
    for expected in (ANY, EXISTS, 2):
        with Untouched(contract_db), pytest.raises(StreamClosed) as caught:
            chat.append(["late"], expected=expected)
        assert caught.value.version == 2
    with Untouched(contract_db):
        assert chat.append_events(closing, key="close").deduplicated
    assert any_store.verify().ok


def test_a_unique_key_happens_once_in_its_context(any_store: Any, contract_db: psycopg.Connection) -> None:
    a = any_store.conversation("a", context="ctx")
    a.append_events([note(unique_key="once")], key="k")
    any_store.conversation("b", context="ctx").append([1])
    for chat in (a, any_store.conversation("b", context="ctx"), any_store.conversation("b")):
        with Untouched(contract_db), pytest.raises(UniqueKeyConflict) as caught:
            chat.append_events([note(2), note(3, unique_key="once")])
        assert (caught.value.unique_key, caught.value.context) == ("once", "ctx")
    with Untouched(contract_db):
        assert a.append_events([note(unique_key="once")], key="k").deduplicated
    with Untouched(contract_db), pytest.raises(InvalidEvent, match=r"\[1\].unique_key"):
        a.append_events([note(unique_key="twice"), note(unique_key="twice")])
    assert any_store.conversation("c").append_events([note(unique_key="once")]).last_version == 1
    assert (
        any_store.for_tenant(any_store.tenant + "-2")
        .conversation("a", context="ctx")
        .append_events([note(unique_key="once")])
    )


def test_a_unique_key_refused_on_a_new_stream_creates_no_stream(
    any_store: Any, contract_db: psycopg.Connection
) -> None:
    any_store.conversation("a", context="ctx").append_events([note(unique_key="once")])
    with Untouched(contract_db), pytest.raises(UniqueKeyConflict):
        any_store.conversation("b", context="ctx").append_events([note(unique_key="once")])
    assert [s.name for s in any_store.conversations().streams] == ["a"]
    assert any_store.verify().ok
    assert any_store.conversation("b", context="free").append([1]).first_version == 1


def test_an_append_has_at_least_one_event(any_store: Any, contract_db: psycopg.Connection) -> None:
    for empty in ([], (), iter([])):
        with Untouched(contract_db), pytest.raises(InvalidItem, match="at least one"):
            any_store.conversation("a").append(empty)
    for wrong in ("text", b"bytes", 5, None):
        with Untouched(contract_db), pytest.raises(InvalidItem, match="items"):
            any_store.conversation("a").append(wrong)


@pytest.mark.parametrize("given", [[], ["x"], [uuid.UUID(int=1)] * 1, "abc", 5, [1, 2]], ids=repr)
def test_ids_are_one_uuid_an_item(any_store: Any, contract_db: psycopg.Connection, given: Any) -> None:
    with Untouched(contract_db), pytest.raises((InvalidItem, InvalidName), match="ids"):
        any_store.conversation("a").append([1, 2], ids=given)
