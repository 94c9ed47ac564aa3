"""Conversations that are changed thousands of times: what that writes, and what is left of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from eventstore import EventStore
from eventstore.log import connection

POPS = 10_000


def wal(db: psycopg.Connection) -> int:
    row = db.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')").fetchone()
    assert row is not None
    return int(row[0])


def test_10_000_pops_write_as_much_in_their_second_half_as_in_their_first(
    store: EventStore, db: psycopg.Connection, url: str
) -> None:
    """Without images of whole pages, which depend on when checkpoints of the server happen."""
    chat = store.conversation("a")
    for first in range(0, POPS, 1_000):
        chat.append(list(range(first, first + 1_000)))
    db.execute("CHECKPOINT")
    halves = []
    for half in range(2):
        db.execute("CHECKPOINT")
        db.execute("ALTER SYSTEM SET full_page_writes = off")
        db.execute("SELECT pg_reload_conf()")
        before = wal(db)
        with psycopg.connect(url) as conn:
            mine = store.using(conn).conversation("a")
            for n in range(POPS // 2):
                assert mine.pop() == POPS - 1 - half * POPS // 2 - n
                if n % 100 == 99:
                    conn.commit()
        halves.append(wal(db) - before)
    db.execute("ALTER SYSTEM RESET full_page_writes")
    db.execute("SELECT pg_reload_conf()")
    assert halves[1] < 1.1 * halves[0], halves
    assert chat.transcript() == []
    sizes = db.execute(
        "SELECT count(*), max(octet_length(ranges::text)), sum(octet_length(ranges::text)) FROM checkpoints"
    )
    count, largest, total = sizes.fetchone() or (0, 0, 0)
    assert POPS // 65 - 1 <= count <= POPS // 64
    assert largest < 150
    assert total < 20_000
    versions = [event.data for event in chat.events(1, POPS)]
    assert versions == list(range(POPS))
    assert store.verify().ok


def items_of(recordings: Path, name: str) -> list[list[Any]]:
    with gzip.open(recordings / name, "rt", encoding="utf-8") as lines:
        return [items for line in lines if (items := json.loads(line).get("items"))]


@pytest.mark.parametrize("basis", ["originals", "summary"])
def test_ten_compactions_in_a_row_lose_no_more_than_one(store: EventStore, recordings: Path, basis: Any) -> None:
    """The summarizer sees the originals each time, byte for byte, however often they were compacted before."""
    chat = store.conversation("a")
    appended: list[Any] = []
    source = [item for items in items_of(recordings, "airline.jsonl.gz") for item in items][:220]
    seen: list[list[Any]] = []

    def compactor(items: list[Any]) -> list[Any]:
        seen.append(items)
        return [{"role": "user", "content": f"{len(items)} items"}]

    for n in range(10):
        batch = source[n * 22 : (n + 1) * 22]
        appended += batch
        chat.append(batch)
        done = chat.compact(compactor, merge=True, basis=basis)
        covered = [e.data for e in chat.events(*done.covers, types=["item.appended"])]
        assert done.depth == (1 if basis == "originals" else n + 1)
        if basis == "originals":
            assert json.dumps(seen[-1]) == json.dumps(covered)  # all of them: no more is lost than by one
        else:
            assert len(seen[-1]) < 50
        assert json.dumps(chat.originals()) == json.dumps(appended)
    assert [c.depth for c in chat.shown().compactions] == [1 if basis == "originals" else 10]
    events = [e.data for e in chat.events(types=["item.appended"])]
    assert json.dumps(events) == json.dumps(appended)
    assert len(chat.transcript()) < 40


@pytest.mark.parametrize("length", [10, 200, 5_000])
def test_a_transcript_takes_at_most_two_round_trips_whatever_the_length(
    store: EventStore, url: str, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    chat = store.conversation("a")
    chat.append(list(range(length)))
    statements = []
    execute = connection._Cursor.execute

    def counted(*args: Any, **named: Any) -> Any:
        statements.append(args)
        return execute(*args, **named)

    monkeypatch.setattr(connection._Cursor, "execute", counted)
    with psycopg.connect(url, autocommit=True) as conn:
        mine = store.using(conn).conversation("a")

        def trips(call: Any) -> int:
            statements.clear()
            call()
            return len(statements)

        assert trips(mine.transcript) == trips(lambda: mine.transcript(limit=5)) == 1
        for change in (mine.pop, lambda: mine.compact(lambda items: [len(items)], keep_last=length // 2), mine.pop):
            change()
            assert trips(mine.transcript) <= 2
            assert 1 <= trips(lambda: mine.transcript(limit=3)) <= 2
            assert trips(mine.originals) <= 2
            assert trips(lambda: mine.transcript(at=length // 2)) == 1
            assert trips(lambda: mine.model_input(limit=3, pair_safe=True)) <= 2
        branch = mine.fork("b")
        assert trips(branch.transcript) == 2
        branch.append([1, 2, 3, 4])
        assert trips(lambda: branch.transcript(limit=3)) == 1
