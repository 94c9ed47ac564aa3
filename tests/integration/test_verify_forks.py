"""``verify`` across forks: what was changed is found where it lies, and where a branch depends on it."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from test_verify import CHAIN, CONTENT, assert_bad, copy_of, restored, tamper

from eventstore import Event, EventStore
from eventstore.log import hashing

P = "(SELECT stream_id FROM directory WHERE name = 'p')"
B = "(SELECT stream_id FROM directory WHERE name = 'b')"
M = "(SELECT stream_id FROM directory WHERE name = 'm')"
TWIN = "(SELECT stream_id FROM directory WHERE name = 'twin')"


@pytest.fixture
def family(store: EventStore) -> EventStore:
    """Streams that branch off each other.

    p: 1 | 2, which clears | 3 4 5 | 6, which clears | 7. b: p to 4, which is inside an append, then 5 forked | 6 7.
    m: b to 6, which is inside an append, then 7 forked | 8. z: branches off p at 0. h: p to its head. twin: like p.
    """
    clear = [Event(type="history.cleared", data={"reason": "enough"})]
    for name in ("p", "twin"):
        chat = store.conversation(name, context="c")
        chat.append([{"text": "one"}])
        chat.append_events(clear)
        chat.append([{"text": "three"}, {"text": "four"}, {"text": "five"}])
        chat.append_events(clear)
        chat.append([{"text": "seven"}])
    p = store.conversation("p")
    b = p.fork("b", at=4, agent="agent", metadata={"trace": "x"})
    b.append([{"text": "b six"}, {"text": "b seven"}])
    m = b.fork("m", at=6)
    m.append([{"text": "m eight"}])
    p.fork("z", at=0)
    p.fork("h")
    return store


OWN = {"p": 7, "twin": 7, "b": 3, "m": 2, "z": 1, "h": 1}
LINES = {"p": 7, "twin": 7, "b": 7, "m": 8, "z": 1, "h": 8}
CHECKED_STREAMS = {"p": 1, "twin": 1, "b": 2, "m": 3, "z": 1, "h": 2}


def event(stream: str, column: str, value: str, version: int) -> str:
    return f"UPDATE events SET {column} = {value} WHERE stream_id = {stream} AND version = {version}"


def place(stream: str, values: str) -> str:
    return f"UPDATE streams SET {values} WHERE stream_id = {stream}"


TEXT = "replace(data::text, 'e', 'E')::json"
PARENT_LINE, BRANCHES = ["p", "b", "m", "h"], ["b", "m"]
# What is done: where it is found (stream, version, reason), and which streams' lines have it; no other line does.
TAMPERED: dict[str, tuple[str, tuple[str, int, str], list[str]]] = {
    "a byte of the parent below all forks": (event(P, "data", TEXT, 1), ("p", 1, CONTENT), PARENT_LINE),
    "a byte of the parent at the fork point": (event(P, "data", TEXT, 4), ("p", 4, CONTENT), PARENT_LINE),
    "a byte of the parent in the append forked inside, after it": (
        event(P, "data", TEXT, 5),
        ("p", 5, CONTENT),
        ["p", "h"],
    ),
    "a byte of the parent above the fork point": (event(P, "data", TEXT, 7), ("p", 7, CONTENT), ["p", "h"]),
    "a later row of the append forked inside taken away": (
        f"DELETE FROM events WHERE stream_id = {P} AND version = 5",
        ("p", 6, "version 5 is missing"),
        ["p", "h"],
    ),
    "a chain of the parent above the fork point": (event(P, "chain", "sha256(chain)", 7), ("p", 7, CHAIN), ["p", "h"]),
    "a byte of the middle branch": (event(B, "data", TEXT, 6), ("b", 6, CONTENT), BRANCHES),
    "a byte of the middle branch above the fork point": (event(B, "data", TEXT, 7), ("b", 7, CONTENT), ["b"]),
    "data of stream.forked": (event(B, "data", """'{"parent":"p","at":3}'""", 5), ("b", 5, CONTENT), BRANCHES),
    "white space in stream.forked": (event(B, "data", "(data::text || ' ')::json", 5), ("b", 5, CONTENT), BRANCHES),
    "metadata of stream.forked": (event(B, "metadata", "NULL", 5), ("b", 5, CONTENT), BRANCHES),
    "agent of stream.forked": (event(B, "agent", "'another'", 5), ("b", 5, CONTENT), BRANCHES),
    "type of stream.forked": (event(B, "type", "'x.forked'", 5), ("b", 5, "a branch begins"), BRANCHES),
    "a root's first event made a fork": (
        event(TWIN, "type", "'stream.forked'", 1),
        ("twin", 1, "a branch begins"),
        ["twin"],
    ),
    "stream.forked taken away": (
        f"DELETE FROM events WHERE stream_id = {B} AND version = 5",
        ("b", 6, "version 5 is missing"),
        BRANCHES,
    ),
    "time of stream.forked": (event(B, "recorded_at", "recorded_at + interval '1 us'", 5), ("b", 5, CHAIN), BRANCHES),
    "time of stream.forked before its parent": (
        event(B, "recorded_at", "recorded_at - interval '1 year'", 5),
        ("b", 5, "time is before"),
        BRANCHES,
    ),
    "position of stream.forked before its parent": (
        event(B, "position", f"(SELECT position - 1000 FROM events WHERE stream_id = {P} AND version = 1)", 5),
        ("b", 5, "is not above"),
        BRANCHES,
    ),
    "parent_id: a stream that looks the same": (place(B, f"parent_id = {TWIN}"), ("b", 5, "it says that"), BRANCHES),
    "parent_id: its own branch": (place(B, f"parent_id = {M}"), ("b", 0, "which that does not own"), BRANCHES),
    "parent_id: itself": (place(B, f"parent_id = {B}"), ("b", 0, "which that does not own"), BRANCHES),
    "parent_id: nobody": (place(B, "parent_id = 4711"), ("b", 0, "it branches off None at 4"), BRANCHES),
    "parent_id taken away": (place(B, "parent_id = NULL"), ("b", 5, "version 1 is missing"), BRANCHES),
    "parent_id and fork_at taken away": (
        place(B, "parent_id = NULL, fork_at = NULL"),
        ("b", 5, "version 1 is missing"),
        BRANCHES,
    ),
    "fork_at taken away": (place(B, "fork_at = NULL"), ("b", 0, "branches off p at None"), BRANCHES),
    "fork_at lower": (place(B, "fork_at = 3"), ("b", 5, "version 4 is missing"), BRANCHES),
    "fork_at higher": (place(B, "fork_at = 5"), ("b", 5, "version 6 is missing"), BRANCHES),
    "fork_at: none": (place(B, "fork_at = 0"), ("b", 0, "says that version 2 changed"), BRANCHES),
    "fork_at beyond the parent's head": (place(B, "fork_at = 99"), ("p", 7, "branches off at 99"), BRANCHES),
    "fork_control": (place(B, "fork_control = 1"), ("b", 0, "its row says that version 1"), BRANCHES),
    "fork_control taken away": (place(B, "fork_control = NULL"), ("b", 0, "it was 2"), BRANCHES),
    "fork_control where there was none": (
        place("(SELECT stream_id FROM directory WHERE name = 'z')", "fork_control = 1"),
        ("z", 0, "it was 0"),
        ["z"],
    ),
    "control of the branch": (place(B, "control = 4"), ("b", 7, "version 4 changed the transcript last"), ["b"]),
    "origin of the branch": (place(B, "origin = sha256(origin)"), ("b", 0, "other names"), BRANCHES),
    "name of the branch in its row": (place(B, "name = 'bb'"), ("b", 0, "other names"), BRANCHES),
    "a secret of its own": (place(B, "secret = sha256('')"), ("b", 0, "secrets differ"), BRANCHES),
    "head of the branch": (place(B, "head = 8"), ("b", 7, "the stream's head is 8"), ["b"]),
    "a row in the branch below its fork point": (
        copy_of(6, B, version="3"),
        ("b", 3, "version 5 is missing"),
        BRANCHES,
    ),
    "a row in the branch below all": (copy_of(6, B, version="-1"), ("b", -1, "versions count from 1"), BRANCHES),
    "the parent's rows taken away": (
        f"DELETE FROM events WHERE stream_id = {P}",
        ("p", 0, "the stream's head is 7"),
        PARENT_LINE,
    ),
    "the parent's row taken away": (
        f"DELETE FROM streams WHERE stream_id = {P}",
        ("p", 0, "is missing"),
        [*PARENT_LINE, "z"],
    ),
}
# What takes the parent out of reach: who descends from it says so itself.
BY_THE_CHILD = {"the parent's row taken away", "name of the branch in its row", "fork_at beyond the parent's head"}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_change_is_found_where_it_is_and_by_who_descends_from_it(
    family: EventStore, db: psycopg.Connection, what: str
) -> None:
    statements, (stream, version, reason), lines = TAMPERED[what]
    with restored(db):
        tamper(db, statements)
        assert_bad(family.verify(), stream, version, reason)
        for name in LINES:
            report = family.verify(name)
            assert report.ok == (name not in lines), (name, report)
            if not report.ok and what not in BY_THE_CHILD:
                assert_bad(report, stream, version, reason)
    assert family.verify().ok


def test_each_event_is_checked_once_and_a_streams_ancestry_with_it(family: EventStore) -> None:
    whole = family.verify()
    assert (whole.ok, whole.checked, whole.streams) == (True, sum(OWN.values()), len(OWN))
    for name, checked in LINES.items():
        report = family.verify(name)
        assert (report.ok, report.checked, report.streams) == (True, checked, CHECKED_STREAMS[name])


def test_a_parent_that_is_gone_with_all_its_traces_is_missed(family: EventStore, db: psycopg.Connection) -> None:
    with restored(db):
        tamper(
            db,
            f"DELETE FROM events WHERE stream_id = {P}; DELETE FROM streams WHERE stream_id = {P};"
            "DELETE FROM directory WHERE name = 'p'",
        )
        assert_bad(family.verify(), "b", 0, "it branches off None at 4")
        assert_bad(family.verify("m"), "b", 0, "it branches off None at 4")
        assert_bad(family.verify("h"), "h", 0, "it branches off None at 7")
        assert_bad(family.verify("z"), "z", 1, "it says that it branches off")
        assert family.verify("twin").ok
    assert family.verify().ok


def test_a_parent_renamed_all_over_is_still_found(family: EventStore, db: psycopg.Connection) -> None:
    """Its branches' stream.forked names it, and it is part of their hashes."""
    digest = hashing.names_hash("default", "c", "q")
    with restored(db):
        tamper(
            db,
            f"UPDATE streams SET name = 'q', origin = '\\x{digest.hex()}' WHERE stream_id = {P};"
            "UPDATE directory SET name = 'q' WHERE name = 'p'",
        )
        assert_bad(family.verify("q"), "q", 1, CHAIN)
        assert_bad(family.verify("z"), "z", 1, "it says that it branches off {'parent': 'p', 'at': 0}")
    assert family.verify().ok


