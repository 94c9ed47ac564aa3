"""Forks in transactions, on the caller's own connection and at other isolation levels."""

from __future__ import annotations

import contextlib
from typing import Any

import psycopg
import pytest
from contract import Untouched

from eventstore.errors import ForkPointBeyondHead, InvalidItem, StreamExists, StreamNotFound


class Failed(Exception):
    """What a caller's own code raises."""


def stored(chat: Any) -> list[Any]:
    return [event.data for event in chat.events()]


def test_a_transaction_forks_what_it_appended_itself(any_store: Any) -> None:
    with any_store.transaction() as tx:
        chat = tx.conversation("a", context="ctx")
        chat.append([1, 2, 3])
        branch = chat.fork("b", at=2)
        branch.append(["b"])
        twig = branch.fork("c")
        twig.append(["c"])
        chat.append([4])
        assert stored(twig) == [1, 2, {"parent": "a", "at": 2}, "b", {"parent": "b", "at": 4}, "c"]
        assert any_store.conversation("b").head() == any_store.conversation("a").head() == 0
        assert chat.fork("b", at=2).head() == 4
    assert stored(any_store.conversation("a")) == [1, 2, 3, 4]
    assert stored(any_store.conversation("c"))[3:] == ["b", {"parent": "b", "at": 4}, "c"]
    report = any_store.verify()
    assert (report.ok, report.checked) == (True, 8)


def test_a_transaction_that_fails_leaves_no_branch(any_store: Any) -> None:
    chat = any_store.conversation("a")
    chat.append([1, 2])
    with contextlib.suppress(Failed), any_store.transaction() as tx:
        tx.conversation("a").fork("b", key="k").append(["gone"], key="k2")
        raise Failed
    assert any_store.conversation("b").head() == 0
    assert [s.name for s in chat.family()] == ["a"]
    # Its ids must not be remembered, and its name is free.
    branch = chat.fork("b", at=1, key="k")
    assert branch.append(["new"], key="k2").last_version == 3
    assert any_store.verify().ok


def test_a_savepoint_takes_its_forks_back_alone(any_store: Any) -> None:
    any_store.conversation("a").append([1])
    with any_store.transaction() as outer:
        outer.conversation("a").fork("kept")
        with contextlib.suppress(Failed), outer.transaction() as inner:
            inner.conversation("a").fork("dropped")
            raise Failed
        outer.conversation("kept").fork("dropped").append([2])
    assert stored(any_store.conversation("dropped"))[1:] == [
        {"parent": "a", "at": 1},
        {"parent": "kept", "at": 2},
        2,
    ]
    assert any_store.verify().ok


def test_a_refused_fork_leaves_the_transaction_alive(any_store: Any) -> None:
    any_store.conversation("a").append([1])
    any_store.conversation("taken").append([1])
    with any_store.transaction() as tx:
        chat = tx.conversation("a")
        chat.append([2])
        for call, error in (
            (lambda: chat.fork("taken"), StreamExists),
            (lambda: chat.fork("b", at=9), ForkPointBeyondHead),
            (lambda: chat.fork("b", at_item="none"), InvalidItem),
            (lambda: tx.conversation("none").fork("b"), StreamNotFound),
        ):
            with pytest.raises(error):
                call()
        chat.fork("b").append([3])
    assert stored(any_store.conversation("b")) == [1, 2, {"parent": "a", "at": 2}, 3]


def test_using_commits_and_rolls_back_a_fork_with_the_callers_rows(
    any_store: Any, driver: Any, contract_db: psycopg.Connection
) -> None:
    any_store.conversation("a").append([1])
    with driver.connect() as conn:
        mine = any_store.using(conn)
        before = contract_db.execute("SELECT count(*) FROM events").fetchone()
        mine.conversation("a").fork("b")
        conn.rollback()
        assert contract_db.execute("SELECT count(*) FROM events").fetchone() == before
        assert mine.conversation("b").head() == 0
        mine.conversation("a").fork("b").append([2])
        assert any_store.conversation("b").head() == 0
        conn.commit()
        assert any_store.conversation("b").head() == 3
        mine.conversation("b").fork("c")
        conn.rollback()
    assert [s.name for s in any_store.conversation("b").family()] == ["a", "b"]
    assert any_store.verify().ok


def test_using_an_autocommit_connection_forks_at_once(any_store: Any, driver: Any) -> None:
    with driver.connect(autocommit=True) as conn:
        any_store.using(conn).conversation("a").append([1])
        any_store.using(conn).conversation("a").fork("b").append([2])
        assert stored(any_store.conversation("b")) == [1, {"parent": "a", "at": 1}, 2]


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_at_other_isolation_levels_a_fork_works_or_fails_cleanly(
    any_store: Any, driver: Any, contract_db: psycopg.Connection, level: str
) -> None:
    chat = any_store.conversation("a")
    chat.append([1, 2], key="k")
    begin = "SET TRANSACTION ISOLATION LEVEL " + level
    with driver.connect() as conn:
        conn.execute(begin)
        mine = any_store.using(conn)
        conn.execute("SELECT count(*) FROM convstore.events")
        chat.append([3])  # after the snapshot
        branch = mine.conversation("a").fork("b")  # at the head that its snapshot shows
        branch.append([4])
        assert mine.conversation("a").fork("b").head() == 4
        assert mine.conversation("b").fork("c", at=1).head() == 2
    assert stored(any_store.conversation("b")) == [1, 2, {"parent": "a", "at": 2}, 4]
    with driver.connect() as conn:
        for named in ({}, {"at": 1}, {"key": "k"}):  # the name came after the snapshot, whatever for
            name = f"late {len(named)} {named}"
            conn.execute(begin)
            conn.execute("SELECT count(*) FROM convstore.events")
            chat.fork(name, **named)
            with Untouched(contract_db), pytest.raises(psycopg.errors.SerializationFailure):
                any_store.using(conn).conversation("a").fork(name, **named)
            conn.rollback()
            assert any_store.using(conn).conversation("a").fork(name, **named).name == name
            conn.rollback()
        conn.execute(begin)
        conn.execute("SELECT count(*) FROM convstore.events")
        any_store.conversation("later").append([1])
        with Untouched(contract_db), pytest.raises(StreamNotFound):
            any_store.using(conn).conversation("later").fork("of later")
        conn.rollback()
    assert any_store.verify().ok
