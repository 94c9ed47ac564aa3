"""The contract of transactions, of the caller's own connection, of reads by page and of tenants."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import psycopg
import pytest
from contract import Untouched
from psycopg.rows import dict_row, namedtuple_row

from eventstore import NO_STREAM, Event
from eventstore.errors import (
    ConvstoreError,
    IdempotencyConflict,
    InvalidItem,
    StreamNotFound,
    UniqueKeyConflict,
    UnsafeSetting,
    VersionConflict,
)


class Failed(Exception):
    """What a caller's own code raises."""


def stored(chat: Any) -> list[Any]:
    return [event.data for event in chat.events()]


def test_a_transaction_commits_all_its_appends_together(any_store: Any) -> None:
    with any_store.transaction() as tx:
        tx.conversation("a").append([1, 2], key="k")
        assert tx.conversation("a").head() == 2  # its own
        assert any_store.conversation("a").head() == 0
        tx.conversation("b", context="ctx").append([3], expected=NO_STREAM)
        assert tx.conversation("a").append([1, 2], key="k").deduplicated
        tx.conversation("a").append([4], expected=2)
    assert stored(any_store.conversation("a")) == [1, 2, 4]
    assert stored(any_store.conversation("b")) == [3]
    assert any_store.verify().ok


def test_a_transaction_that_fails_leaves_nothing(any_store: Any) -> None:
    any_store.conversation("old").append([1])
    with contextlib.suppress(Failed), any_store.transaction() as tx:
        tx.conversation("a").append([1], key="k")
        tx.conversation("old").append([2, 3])
        raise Failed
    assert any_store.conversation("a").head() == 0
    assert [s.name for s in any_store.conversations().streams] == ["old"]
    assert any_store.conversation("old").append([2]).first_version == 2
    # What was rolled back must not be remembered: the ids of "a" went with it.
    assert any_store.conversation("a", context="else").append([1], key="k").first_version == 1
    assert any_store.verify().ok


def test_a_refusal_inside_a_transaction_leaves_it_alive(any_store: Any) -> None:
    any_store.conversation("a", context="ctx").append_events([Event(type="x.a", data=1, unique_key="u")], key="k")
    with any_store.transaction() as tx:
        tx.conversation("b", context="ctx").append(["before"])
        with pytest.raises(VersionConflict):
            tx.conversation("a").append([2], expected=7)
        with pytest.raises(IdempotencyConflict):
            tx.conversation("a").append([2], key="k")
        with pytest.raises(UniqueKeyConflict):
            tx.conversation("b").append_events([Event(type="x.a", data=1, unique_key="u")])
        with pytest.raises(InvalidItem):
            tx.conversation("b").append([object()])
        tx.conversation("b").append(["after"])
    assert stored(any_store.conversation("b")) == ["before", "after"]
    assert any_store.verify().ok


def test_a_nested_transaction_is_a_savepoint(any_store: Any) -> None:
    with any_store.transaction() as outer:
        outer.conversation("a").append(["kept 1"])
        with contextlib.suppress(Failed), outer.transaction() as inner:
            inner.conversation("a").append(["dropped"])
            inner.conversation("new").append(["dropped"])
            raise Failed
        assert outer.conversation("a").head() == 1
        with outer.transaction() as inner:
            inner.conversation("a").append(["kept 2"])
        outer.conversation("a").append(["kept 3"])
    assert stored(any_store.conversation("a")) == ["kept 1", "kept 2", "kept 3"]
    assert any_store.conversation("new").head() == 0
    assert any_store.verify().ok


def test_using_commits_and_rolls_back_with_the_callers_rows(any_store: Any, driver: Any) -> None:
    with driver.connect() as conn:
        mine = any_store.using(conn)
        mine.conversation("a").append([1])
        conn.rollback()
        assert mine.conversation("a").head() == 0
        mine.conversation("a").append([2], key="k")
        mine.conversation("a").append([3])
        assert any_store.conversation("a").head() == 0
        conn.commit()
        assert any_store.conversation("a").head() == 2
        mine.conversation("a").append([4])
        conn.rollback()
    assert stored(any_store.conversation("a")) == [2, 3]
    assert any_store.conversation("a").append([2], key="k").deduplicated
    assert any_store.verify().ok


def test_a_refusal_leaves_the_callers_transaction_alive(any_store: Any, driver: Any) -> None:
    any_store.conversation("a").append([1], key="k")
    with driver.connect() as conn:
        mine = any_store.using(conn)
        conn.execute("CREATE TEMP TABLE refunds (n int) ON COMMIT DROP")
        for named in ({"expected": 9}, {"key": "k"}, {"expected": NO_STREAM}):
            with pytest.raises((VersionConflict, IdempotencyConflict)):
                mine.conversation("a").append([2], **named)
        assert conn.execute("SELECT count(*) FROM refunds").fetchone() == (0,)
        mine.conversation("a").append([2], expected=1)
    assert stored(any_store.conversation("a")) == [1, 2]


