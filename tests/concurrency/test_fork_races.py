"""Forks beside each other and beside appends, one statement at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from stepping import Actor, last_value, stamps, together, until_waits

from eventstore import NO_STREAM, EventStore
from eventstore.errors import (
    ContextMismatch,
    IdempotencyConflict,
    StreamExists,
    StreamNotFound,
    UnsafeSetting,
    VersionConflict,
)


@pytest.fixture(autouse=True)
def parent(store: EventStore) -> Any:
    chat = store.conversation("p", context="ctx")
    chat.append([1, 2, 3])
    return chat


def fork(actor: Actor, name: str = "b", parent: str = "p", **named: Any) -> Any:
    return actor.begins(lambda: actor.store.conversation(parent).fork(name, **named))


def stored(store: EventStore, name: str) -> list[Any]:
    return [e.data for e in store.conversation(name).events()]


@pytest.mark.parametrize(
    ("one", "other"),
    [({}, {}), ({"at": 2}, {"after_items": 2}), ({"key": "k"}, {"key": "k"}), ({"at": 3}, {"key": "k"})],
    ids=repr,
)
def test_two_equal_forks_at_once_are_one_branch(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, one: dict[str, Any], other: dict[str, Any]
) -> None:
    fork(a, **one).result(20)
    waiting = fork(b, **other)
    until_waits(db, b, for_=a)
    assert stamps(db, b.pid) == []  # who waits holds nobody's feed back
    drawn = last_value(db)
    a.commit()
    assert waiting.result(20).name == "b"
    b.commit()
    assert last_value(db) == drawn
    assert [s.name for s in store.conversation("p").family()] == ["p", "b"]
    assert store.verify().checked == 4


@pytest.mark.parametrize(
    ("one", "other", "error"),
    [
        ({"at": 2}, {"at": 1}, StreamExists),
        ({"at": 2}, {}, StreamExists),
        ({"at": 2, "key": "k"}, {"at": 1, "key": "k"}, IdempotencyConflict),
    ],
    ids=repr,
)
def test_of_two_different_forks_with_one_name_the_second_is_refused(
    store: EventStore,
    db: psycopg.Connection,
    a: Actor,
    b: Actor,
    one: dict[str, Any],
    other: dict[str, Any],
    error: type[Exception],
) -> None:
    b.append("p", ["b's own"]).result(20)
    b.commit()
    b.append("other", ["b's other work"]).result(20)
    fork(a, **one).result(20)
    waiting = fork(b, **other)
    until_waits(db, b, for_=a)
    a.commit()
    with pytest.raises(error):
        waiting.result(20)
    b.commit()  # which its transaction survives
    assert stored(store, "other") == ["b's other work"]
    assert stored(store, "b")[2:] == [{"parent": "p", "at": 2}]
    assert store.verify().ok


@pytest.mark.parametrize("other", [{}, {"at": 1}], ids=repr)
def test_where_the_first_rolls_back_the_second_makes_the_branch(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, other: dict[str, Any]
) -> None:
    fork(a).result(20)
    waiting = fork(b, **other)
    until_waits(db, b, for_=a)
    a.rollback()
    waiting.result(20)
    b.commit()
    at = other.get("at", 3)
    assert stored(store, "b") == [*[1, 2, 3][:at], {"parent": "p", "at": at}]
    assert store.verify().ok


def test_many_equal_forks_at_once_make_one(store: EventStore) -> None:
    for n in range(8):
        results = together([lambda n=n: store.conversation("p").fork(f"b{n}", key="k")] * 8)  # type: ignore[misc]
        assert [getattr(r, "name", r) for r in results] == [f"b{n}"] * 8
        mixed = together([lambda n=n, at=at: store.conversation("p").fork(f"c{n}", at=at) for at in range(4)])  # type: ignore[misc]
        assert sorted(type(r).__name__ for r in mixed) == ["Conversation", *["StreamExists"] * 3]
    report = store.verify()
    assert (report.ok, report.streams) == (True, 17)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_forks_work_whatever_the_logins_isolation_level(url: str, store: EventStore, level: str) -> None:
    setting = "-c default_transaction_isolation=" + level.replace(" ", "\\ ")
    with (
        EventStore.open(psycopg.conninfo.make_conninfo(url, options=setting)) as other,
        ThreadPoolExecutor(6) as threads,
    ):
        made = list(threads.map(lambda n: other.conversation("p").fork(f"b{n // 4}", at=2).append([n]), range(48)))
    assert len(made) == 48
    assert all(len(stored(store, f"b{n}")) == 7 for n in range(12))
    assert store.verify().ok


# --- beside appends ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "handle", "error"),
    [
        ({}, {}, None),
        ({"expected": NO_STREAM}, {}, VersionConflict),
        ({"key": "fork"}, {}, IdempotencyConflict),
        ({}, {"context": "b"}, ContextMismatch),
    ],
    ids=["any", "no stream", "the fork's key", "context"],
)
def test_a_first_append_waits_for_a_fork_with_its_name(
    store: EventStore,
    db: psycopg.Connection,
    a: Actor,
    b: Actor,
    named: dict[str, Any],
    handle: dict[str, Any],
    error: type[Exception] | None,
) -> None:
    fork(a, key="fork").result(20)
    waiting = b.begins(lambda: b.store.conversation("b", **handle).append(["mine"], **named))
    until_waits(db, b, for_=a)
    a.commit()
    if error is None:
        assert waiting.result(20).first_version == 5
    else:
        with pytest.raises(error):
            waiting.result(20)
    b.commit()
    assert stored(store, "b") == [1, 2, 3, {"parent": "p", "at": 3}, *(["mine"] if error is None else [])]
    assert store.verify().ok


@pytest.mark.parametrize("commits", [True, False])
def test_a_fork_waits_for_the_first_append_to_its_name(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, commits: bool
) -> None:
    a.append("b", ["theirs"]).result(20)
    waiting = fork(b)
    until_waits(db, b, for_=a)
    if commits:
        a.commit()
        with pytest.raises(StreamExists, match="it is no branch"):
            waiting.result(20)
    else:
        a.rollback()
        waiting.result(20)
    b.commit()
    assert stored(store, "b") == (["theirs"] if commits else [1, 2, 3, {"parent": "p", "at": 3}])
    assert store.verify().ok


def test_a_fork_does_not_wait_for_a_writer_of_its_parent_and_sees_what_is_committed(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor, parent: Any
) -> None:
    a.append("p", ["open", "open"]).result(20)  # holds the row of p
    db.execute("SET lock_timeout = '10s'")
    assert fork(b).result(20).head() == 4
    fork(b, "early", at=1).result(20)
    b.commit()
    assert store.conversation("p").fork("c").head() == 4
    a.commit()
    assert parent.fork("d").head() == 6
    assert stored(store, "b") == [1, 2, 3, {"parent": "p", "at": 3}]
    assert stored(store, "d") == [1, 2, 3, "open", "open", {"parent": "p", "at": 5}]
    assert store.verify().ok


def test_an_append_does_not_wait_for_an_open_fork_of_its_stream(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor
) -> None:
    fork(a).result(20)
    assert b.append("p", [4]).result(20).last_version == 4
    b.commit()
    a.append("b", ["b"]).result(20)
    a.commit()
    assert stored(store, "b") == [1, 2, 3, {"parent": "p", "at": 3}, "b"]
    assert stored(store, "p") == [1, 2, 3, 4]
    assert store.verify().ok


def test_what_is_not_committed_cannot_be_forked_by_others(store: EventStore, a: Actor, b: Actor) -> None:
    a.append("fresh", [1]).result(20)
    with pytest.raises(StreamNotFound):
        fork(b, "b", "fresh").result(20)
    fork(a, "b", "fresh").result(20)
    a.rollback()
    assert store.conversation("b").head() == store.conversation("fresh").head() == 0
    assert fork(b, "b").result(20).head() == 4


# --- the feed ------------------------------------------------------------------------------------


def test_the_feed_gives_a_branchs_first_event_after_its_parents(
    store: EventStore, a: Actor, b: Actor, make_actor: Callable[..., Actor]
) -> None:
    """Whatever commits first: an open writer below holds the rest back, and nothing is skipped."""
    seen: list[tuple[str, int]] = []
    cursor = None

    def read() -> None:
        nonlocal cursor
        page = store.feed(cursor)
        seen.extend((e.stream, e.version) for e in page.events)
        cursor = page.cursor

    read()
    a.append("slow", ["drawn first"]).result(20)
    b.append("p", [4]).result(20)
    b.commit()
    c = make_actor()
    fork(c).result(20)
    c.append("b", ["b"]).result(20)
    c.commit()
    read()
    assert seen == [("p", 1), ("p", 2), ("p", 3)]  # what a holds back: all that was drawn after it
    fork(c, "twig", "b").result(20)
    a.commit()
    read()
    c.commit()
    read()
    assert seen[3:] == [("slow", 1), ("p", 4), ("b", 5), ("b", 6), ("twig", 7)]


def test_an_open_fork_holds_a_stamp_and_the_feed_waits_for_it(
    store: EventStore, db: psycopg.Connection, a: Actor
) -> None:
    before = last_value(db)
    fork(a).result(20)
    ((key, mode),) = stamps(db, a.pid)
    assert (key <= before, mode) == (True, "ShareLock")
    store.conversation("later").append([1])
    page = store.feed()
    assert [e.stream for e in page.events] == ["p"] * 3
    a.commit()
    assert [e.stream for e in store.feed(page.cursor).events] == ["b", "later"]


def test_synchronous_commit_off_is_refused(url: str, store: EventStore, db: psycopg.Connection) -> None:
    drawn = last_value(db)
    with psycopg.connect(url, options="-c synchronous_commit=off") as conn, pytest.raises(UnsafeSetting):
        store.using(conn).conversation("p").fork("b")
    assert last_value(db) == drawn
    assert store.conversation("b").head() == 0
