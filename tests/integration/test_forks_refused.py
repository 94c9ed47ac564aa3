"""What a fork refuses, with its text and without a trace; and what it answers as a repeat."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from contract import Untouched

from eventstore import EventStore
from eventstore.errors import (
    ContextMismatch,
    ForkPointBeyondHead,
    IdempotencyConflict,
    InvalidItem,
    InvalidName,
    NotPermitted,
    StreamExists,
    StreamNotFound,
    TenantRequired,
    VersionConflict,
)

ID = uuid.UUID("6f0e1d3c-5b0a-4c3e-9f0e-2d1c7a4b8e55")
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"at": 4}, ForkPointBeyondHead, "stream 'a' has versions 1 to 3, so it can't fork at 4"),
    ({"at": 2**63 - 1}, ForkPointBeyondHead, "versions 1 to 3"),
    ({"after_items": 4}, ForkPointBeyondHead, "stream 'a' has 3 items, so it can't fork at after_items=4"),
    ({"after_items": 2**63 - 1}, ForkPointBeyondHead, "has 3 items"),
    ({"at": -1}, InvalidItem, "at: -1; give the last version that the branch shares, from 0 on"),
    ({"at": True}, InvalidItem, "at: True"),
    ({"at": 1.0}, InvalidItem, "at: 1.0"),
    ({"at": 2**63}, InvalidItem, "at: 9223372036854775808"),
    ({"after_items": -1}, InvalidItem, "after_items: -1; give how many items it shares, from 0 on"),
    ({"after_items": "1"}, InvalidItem, "after_items: '1'"),
    ({"at_item": 1}, InvalidItem, "at_item: 1; give the id of an item or of an event"),
    ({"at_item": "none"}, InvalidItem, "at_item: 'none': no item or event of stream 'a' has this id"),
    ({"at_item": ""}, InvalidItem, "at_item: ''"),
    ({"at_item": ID}, InvalidItem, f"at_item: '{ID}'"),
    ({"at": 1, "after_items": 1}, InvalidItem, "after_items: at is given too; give one of at, after_items, at_item"),
    ({"at": 0, "at_item": "x"}, InvalidItem, "at_item: at is given too"),
    ({"tags": {"a": 1}}, InvalidName, "tag 'a'"),
    ({"tags": []}, InvalidItem, "tags"),
    ({"key": 1}, InvalidName, "key"),
    ({"agent": 1}, InvalidName, "agent"),
    ({"metadata": {"x": float("nan")}}, InvalidItem, "metadata"),
    ({"metadata": 3}, InvalidItem, "metadata"),
]


@pytest.mark.parametrize(("named", "error", "text"), REFUSED, ids=repr)
def test_a_refused_fork_says_why_and_writes_nothing(
    any_store: Any, contract_db: psycopg.Connection, named: dict[str, Any], error: type[Exception], text: str
) -> None:
    chat = any_store.conversation("a")
    chat.append([1, 2, 3])
    with Untouched(contract_db), pytest.raises(error) as caught:
        chat.fork("b", **named)
    assert text in str(caught.value)
    assert any_store.conversation("b").head() == 0


@pytest.mark.parametrize("bad", ["", "x" * 513, "nul \x00", "\ud800", None, 7], ids=repr)
def test_a_name_that_cannot_be_one_is_refused(any_store: Any, contract_db: psycopg.Connection, bad: Any) -> None:
    chat = any_store.conversation("a")
    chat.append([1])
    with Untouched(contract_db), pytest.raises(InvalidName, match="stream"):
        chat.fork(bad)


@pytest.mark.parametrize("point", [{}, {"at": 0}, {"after_items": 0}, {"at_item": "x"}, {"key": "k"}], ids=repr)
def test_no_fork_of_a_stream_that_does_not_exist(
    any_store: Any, contract_db: psycopg.Connection, point: dict[str, Any]
) -> None:
    other = any_store.for_tenant(any_store.tenant + "-2")
    other.conversation("none").append([1])
    for scope in (any_store, any_store.for_tenant(any_store.tenant + "-new")):
        with Untouched(contract_db), pytest.raises(StreamNotFound, match="no stream 'none' in tenant"):
            scope.conversation("none").fork("b", **point)
        scope.conversation("other").append([1])


def test_points_beyond_a_branchs_head_count_its_whole_line(any_store: Any, contract_db: psycopg.Connection) -> None:
    chat = any_store.conversation("a")
    chat.append([1, 2, 3])
    branch = chat.fork("b", at=2)
    branch.append([4])
    for point, has in (
        ({"at": 5}, "versions 1 to 4"),
        ({"after_items": 4}, "3 items"),
        ({"after_items": 2**63 - 1}, "3 items"),
    ):
        with Untouched(contract_db), pytest.raises(ForkPointBeyondHead, match=f"'b' has {has}") as caught:
            branch.fork("c", **point)
        assert caught.value.head == (4 if "at" in point else 3)


def test_an_id_of_the_parent_beyond_the_fork_point_or_of_a_sibling_is_none_of_a_branch(
    any_store: Any, contract_db: psycopg.Connection
) -> None:
    chat = any_store.conversation("a", context="ctx")
    chat.append([{"id": "before"}])
    branch, sibling = chat.fork("b"), chat.fork("s")
    chat.append([{"id": "later"}])
    sibling.append([{"id": "sibling's"}])
    *_, later = chat.events()
    for wanted in ("later", "sibling's", later.event_id):
        with Untouched(contract_db), pytest.raises(InvalidItem, match="of stream 'b' has this id"):
            branch.fork("c", at_item=wanted)
    assert branch.fork("c", at_item="before").head() == 2


# --- repeats -------------------------------------------------------------------------------------


def test_the_same_fork_again_is_the_branch(any_store: Any, contract_db: psycopg.Connection) -> None:
    chat = any_store.conversation("a")
    chat.append([{"id": "m1"}, {"id": "m2"}, {"id": "m3"}])
    branch = chat.fork("b", at=2, tags={"t": "1"}, key="k", metadata={"first": 1})
    branch.append(["more"])
    chat.append([4])
    for point in ({"at": 2}, {"after_items": 2}, {"at_item": "m2"}):
        for named in (
            {},
            {"key": "k"},
            {"key": "another"},
            {"tags": {"t": "2"}, "metadata": {"second": 2}, "agent": "x"},
        ):
            with Untouched(contract_db):
                again = chat.fork("b", **point, **named)
            assert (again.name, again.head()) == ("b", 4)
    (event,) = branch.events(3, 3)
    assert event.metadata == {"first": 1}
    assert [s.tags for s in any_store.conversations().streams] == [{}, {"t": "1"}]
    # By another way to the same place: whoever owns the version is the parent.
    twig = branch.fork("twig", at=1)
    with Untouched(contract_db):
        assert chat.fork("twig", at=1).name == twig.name


def test_with_a_key_the_head_may_have_moved(any_store: Any, contract_db: psycopg.Connection) -> None:
    chat = any_store.conversation("a")
    chat.append([1, 2])
    chat.fork("b", key="k")
    chat.fork("c")
    with Untouched(contract_db):
        assert chat.fork("b").head() == chat.fork("c").head() == 3  # at the same head
    chat.append([3])
    with Untouched(contract_db):
        assert chat.fork("b", key="k").head() == 3
    for name, named in (("b", {}), ("b", {"key": "another"}), ("c", {}), ("c", {"key": "k"})):
        with Untouched(contract_db), pytest.raises(StreamExists) as caught:
            chat.fork(name, **named)
        assert str(caught.value) == (f"stream {name!r} exists: it branches off 'a' at version 2; choose another name")


def test_a_name_that_is_used_is_refused(any_store: Any, contract_db: psycopg.Connection) -> None:
    chat = any_store.conversation("a")
    chat.append([1, 2, 3])
    any_store.conversation("taken").append([1])
    branch = chat.fork("b", at=1)
    twig = branch.fork("twig")
    for parent, name, why in (
        (chat, "taken", "it is no branch"),
        (chat, "a", "it is no branch"),
        (branch, "a", "it is no branch"),
        (branch, "b", "it branches off 'a' at version 1"),
        (chat, "b", "it branches off 'a' at version 1"),
        (chat, "twig", "it branches off 'b' at version 2"),
        (twig, "b", "it branches off 'a' at version 1"),
    ):
        for at in (2, None):
            with Untouched(contract_db), pytest.raises(StreamExists) as caught:
                parent.fork(name, at=at if parent is chat else None)
            assert str(caught.value) == f"stream {name!r} exists: {why}; choose another name"
    with Untouched(contract_db), pytest.raises(StreamExists):
        any_store.conversation("taken").fork("b", at=1)  # another parent, the same version
    with Untouched(contract_db), pytest.raises(StreamExists):
        branch.fork("b", at=0)


def test_a_key_that_made_another_fork_is_refused(any_store: Any, contract_db: psycopg.Connection) -> None:
    chat, other = any_store.conversation("a"), any_store.conversation("other")
    chat.append([1, 2, 3])
    other.append([1, 2, 3, 4, 5])
    chat.fork("b", at=2, key="k")
    for parent, point, given in (
        (chat, {"at": 3}, "a fork of 'a' at at=3"),
        (chat, {"after_items": 1}, "a fork of 'a' at after_items=1"),
        (other, {}, "a fork of 'other' at the head"),
        (other, {"at": 2}, "a fork of 'other' at at=2"),
    ):
        with Untouched(contract_db), pytest.raises(IdempotencyConflict) as caught:
            parent.fork("b", key="k", **point)
        text = str(caught.value)
        assert "key 'k' was used before" in text
        assert "stored stream 'b', it branches off 'a' at version 2" in text
        assert given in text
    assert chat.fork("c", at=3, key="k").head() == 4  # a key counts within its stream


def test_a_key_is_a_forks_or_an_appends(any_store: Any, contract_db: psycopg.Connection) -> None:
    chat = any_store.conversation("a")
    chat.append([1], key="k")
    branch = chat.fork("b", key="k")  # the parent's key is another
    with Untouched(contract_db), pytest.raises(IdempotencyConflict):
        branch.append([1], key="k")
    assert not branch.append([1], key="k2").deduplicated
    any_store.conversation("c").append([1], key="k")
    with Untouched(contract_db), pytest.raises(StreamExists):
        chat.fork("c", key="k")
    with Untouched(contract_db), pytest.raises(VersionConflict):
        branch.append([2], expected=1)


def test_a_branch_belongs_to_its_parents_context(any_store: Any, contract_db: psycopg.Connection) -> None:
    chat = any_store.conversation("a", context="ctx")
    chat.append([1])
    chat.fork("b")
    with Untouched(contract_db), pytest.raises(ContextMismatch):
        any_store.conversation("b", context="b").append([2])


def test_the_same_names_in_two_tenants_fork_apart(any_store: Any, contract_db: psycopg.Connection) -> None:
    other = any_store.for_tenant(any_store.tenant + "-2")
    for scope in (any_store, other):
        chat = scope.conversation("a", context="ctx")
        chat.append([scope.tenant], ids=[ID])
        branch = chat.fork("b", key="k", at_item=ID)
        branch.append([f"{scope.tenant} b"])
    for scope in (any_store, other):
        events = list(scope.conversation("b").events())
        assert [e.data for e in events] == [scope.tenant, {"parent": "a", "at": 1}, f"{scope.tenant} b"]
        assert {e.tenant for e in events} == {scope.tenant}
        assert [s.name for s in scope.conversation("b").family()] == ["a", "b"]
        report = scope.verify()
        assert (report.ok, report.checked, report.streams) == (True, 3, 2)
    other.conversation("only here").append([1])
    with Untouched(contract_db), pytest.raises(StreamNotFound):
        any_store.conversation("only here").fork("c")


# --- roles and logins ----------------------------------------------------------------------------

FORK = (
    "SELECT outcome FROM convstore.fork_stream(%(tenant)s, %(parent)s, %(name)s, %(tags)s, %(at)s, %(items)s,"
    " %(subject)s, %(item)s, %(id)s, NULL, %(metadata)s)"
)
PLAIN: dict[str, Any] = dict.fromkeys(["tags", "at", "items", "subject", "item", "metadata"]) | {
    "tenant": "acme",
    "parent": "a",
    "name": "b",
    "id": ID,
}


def test_a_reader_may_look_at_branches_and_not_make_them(
    make_login: Callable[..., str], filled: EventStore, db: psycopg.Connection
) -> None:
    filled.for_tenant("acme").conversation("a").fork("b")
    for role in ("reader", "auditor"):
        with EventStore.open(make_login(role, "acme"), tenant="acme") as store:
            chat = store.conversation("b")
            assert [tuple(p) for p in chat.lineage()] == [("a", 1, 2), ("b", 3, 3)]
            assert [s.name for s in chat.family()] == ["a", "b"]
            assert len(list(chat.events())) == 3
            with (
                Untouched(db),
                pytest.raises(NotPermitted, match=r"may not fork a stream; it needs .*convstore_writer"),
            ):
                chat.fork("c")
    with EventStore.open(make_login("writer", "acme"), tenant="acme") as store:
        assert store.conversation("b").fork("c").append([1]).last_version == 5


def test_a_login_forks_and_sees_no_other_tenants_streams(
    make_login: Callable[..., str], filled: EventStore, db: psycopg.Connection
) -> None:
    url = make_login("writer", "acme")
    filled.for_tenant("rival").conversation("a").fork("secret")
    with EventStore.open(url, tenant="rival") as store, Untouched(db):
        chat = store.conversation("a")
        for call in (lambda: chat.fork("b"), chat.lineage, chat.family, lambda: list(chat.events())):
            with pytest.raises(TenantRequired):
                call()
    with psycopg.connect(url, autocommit=True) as conn, Untouched(db):
        for tenant in ("rival", None, "nobody"):
            with pytest.raises(psycopg.Error) as caught:
                conn.execute(FORK, PLAIN | {"tenant": tenant})
            assert caught.value.sqlstate == "CV001"
        assert conn.execute(FORK, PLAIN | {"parent": "secret"}).fetchone() == ("no_parent",)
        for inner in (
            "plan_fork(1, 'a', 'b', 1, NULL, NULL, NULL, NULL)",
            "fork_point(1, 1, 1, NULL, NULL)",
            "lineage(1, 1, 1, 1)",
            "chain_at(1, 1, '', 1)",
            "control_at(1, 1, 1)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(f"SELECT convstore.{inner}")  # type: ignore[call-overload]
    with EventStore.open(url, tenant="acme") as store:
        assert not list(store.conversation("secret").events())
        assert store.conversation("a").fork("secret").head() == 3  # a name of its own


ODD: list[dict[str, Any]] = [
    {"at": -1},
    {"at": -(2**63)},
    {"items": -1},
    {"items": -(2**63)},
    {"at": 1, "items": 1},
    {"at": 1, "subject": "x"},
    {"items": 1, "item": ID},
    {"name": None},
    {"id": None},
    {"name": ""},
    {"name": "x" * 513},
    {"tags": "[1]"},
    {"tags": '"x"'},
    {"tags": "null"},
    {"metadata": "[]"},
    {"metadata": "null"},
]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_odd_parameters_by_hand_are_refused(
    make_login: Callable[..., str], filled: EventStore, db: psycopg.Connection, odd: dict[str, Any]
) -> None:
    with psycopg.connect(make_login("writer", "acme"), autocommit=True) as conn:
        before = db.execute("SELECT count(*), max(stream_id) FROM streams").fetchone()
        with pytest.raises(
            psycopg.errors.IntegrityError if "metadata" in odd else psycopg.errors.InvalidParameterValue
        ):
            conn.execute(FORK, PLAIN | odd)
        assert db.execute("SELECT count(*), max(stream_id) FROM streams").fetchone() == before
        for answered, outcome in (
            ({"parent": None}, "no_parent"),
            ({"at": 2**63 - 1}, "beyond_head"),
            ({"items": 2**63 - 1}, "beyond_head"),
            ({"subject": "none"}, "no_item"),
            ({"item": uuid.uuid4()}, "no_item"),  # alone, not taken for the head
        ):
            assert conn.execute(FORK, PLAIN | answered).fetchone() == (outcome,)
    assert filled.for_tenant("acme").verify().ok


def test_an_event_id_may_be_known_elsewhere(
    make_login: Callable[..., str], filled: EventStore, db: psycopg.Connection
) -> None:
    (known, *_) = (e.event_id for e in filled.for_tenant("acme").conversation("a").events())
    with psycopg.connect(make_login("writer", "acme"), autocommit=True) as conn:
        assert conn.execute(FORK, PLAIN | {"id": known}).fetchone() == ("appended",)
        assert conn.execute(FORK, PLAIN | {"id": known}).fetchone() == ("repeated",)
        assert conn.execute(FORK, PLAIN | {"id": known, "at": 1}).fetchone() == ("idempotency_conflict",)
        assert conn.execute(FORK, PLAIN | {"name": "c", "id": known}).fetchone() == ("appended",)
        assert conn.execute(FORK, PLAIN | {"name": "a", "id": known}).fetchone() == ("exists",)
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="fork_stream"):
            conn.execute(
                "SELECT convstore.append_event('acme', 'b', NULL, NULL, NULL, NULL, NULL, NULL, false, %s, 1::int2,"
                " 1::int2, 'stream.forked', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{}')",
                [uuid.uuid4()],
            )
    assert filled.for_tenant("acme").verify().ok


def test_a_name_whose_stream_was_taken_away_is_refused_and_not_waited_for(
    filled: EventStore, db: psycopg.Connection
) -> None:
    filled.for_tenant("acme").conversation("a").fork("b")
    db.execute("DELETE FROM streams WHERE name = 'b'")
    db.execute("SET statement_timeout = '10s'")
    assert db.execute(FORK, PLAIN).fetchone() == ("exists",)
