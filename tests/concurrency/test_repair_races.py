"""A repair beside writers, readers and other repairs: whoever comes meanwhile waits, and finds the new incarnation."""

from __future__ import annotations

import psycopg
import pytest
from stepping import Actor, together, until_waits

from eventstore import EventStore
from eventstore.errors import CursorInvalid

JUMP = 1_000_000_000


def test_who_comes_while_it_repairs_waits_and_is_in_the_new_incarnation(
    store: EventStore, url: str, db: psycopg.Connection, a: Actor, b: Actor
) -> None:
    store.conversation("s").append([1])
    cursor = store.feed().cursor
    for actor in (a, b):
        actor.conn.autocommit = True
        actor.append(f"{actor.pid}", ["before"]).result(20)
    with psycopg.connect(url) as repairing:
        row = repairing.execute("SELECT reached FROM convstore.repair_sequences()").fetchone()
        assert row == (3 + JUMP,)
        writing = a.append("s", ["meanwhile"])
        until_waits(db, a)
        reading = b.begins(lambda: b.store.feed(cursor))
        until_waits(db, b)
        repairing.commit()
        assert writing.result(20).position == 4 + JUMP
        with pytest.raises(CursorInvalid, match="another life"):
            reading.result(20)
    assert [event.data for event in store.feed().events] == [1, "before", "before", "meanwhile"]


def test_a_repair_that_is_rolled_back_leaves_everything_as_it_was(
    store: EventStore, url: str, db: psycopg.Connection
) -> None:
    store.conversation("s").append([1])
    cursor = store.feed().cursor
    db.execute("ALTER SEQUENCE position CYCLE CACHE 3; ALTER SEQUENCE contexts_context_id_seq RESTART")
    faults = store.sequence_faults()
    assert len(faults) == 3
    with psycopg.connect(url) as repairing:
        repairing.execute("SELECT convstore.repair_sequences()")
        repairing.rollback()
    assert store.sequence_faults() == faults
    assert store.feed(cursor).events == []


def test_repairs_at_once_beside_writers_leave_one_log(store: EventStore, url: str) -> None:
    store.conversation("s").append([0])

    def write(number: int) -> list[int]:
        mine = store.conversation(f"w{number % 2}")
        return [mine.append([n]).position for n in range(10)]

    reports = together([store.repair_sequence] * 3)
    assert all(not isinstance(report, BaseException) for report in reports), reports
    mixed = together([lambda: write(0), store.repair_sequence, lambda: write(1), store.repair_sequence])
    assert all(not isinstance(each, BaseException) for each in mixed), mixed
    events = store.feed(limit=1_000).events
    assert len(events) == 21
    for name in ("s", "w0", "w1"):
        mine = [event for event in events if event.stream == name]
        assert [event.version for event in mine] == list(range(1, len(mine) + 1))
    assert store.sequence_faults() == []
    assert store.verify().ok