FORGED = [
    "{}",
    "[]",
    "3",
    "null",
    '"p"',
    '{"parent":"p"}',
    '{"at":4}',
    '{"parent":"twin","at":4}',
    '{"parent":"p","at":"4"}',
]
FORGED += ['{"parent":"p","at":4,"owner":"twin"}', '{"parent":"p","at":4,"owner":null}', '{"parent":["p"],"at":4}']


@pytest.mark.parametrize("data", FORGED)
def test_a_forged_stream_forked_with_the_right_hash_is_found(
    family: EventStore, db: psycopg.Connection, data: str
) -> None:
    first = next(e for e in family.conversation("b").events(5))
    secret, metadata = db.execute(
        f"SELECT c.secret, e.metadata::text FROM contexts c JOIN events e USING (context_id)"  # type: ignore[call-overload]
        f" WHERE e.stream_id = {B} AND e.version = 5"
    ).fetchone() or (b"", "")
    content = hashing.content_hash(secret, first.event_id, 1, data.encode(), metadata.encode())
    fields = ("stream.forked", None, None, "agent", None, None, None)
    digest = hashing.event_hash(first.event_id, 1, fields, content)
    tamper(
        db, f"UPDATE events SET (data, hash) = ('{data}', '\\x{digest.hex()}') WHERE stream_id = {B} AND version = 5"
    )
    for report in (family.verify(), family.verify("b"), family.verify("m")):
        assert_bad(report, "b", 5, "it says that it branches off")