class _RawLoader(psycopg.adapt.Loader):
    """Gives the bytes as they came, as some applications have it for some types."""

    format = psycopg.pq.Format.BINARY

    def load(self, data: Any) -> bytes:
        return bytes(data)


@pytest.mark.parametrize("set_up", ["dict_row", "namedtuple_row", "autocommit", "own loaders", "search_path"])
def test_using_takes_a_connection_however_it_was_set_up(any_store: Any, driver: Any, set_up: str) -> None:
    given: dict[str, Any] = {
        "dict_row": {"row_factory": dict_row},
        "namedtuple_row": {"row_factory": namedtuple_row},
        "autocommit": {"autocommit": True},
    }.get(set_up, {})
    with driver.connect(**given) as conn:
        if set_up == "own loaders":
            for name in ("text", "int8", "json", "bytea", "int2"):
                conn.adapters.register_loader(name, _RawLoader)
        if set_up == "search_path":
            conn.execute("SET LOCAL search_path = pg_temp")
        mine = any_store.using(conn)
        first = mine.conversation("a", tags={"t": "x"}).append([{"n": 2**80}, "two"], key="k", metadata={"m": 1})
        assert (first.first_version, first.last_version, first.deduplicated) == (1, 2, False)
        assert mine.conversation("a").append([{"n": 2**80}, "two"], key="k").deduplicated
        assert mine.conversation("a").head() == 2
        one, two = mine.conversation("a").events()
        assert (one.data, two.data, one.metadata, one.version) == ({"n": 2**80}, "two", {"m": 1}, 1)
        assert mine.conversations(tags={"t": "x"}).streams[0].name == "a"
        assert mine.verify().ok
        with mine.transaction() as tx:
            tx.conversation("a").append([3])
    assert [e.data for e in any_store.conversation("a").events()] == [{"n": 2**80}, "two", 3]
    assert list(any_store.conversation("a").events())[:2] == [one, two]


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_using_refuses_a_connection_that_would_garble_text(
    any_store: Any, driver: Any, contract_db: psycopg.Connection, encoding: str
) -> None:
    with driver.connect() as conn:
        conn.execute("SET client_encoding = " + encoding)
        with Untouched(contract_db), pytest.raises(UnsafeSetting, match=encoding):
            any_store.using(conn).conversation("a").append(["é"])
        conn.rollback()


