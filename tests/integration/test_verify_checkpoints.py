"""Checkpoints that are not what their events come to: ``verify`` finds them, and no reader falls over them."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from eventstore import EventStore
from eventstore.conversation import checkpoints, control
from eventstore.errors import EventUndecodable
from projections.transcript import Ranges

GOOD = list(range(15))


@pytest.fixture
def chat(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Twenty items and five pops, with checkpoints at 22 and 24; a branch from between with one of its own."""
    monkeypatch.setattr(control, "CHECKPOINT_EVERY", 2)
    monkeypatch.setattr(checkpoints, "PAGE", 2)
    chat = store.conversation("s")
    chat.append(list(range(20)))
    for _ in range(5):
        chat.pop()
    branch = chat.fork("branch", at=23)
    for _ in range(4):
        branch.pop()
    store.conversation("apart").append([1])
    assert store.verify().ok
    assert store.verify("branch").ok
    return chat


FORGED = {
    "others' kept": Ranges(kept=((1, 3), (25, sys.maxsize)), control=24).dumps(),
    "another control": Ranges(kept=((1, 15), (25, sys.maxsize)), control=22).dumps(),
    "control beyond all": Ranges(control=10**12).dumps(),
    "control is text": Ranges(control=24).dumps() | {"control": "24"},
    "kept is no list": Ranges(control=24).dumps() | {"kept": 7},
    "kept is text": Ranges(control=24).dumps() | {"kept": ["a"]},
    "kept runs backwards": Ranges(control=24).dumps() | {"kept": [10, -5, 3]},
    "kept ends": Ranges(control=24).dumps() | {"kept": [1, 3]},
    "kept is empty": Ranges(control=24).dumps() | {"kept": []},
    "kept of halves": Ranges(control=24).dumps() | {"kept": [1.5]},
    "compactions of three": Ranges(control=24).dumps() | {"compactions": [[1, 2, 3]]},
    "a compaction from later": Ranges(control=24).dumps() | {"compactions": [[900, 1, 2, 1, 0]]},
    "a huge step": Ranges(control=24).dumps() | {"kept": [10**30]},
    "another format": {"format": 99},
    "null": None,
    "deep": "DEEP",
    "more digits than Python converts": "DIGITS",
    "beyond a float": "FLOAT",
}
RAW = {"DEEP": "[" * 3000 + "]" * 3000, "DIGITS": "1" * 5000, "FLOAT": "1e999"}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_checkpoint_is_found_and_no_reader_falls_over_it(
    chat: Any, store: EventStore, db: psycopg.Connection, name: str
) -> None:
    forged = FORGED[name]
    text = RAW.get(forged) if isinstance(forged, str) else None
    db.execute("UPDATE checkpoints SET ranges = %s::json WHERE version = 24", [text or json.dumps(forged)])
    for report in (store.verify(), store.verify("s")):
        assert report.first_bad is not None
        assert report.first_bad[:2] == ("s", 24)
        assert "checkpoint" in report.first_bad.reason
    assert store.verify("apart").ok
    if name != "others' kept":  # what can't be right is folded anew
        assert chat.transcript() == GOOD
        assert chat.pop() == GOOD[-1]
        assert chat.transcript(limit=2) == GOOD[-3:-1]


def test_a_checkpoint_of_no_control_event_or_of_no_stream_is_found(
    chat: Any, store: EventStore, db: psycopg.Connection
) -> None:
    def insert(stream_id: str, version: int) -> None:
        db.execute(
            "INSERT INTO checkpoints SELECT context_id, " + stream_id + ", %s, tenant_id, ranges"
            " FROM checkpoints JOIN streams s USING (context_id, stream_id, tenant_id) WHERE s.name = 's' LIMIT 1",
            [version],
        )

    insert("stream_id", 5)
    bad = store.verify().first_bad
    assert bad is not None
    assert bad[:2] == ("s", 5)
    db.execute("DELETE FROM checkpoints WHERE version = 5")
    assert store.verify().ok
    insert("stream_id + 1000", 22)
    bad = store.verify().first_bad
    assert bad is not None
    assert bad.stream.startswith("#")


def test_a_branchs_own_checkpoint_and_its_ancestors_are_checked(
    chat: Any, store: EventStore, db: psycopg.Connection
) -> None:
    own = db.execute(
        "SELECT max(version) FROM checkpoints JOIN streams s USING (stream_id) WHERE s.name = 'branch'"
    ).fetchone()
    assert own is not None
    wrong = json.dumps(Ranges(control=own[0]).dumps())
    db.execute("UPDATE checkpoints SET ranges = %s WHERE version = %s AND stream_id <> 1", [wrong, own[0]])
    assert store.verify("s").ok
    bad = store.verify("branch").first_bad
    assert bad is not None
    assert bad[:2] == ("branch", own[0])


# --- what a login that may append can do past the client ---


def append_control(conn: psycopg.Connection, tenant: str, stream: str, kind: str, data: str, **given: Any) -> Any:
    """Call the function itself, with whatever is given."""
    named = {"control": 0, "ranges": None, "ids": [uuid.uuid4()]} | given
    return conn.execute(
        "SELECT outcome, actual FROM convstore.append_control(%s, %s::json, %s, %s, NULL, false, %s::uuid[], '{1}',"
        " '{1}', %s, NULL, NULL, NULL, NULL, NULL, NULL, NULL, %s::json[])",
        [named["control"], named["ranges"], tenant, stream, named["ids"], [kind], [data]],
    ).fetchone()