def test_a_branch_moved_to_an_equal_version_of_another_stream_is_found(
    family: EventStore, db: psycopg.Connection
) -> None:
    """All that names the parent is changed with it, hash included: only the chain of what is shared tells."""
    first = next(e for e in family.conversation("b").events(5))
    (secret,) = db.execute("SELECT secret FROM contexts").fetchone() or (b"",)
    data = json.dumps({"parent": "twin", "at": 4}, separators=(",", ":"))
    content = hashing.content_hash(secret, first.event_id, 1, data.encode(), b'{"trace":"x"}')
    digest = hashing.event_hash(first.event_id, 1, ("stream.forked", None, None, "agent", None, None, None), content)
    tamper(
        db,
        f"UPDATE streams SET parent_id = {TWIN} WHERE stream_id = {B};"
        f"UPDATE events SET (data, hash) = ('{data}', '\\x{digest.hex()}') WHERE stream_id = {B} AND version = 5",
    )
    assert_bad(family.verify("b"), "b", 5, CHAIN)
    assert_bad(family.verify(), "b", 5, CHAIN)


def test_a_circle_of_parents_ends(family: EventStore, db: psycopg.Connection) -> None:
    db.execute(f"UPDATE streams SET parent_id = {M}, fork_at = 7 WHERE stream_id = {B}".encode())
    db.execute(f"UPDATE streams SET parent_id = {B} WHERE stream_id = {M}".encode())
    for name in "bm":
        chat = family.conversation(name)
        assert not family.verify(name).ok
        assert len(list(chat.events())) < 10
        assert len(chat.lineage()) <= 2
        assert chat.family() is not None
    assert not family.verify().ok