def test_an_error_of_the_server_aborts_the_callers_transaction_and_nothing_else(any_store: Any, driver: Any) -> None:
    with driver.connect() as conn:
        mine = any_store.using(conn)
        mine.conversation("a").append([1])
        with pytest.raises(psycopg.errors.DivisionByZero):
            conn.execute("SELECT 1/0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            mine.conversation("a").append([2])
        conn.rollback()
    assert any_store.conversation("a").append([3]).first_version == 1


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_other_isolation_levels_work_or_fail_cleanly(any_store: Any, driver: Any, level: str) -> None:
    any_store.conversation("a").append(["first"], key="k1")
    with driver.connect() as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL " + level)
        mine = any_store.using(conn)
        assert mine.conversation("a").append(["first"], key="k1").deduplicated
        mine.conversation("a").append(["mine"], key="k2")
        mine.conversation("new").append([1, 2])
    assert stored(any_store.conversation("a")) == ["first", "mine"]
    with driver.connect() as conn:  # its snapshot is older than what it meets
        for number, (stream, named) in enumerate(
            [("a", {}), ("a", {"key": "theirs"}), ("a", {"expected": 4}), ("a", {"key": "mine"}), ("fresh", {})]
        ):
            conn.execute("SET TRANSACTION ISOLATION LEVEL " + level)
            conn.execute("SELECT count(*) FROM convstore.events")
            any_store.conversation("a").append([number], key="theirs" if number == 1 else None)
            any_store.conversation("fresh").append([number])
            with pytest.raises(psycopg.errors.SerializationFailure):
                any_store.using(conn).conversation(stream).append([number], **named)
            conn.rollback()
    assert stored(any_store.conversation("a")) == ["first", "mine", 0, 1, 2, 3, 4]
    assert stored(any_store.conversation("fresh")) == [0, 1, 2, 3, 4]
    with driver.connect() as conn:  # nor is a stream created twice that came after the snapshot
        conn.execute("SET TRANSACTION ISOLATION LEVEL " + level)
        conn.execute("SELECT count(*) FROM convstore.events")
        any_store.conversation("late").append(["theirs"])
        with pytest.raises(psycopg.errors.SerializationFailure):
            any_store.using(conn).conversation("late").append(["mine"])
        conn.rollback()
    assert stored(any_store.conversation("late")) == ["theirs"]
    assert any_store.verify().ok


def test_events_come_in_pages_bounded_by_rows_and_by_bytes_and_none_is_missing(any_store: Any) -> None:
    chat = any_store.conversation("a")
    big = "x" * 400_000  # compresses well: what is stored stays small
    chat.append([f"{n}" for n in range(2_500)])
    noise = [("%08x" % (n * 2_654_435_761 % 2**32)) * 3 + big[:n] for n in range(10)]
    chat.append(noise)
    draw = random.Random(7)
    heavy = [draw.randbytes(400_000).hex() for _ in range(8)]  # above 1 MiB each few
    chat.append(heavy)
    chat.append(["last"])
    expected = [f"{n}" for n in range(2_500)] + noise + heavy + ["last"]
    events = list(chat.events())
    assert [e.version for e in events] == list(range(1, len(expected) + 1))
    assert [e.data for e in events] == expected
    assert [e.data for e in chat.events(2_511)] == [*heavy, "last"]


def test_events_from_first_to_last_of_some_types(any_store: Any) -> None:
    chat = any_store.conversation("a")
    chat.append_events([Event(type=f"x.{'ab'[n % 2]}", data=n) for n in range(1, 2_101)])

    def seen(*args: Any, **kwargs: Any) -> list[int]:
        return [e.version for e in chat.events(*args, **kwargs)]

    assert seen(5, 9) == [5, 6, 7, 8, 9]
    assert seen(9, 9) == [9]
    assert seen(9, 5) == []
    assert seen(1, 0) == []
    assert seen(2_099) == [2_099, 2_100]
    assert seen(2_101) == []
    assert seen(1, 10**12) == list(range(1, 2_101))
    assert seen(types=["x.a"]) == list(range(2, 2_101, 2))
    assert seen(7, 11, types=["x.a"]) == [8, 10]
    assert seen(types=["x.a", "x.b"]) == list(range(1, 2_101))
    assert seen(types=[]) == []
    assert seen(types=["x.unknown"]) == []
    for bad in ({"first": 0}, {"first": "1"}, {"first": True}, {"last": -1}, {"last": 1.0}, {"types": "x.a"}):
        with pytest.raises(InvalidItem, match=next(iter(bad))):
            chat.events(**bad)


def test_a_stream_that_does_not_exist_is_empty(any_store: Any) -> None:
    assert any_store.conversation("none").head() == 0
    assert list(any_store.conversation("none").events()) == []
    assert any_store.conversations().streams == []
    assert any_store.verify().ok
    with pytest.raises(StreamNotFound):
        any_store.verify("none")


def test_the_same_names_in_two_tenants_never_meet(any_store: Any) -> None:
    other = any_store.for_tenant(any_store.tenant + "-2")
    ids = ["6f0e1d3c-5b0a-4c3e-9f0e-2d1c7a4b8e55"]
    unique = Event(type="x.a", data="unique", unique_key="u", subject="s")
    for scope in (any_store, other):
        chat = scope.conversation("a", context="ctx", tags={"t": "x"})
        assert chat.head() == 0
        assert not chat.append([scope.tenant], ids=ids, expected=NO_STREAM).deduplicated
        assert not chat.append(["key"], key="k").deduplicated
        assert not chat.append_events([unique]).deduplicated
    for scope in (any_store, other):
        events = list(scope.conversation("a").events())
        assert [e.data for e in events] == [scope.tenant, "key", "unique"]
        assert {e.tenant for e in events} == {scope.tenant}
        assert [s.name for s in scope.conversations(context="ctx", tags={"t": "x"}).streams] == ["a"]
        report = scope.verify()
        assert (report.ok, report.checked, report.streams) == (True, 3, 1)
    other.conversation("only here").append([1])
    assert any_store.conversation("only here").head() == 0
    with pytest.raises(StreamNotFound):
        any_store.verify("only here")
    with any_store.transaction() as tx:
        tx.for_tenant(other.tenant).conversation("a").append(["both"])
        tx.conversation("a").append(["both"])
    assert [s.conversation("a").head() for s in (any_store, other)] == [4, 4]


def test_every_refusal_is_an_error_of_the_product(any_store: Any) -> None:
    chat = any_store.conversation("a")
    chat.append([1], key="k")
    for call in (
        lambda: chat.append([2], key="k"),
        lambda: chat.append([2], expected=5),
        lambda: any_store.conversation("a", context="x").append([2]),
        lambda: any_store.conversation(""),
        lambda: chat.append([object()]),
    ):
        with pytest.raises(ConvstoreError):
            call()
