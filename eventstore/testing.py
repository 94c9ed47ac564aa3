"""A check for projections of your own, for a test with a real database.

def test_refunds(store):
    store.conversation("a").append_events([...])
    check_projection(Refunds(), store)
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from typing import Any, cast

import psycopg
from psycopg import sql

from eventstore.log.events import RecordedEvent
from eventstore.projecting.builds import make_tables, places
from eventstore.projecting.statements import connection, named, run
from eventstore.store import EventStore
from projections.projection import Projection, Rows, Statement, Work, check, place

_EVENT_BY_EVENT = -1  # builds that no worker makes
_OTHERWISE = -2


def check_projection(projection: Projection, store: EventStore, *, rounds: int = 10, seed: int = 0) -> None:
    """Check a projection against the log of a store, in a transaction that is rolled back.

    The rows that it makes event by event are what it is to make however the log is cut into batches, with batches that
    are lost and applied again, and with streams (contexts, or, where ``ordered`` is None, events) that come late, as
    those do that were parked. The same batch on the same rows has to give the same statements.

    Args:
        projection: what to check.
        store: one whose log has events that the projection takes; its login may make tables, and see all tenants.
        rounds: how many ways are tried.
        seed: of the random choices.

    Raises:
        AssertionError: it says which rows differ, or which statement.
    """
    check(projection)
    events = list(store.subscribe(types=projection.types, idle=0, all_tenants=True))
    if not events:
        raise AssertionError(f"the log has no event of the types of projection {projection.name!r}")
    pick = random.Random(seed)  # noqa: S311 - for choices that can be repeated
    with connection(store.connections) as conn, conn.transaction(force_rollback=True):
        make_tables(conn, projection, _EVENT_BY_EVENT)
        for event in events:
            _apply(conn, projection, [event], _EVENT_BY_EVENT)
        wanted = _rows(conn, projection, _EVENT_BY_EVENT)
        for n in range(rounds):
            with conn.transaction(force_rollback=True):
                make_tables(conn, projection, _OTHERWISE)
                given = events if n % 2 else list(_late(projection, events, pick))
                for batch in _cut(given, pick):
                    while pick.random() < 0.2:  # a worker that dies before its commit
                        with conn.transaction(force_rollback=True):
                            _apply(conn, projection, batch[: pick.randint(1, len(batch))], _OTHERWISE)
                    _apply(conn, projection, batch, _OTHERWISE)
                _compare(wanted, _rows(conn, projection, _OTHERWISE), f"round {n}, seed {seed}")


def _apply(conn: psycopg.Connection[Any], projection: Projection, batch: Sequence[RecordedEvent], build: int) -> None:
    """Apply a batch, and say where it would not do the same again."""
    tables = places(projection.tables, build)
    first, again = _steps(projection.apply(batch)), _steps(projection.apply(batch))
    rows: Rows | None = None
    while True:
        statement, other = _next(first, rows), _next(again, rows)
        if statement != other:
            raise AssertionError(f"apply gave {statement} for a batch, and {other} for the same again")
        if statement is None:
            return
        rows = run(conn, named(statement.sql, tables), statement.params)


def _steps(work: Work) -> Generator[Statement, Rows | None, None]:
    steps: Any = work if isinstance(work, Generator) else (statement for statement in work)
    return cast("Generator[Statement, Rows | None, None]", steps)


def _next(steps: Generator[Statement, Rows | None, None], rows: Rows | None) -> Statement | None:
    try:
        return steps.send(rows)
    except StopIteration:
        return None


def _cut(events: Sequence[RecordedEvent], pick: random.Random) -> Iterator[Sequence[RecordedEvent]]:
    at = 0
    while at < len(events):
        size = pick.choice([1, 2, 3, 10, 100, len(events)])
        yield events[at : at + size]
        at += size


def _late(projection: Projection, events: Sequence[RecordedEvent], pick: random.Random) -> Iterator[RecordedEvent]:
    """Mix the order of what may come in any."""
    queues: defaultdict[Any, list[RecordedEvent]] = defaultdict(list)
    for event in events:
        queues[place(projection, event) or event.position].append(event)
    turns = [key for key, queue in queues.items() for _ in queue]
    pick.shuffle(turns)
    for key in turns:
        yield queues[key].pop(0)


def _rows(conn: psycopg.Connection[Any], projection: Projection, build: int) -> dict[str, list[str]]:
    rows = {}
    for table, relation in places(projection.tables, build).items():
        query = sql.SQL("SELECT t::text FROM {} t ORDER BY 1").format(sql.SQL(relation))
        rows[table] = [row[0] for row in conn.execute(query)]
    return rows


def _compare(wanted: dict[str, list[str]], found: dict[str, list[str]], when: str) -> None:
    for table, rows in wanted.items():
        missing, more = sorted(set(rows) - set(found[table])), sorted(set(found[table]) - set(rows))
        if missing or more:
            text = f"{when}: table {table!r} differs from what it is event by event"
            raise AssertionError(f"{text}: {missing[:3]} against {more[:3]}")