ODD = [
    ("history.cleared", "1"),
    ("history.cleared", '{"reason": 1e999}'),
    ("items.retracted", '"all"'),
    ("items.retracted", '{"ranges": [[1, "x"]], "control": 0}'),
    ("items.retracted", '{"ranges": [[9, 2]], "control": 0}'),
    ("history.compacted", '{"covers": [1, 99999999999999999999999], "items": 1}'),
    ("history.compacted", "null"),
]


@pytest.mark.parametrize(("kind", "data"), ODD)
def test_a_control_event_that_the_catalogue_does_not_admit_changes_nothing(
    store: EventStore, make_login: Callable[..., str], kind: str, data: str
) -> None:
    chat = store.conversation("s")
    chat.append([1, 2, 3])
    with psycopg.connect(make_login("writer", store.tenant), autocommit=True) as conn:
        assert append_control(conn, store.tenant, "s", kind, data) == ("appended", None)
    assert chat.transcript() == chat.originals() == [1, 2, 3]
    assert chat.transcript(at=4) == [1, 2, 3]
    assert chat.pop() == 3
    assert chat.compact(lambda items: [f"of {items}"]) is not None
    assert chat.transcript() == ["of [1, 2]"]
    assert store.verify().ok


def test_append_control_refuses_another_control_a_foreign_tenant_and_an_unknown_stream(
    store: EventStore, make_login: Callable[..., str], db: psycopg.Connection
) -> None:
    store.conversation("s").append([1])
    store.for_tenant("rival").conversation("s").append([1])
    with psycopg.connect(make_login("writer", store.tenant), autocommit=True) as conn:
        for wrong in (1, 7, -1):
            answer = append_control(conn, store.tenant, "s", "history.cleared", "{}", control=wrong, ranges="[]")
            assert answer == ("control_conflict", 0)
        assert append_control(conn, store.tenant, "nosuch", "history.cleared", "{}") == ("no_stream", None)
        with pytest.raises(psycopg.DatabaseError, match="not bound to tenant"):
            append_control(conn, "rival", "s", "history.cleared", "{}")
    assert db.execute("SELECT count(*) FROM checkpoints").fetchone() == (0,)
    assert store.for_tenant("rival").conversation("s").transcript() == [1]


def test_a_bogus_checkpoint_by_a_writer_stops_nobody_and_shows(
    store: EventStore, make_login: Callable[..., str]
) -> None:
    chat = store.conversation("s")
    chat.append([1, 2, 3])
    chat.clear()
    chat.append([4])
    with psycopg.connect(make_login("writer", store.tenant), autocommit=True) as conn:
        answer = append_control(conn, store.tenant, "s", "history.cleared", "{}", control=4, ranges='{"control": [4]}')
        assert answer[0] == "appended"
    chat.append([5])
    assert (chat.transcript(), chat.transcript(at=5)) == ([5], [4])
    bad = store.verify().first_bad
    assert bad is not None
    assert bad[:2] == ("s", 4)


@pytest.mark.parametrize(
    "arrays",
    [
        ([], [], []),
        (None, None, None),
        ([5, None], [1, 3], ["item.appended", None]),
        ([-(2**62)], [2**63 - 1], ["item.appended"]),
        ([1, 1, 1], [3], ["item.appended"]),
        ([1], [3], ["no.such"]),
    ],
)
def test_ranges_of_nonsense_give_items_of_the_stream_or_nothing(
    store: EventStore, make_login: Callable[..., str], arrays: Any
) -> None:
    store.conversation("s").append([1, 2, 3])
    store.for_tenant("rival").conversation("s").append(["secret"])
    with psycopg.connect(make_login("reader", store.tenant), autocommit=True) as conn:
        query = "SELECT data FROM convstore.read_ranges(%s, %s, %s::bigint[], %s::bigint[], %s::text[], 5)"
        for stream in ("s", "nosuch"):
            rows = conn.execute(query, [store.tenant, stream, *arrays]).fetchall()
            assert {row[0] for row in rows} <= {1, 2, 3}
        with pytest.raises(psycopg.DatabaseError, match="not bound to tenant"):
            conn.execute(query, ["rival", "s", *arrays])


@pytest.mark.parametrize("limit", [None, 3])
def test_an_item_that_nobody_can_decode_is_named(store: EventStore, db: psycopg.Connection, limit: int | None) -> None:
    chat = store.conversation("s")
    chat.append([1, 2, 3])
    append_control(db, store.tenant, "s", "item.appended", "1e999")
    for _ in range(2):
        with pytest.raises(EventUndecodable, match=r"version 4 of stream 's'"):
            chat.transcript(limit=limit)
        assert chat.transcript(at=3) == [1, 2, 3]
        append_control(db, store.tenant, "s", "history.compacted", "0")  # then it is read by the ranges
    chat.retract(versions=[(4, 4)])
    assert chat.transcript(limit=limit) == [1, 2, 3]