@pytest.mark.parametrize("at", [2, 4, None, 0])
@pytest.mark.parametrize("page", [1, 2, 6])
def test_a_fork_made_while_verify_runs_is_checked_too(
    family: EventStore, monkeypatch: pytest.MonkeyPatch, at: int | None, page: int
) -> None:
    """After its parent was checked, so what it starts from was not kept."""
    monkeypatch.setattr("eventstore.log.verify.PAGE", page)
    made: list[Any] = []

    def fork(stream: str, checked: int) -> None:
        if stream == "h" and not made:
            chat = family.conversation("p")
            made.append(chat.fork("meanwhile", at=at))
            made[0].append([1])
            chat.append(["more"])
            made[0].fork("of meanwhile").append([2])

    report = family.verify(progress=fork)
    assert len(made) == 1
    assert report.ok, report.first_bad
    assert (report.checked, report.streams) == (sum(OWN.values()) + 4, len(OWN) + 2)


def test_a_fork_made_while_verify_runs_of_what_was_changed_meanwhile_is_found(
    family: EventStore, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventstore.log.verify.PAGE", len(OWN))
    done: list[Any] = []

    def change(stream: str, checked: int) -> None:
        if stream == "h" and not done:
            family.conversation("p").fork("meanwhile", at=4)
            done.append(db.execute(event(P, "data", TEXT, 3).encode()))

    assert_bad(family.verify(progress=change), "p", 3, CONTENT)
