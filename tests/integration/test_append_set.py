"""The server's function for sets of appends: an answer each, the rules of a single append, and no way past them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from contract import Untouched

from eventstore import Event, EventStore

CALL = """SELECT outcome, first_version, last_version, position, actual FROM convstore.append_set(
    %(tenant)s, %(contexts)s::bigint[], %(streams)s::bigint[], %(origins)s::bytea[], %(expected)s::bigint[],
    %(may_repeat)s::boolean[], %(lasts)s::integer[], %(ids)s::uuid[], %(versions)s::smallint[], %(formats)s::smallint[],
    %(types)s::text[], NULL, NULL, NULL, NULL, NULL, NULL, %(datas)s::json[])"""


@pytest.fixture
def streams(store: EventStore, db: psycopg.Connection) -> list[tuple[int, int, bytes]]:
    """Ids and digests of eight streams with one event each; the last is closed."""
    for n in range(8):
        store.conversation(f"s{n}").append([f"before {n}"])
    store.conversation("s7").append_events([Event(type="stream.closed", data={})])
    return db.execute("SELECT context_id, stream_id, origin FROM streams ORDER BY 1, 2").fetchall()


def params(places: list[tuple[int, int, bytes]], sizes: list[int], **given: Any) -> dict[str, Any]:
    """Give a set that is right, but for what is ``given``."""
    n = sum(sizes)
    return {
        "tenant": "default",
        "contexts": [place[0] for place in places],
        "streams": [place[1] for place in places],
        "origins": [place[2] for place in places],
        "expected": None,
        "may_repeat": [False] * len(places),
        "lasts": [sum(sizes[: i + 1]) for i in range(len(sizes))],
        "ids": [uuid.uuid4() for _ in range(n)],
        "versions": [1] * n,
        "formats": [1] * n,
        "types": ["x.note"] * n,
        "datas": [str(i) for i in range(n)],
    } | given


def test_each_append_of_a_set_has_its_own_answer(
    store: EventStore, db: psycopg.Connection, streams: list[tuple[int, int, bytes]]
) -> None:
    known = store.conversation("s1").append([1, 2], key="k")
    ids = [uuid.uuid4() for _ in range(10)]
    ids[1:3] = known.event_ids  # an exact repeat
    ids[3:5] = store.conversation("s2").append([1, 2], key="k").event_ids  # and one that changed
    datas = ["0", "1", "2", "1", "9", *map(str, range(5, 10))]
    places = [*streams[:6], (streams[6][0], streams[6][1], b"another's"), streams[7]]
    given = params(
        places,
        [1, 2, 2, 1, 1, 1, 1, 1],
        ids=ids,
        datas=datas,
        types=["item.appended"] * 10,
        may_repeat=[True] * 8,
        expected=[1, 99, 99, 7, -1, None, None, None],
    )
    drawn = known.position + 2
    assert db.execute(CALL, given).fetchall() == [
        ("appended", 2, 2, drawn + 1, None),
        ("repeated", known.first_version, known.last_version, known.position, 3),
        ("idempotency_conflict", 2, 3, drawn, 3),
        ("version_conflict", None, None, None, 1),
        ("appended", 2, 2, drawn + 2, None),
        ("appended", 2, 2, drawn + 3, None),
        ("skipped", None, None, None, None),
        ("closed", None, None, None, 2),
    ]
    assert [store.conversation(f"s{n}").head() for n in range(8)] == [2, 3, 3, 1, 2, 2, 1, 2]
    assert store.conversation("s6").append([1]).position == drawn + 4
    assert store.verify().ok


def test_appends_of_several_events_are_whole_and_in_order(
    store: EventStore, db: psycopg.Connection, streams: list[tuple[int, int, bytes]]
) -> None:
    for _ in range(3):
        db.execute(CALL, params(streams[:5], [3, 1, 4, 1, 5]))
    for n, size in enumerate([3, 1, 4, 1, 5]):
        events = list(store.conversation(f"s{n}").events(2))
        offset = sum([3, 1, 4, 1, 5][:n])
        assert [e.data for e in events] == list(range(offset, offset + size)) * 3
        positions = [e.position for e in events]
        assert positions == sorted(positions)
        assert len({e.recorded_at for e in events}) == 3
    assert store.verify().ok


def _bad(places: list[tuple[int, int, bytes]]) -> dict[str, dict[str, Any]]:
    two = places[:2]
    marks = ["history.compacted", "items.retracted", "history.cleared", "stream.closed", "stream.forked"]
    return {
        "one stream twice": params([places[0], places[0]], [1, 1]),
        "descending": params([places[1], places[0]], [1, 1]),
        "no appends": params([], []),
        "an append without events": params(two, [2, 0]),
        "a first append without events": params(two, [0, 2]),
        "more events than the appends have": params(two, [1, 1], lasts=[1, 1]),
        "fewer events than the appends have": params(two, [1, 1], lasts=[1, 3]),
        "a null among the lasts": params(two, [1, 1], lasts=[None, 2]),
        "a null among the ids": params(two, [1, 1], contexts=[None, two[1][0]]),
        "fewer types": params(two, [1, 1], types=["x.a"]),
        "fewer origins": params(two, [1, 1], origins=[two[0][2]]),
        **{kind: params(two, [1, 1], types=["x.a", kind]) for kind in marks},
    }


def test_a_set_that_could_break_a_rule_is_refused_whole(
    db: psycopg.Connection, streams: list[tuple[int, int, bytes]]
) -> None:
    for what, given in _bad(streams).items():
        with Untouched(db), pytest.raises(psycopg.Error) as caught:
            pytest.fail(f"{what}: {db.execute(CALL, given).fetchall()}")
        assert caught.value.sqlstate == "22023", (what, caught.value)


def test_synchronous_commit_off_is_refused(db: psycopg.Connection, streams: list[tuple[int, int, bytes]]) -> None:
    db.execute("SET synchronous_commit = off")
    with pytest.raises(psycopg.Error) as caught:
        db.execute(CALL, params(streams[:2], [1, 1]))
    assert caught.value.sqlstate == "CV002"


def test_ids_of_another_tenant_append_nothing(
    make_login: Callable[..., str], filled: EventStore, db: psycopg.Connection
) -> None:
    places = db.execute(
        "SELECT context_id, stream_id, origin FROM streams JOIN tenants t USING (tenant_id) WHERE t.name = 'rival'"
    ).fetchall()
    assert places
    with psycopg.connect(make_login("writer", "acme"), autocommit=True) as conn:
        for may_repeat in (False, True):
            given = params(places, [1] * len(places), tenant="acme", may_repeat=[may_repeat] * len(places))
            assert {row[0] for row in conn.execute(CALL, given)} == {"skipped"}
            with pytest.raises(psycopg.Error) as caught:
                conn.execute(CALL, given | {"tenant": "rival"})
            assert caught.value.sqlstate == "CV001"


def test_a_set_in_a_transaction_of_the_caller_goes_with_it(
    store: EventStore, db: psycopg.Connection, streams: list[tuple[int, int, bytes]]
) -> None:
    for ends, head in (("ROLLBACK", 1), ("COMMIT", 3)):
        db.execute("BEGIN")
        for _ in range(2):
            assert {row[0] for row in db.execute(CALL, params(streams[:3], [1, 1, 1]))} == {"appended"}
        db.execute(ends)
        assert [store.conversation(f"s{n}").head() for n in range(3)] == [head] * 3
    assert store.verify().ok


def test_the_feed_stops_below_a_set_in_flight(
    store: EventStore, url: str, db: psycopg.Connection, streams: list[tuple[int, int, bytes]]
) -> None:
    start = store.feed().cursor
    with psycopg.connect(url) as conn:
        for _ in range(3):
            conn.execute(CALL, params(streams[:3], [1, 2, 1]))
        stamps = db.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = %s", [conn.info.backend_pid]
        )
        assert stamps.fetchall() <= [(2,)]
        store.conversation("s4").append(["later"])
        assert store.feed(start).events == []
        conn.commit()
    seen = [(event.stream, event.version) for event in store.feed(start).events]
    assert len(seen) == 13
    assert seen[-1] == ("s4", 2)
    for name, n in (("s0", 3), ("s1", 6), ("s2", 3)):
        assert [version for stream, version in seen if stream == name] == list(range(2, 2 + n))
