"""Random sequences of appends, batches, deaths, poison, replays, rebuilds against a model; and readers of a switch."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from ledger import Ledger, Ledger2, chained, view
from psycopg import errors as pg

from eventstore import EventStore, RecordedEvent


class Died(BaseException):
    """As if the process had ended there."""


class Mortal(Ledger):
    """Dies in some batches, and can't apply some positions."""

    def __init__(self) -> None:
        self.poison: set[int] = set()
        self.dies_in = 0

    def apply(self, batch: Sequence[RecordedEvent]) -> Any:
        for event in batch:
            if event.position in self.poison:
                raise ValueError("poison")
        yield from super().apply(batch)
        if self.dies_in:
            self.dies_in -= 1
            if not self.dies_in:
                raise Died


class Model:
    """What the view has to show: each stream up to its first event that is parked."""

    def __init__(self) -> None:
        self.log: list[RecordedEvent] = []
        self.parked: dict[str, int] = {}  # stream → version from which on it waits

    def view(self) -> dict[tuple[str, str], Any]:
        rows: dict[tuple[str, str], Any] = {}
        for event in self.log:
            if event.version < self.parked.get(event.stream, 2**62):
                key = (event.tenant, event.stream)
                rows[key] = chained(rows.get(key), event)
        return rows

    def deal_with(self, poison: set[int], *, again: bool) -> None:
        if again:
            self.parked.clear()
        for event in self.log:
            if event.position in poison:
                self.parked.setdefault(event.stream, event.version)


@pytest.mark.parametrize("seed", range(6))
def test_random_sequences_equal_the_model(store: EventStore, db: psycopg.Connection, seed: int) -> None:
    pick = random.Random(seed)
    projection, model = Mortal(), Model()
    cursor = None
    seen: defaultdict[str, int] = defaultdict(int)
    for _ in range(40):
        do = pick.choices(["append", "work", "die", "poison", "mend", "replay", "rebuild"], [6, 6, 3, 2, 1, 2, 1])[0]
        seen[do] += 1
        if do in ("append", "poison"):
            chat = store.conversation(f"s{pick.randrange(3)}")
            result = chat.append(list(range(pick.randint(1, 5))))
            if do == "poison":
                projection.poison.add(result.position - pick.randrange(result.last_version - result.first_version + 1))
            page = store.feed(cursor)
            model.log += page.events
            cursor = page.cursor
            continue
        if do == "mend":
            projection.poison.clear()
            continue
        if do == "replay":
            store.projections.replay_parked("ledger", projections=[projection])
            # What waited behind a parked event was applied, or a later one is parked now.
            live = {each.stream: each.version for each in store.projections.parked("ledger")}
            reached = {state.position for state in store.projections.status([projection])}
            dealt = [e for e in model.log if e.position <= max(reached)]
            whole, model.log = model.log, dealt
            model.deal_with(projection.poison, again=True)
            assert model.parked == live
            if view_exists(db):
                assert view(db) == model.view()
            model.log = whole
            continue
        runner = store.projections.runner([projection], limit=pick.choice([1, 3, 1000]), attempts=2, backoff=0.0)
        if do == "rebuild" and view_exists(db):
            store.projections.rebuild(projection, accept_parked=True)
            model.parked.clear()
        if do == "die":
            projection.dies_in = pick.randint(1, 3)
            try:
                runner.run(until_caught_up=True)
            except Died:  # what it parked before stays, also if its cause is mended now
                model.parked |= {each.stream: each.version for each in store.projections.parked("ledger")}
                continue
            finally:
                projection.dies_in = 0
        else:
            runner.run(until_caught_up=True)
        model.deal_with(projection.poison, again=False)
        assert view(db) == model.view()
    projection.poison.clear()
    store.projections.runner([projection], backoff=0.0).run(until_caught_up=True)
    store.projections.replay_parked("ledger", projections=[projection])
    model.parked.clear()
    assert view(db) == model.view()
    assert store.projections.parked() == []


def view_exists(db: psycopg.Connection) -> bool:
    return db.execute("SELECT to_regclass('convstore_views.ledger') IS NOT NULL").fetchone() == (True,)


def versions(n: int) -> list[Ledger]:
    return [type(f"V{v}", (Ledger2,), {"version": v})() for v in range(3, 3 + n)]


@pytest.mark.timeout(300)
def test_no_reader_sees_a_half_built_view_while_it_is_built_again_and_appended_to(
    store: EventStore, url: str, db: psycopg.Connection
) -> None:
    for n in range(300):
        store.conversation(f"s{n % 7}").append([n, n])
    store.projections.runner([Ledger()]).run(until_caught_up=True)
    ends = threading.Event()
    wrong: list[Any] = []
    reads, refused = [0], [0]

    def read(level: psycopg.IsolationLevel) -> None:
        least: dict[Any, int] = {}
        with psycopg.connect(url) as conn:
            conn.isolation_level = level
            while not ends.is_set():
                try:
                    conn.execute("SELECT count(*) FROM convstore.streams").fetchone()
                    shown = view(conn)
                except pg.SerializationFailure:
                    refused[0] += 1
                    conn.rollback()
                    continue
                conn.rollback()
                reads[0] += 1
                for key, seen in least.items():
                    if key not in shown or shown[key][1] < seen:
                        wrong.append((level, key, seen, shown.get(key)))
                least = {key: row[1] for key, row in shown.items()}

    def append() -> None:
        n = 0
        while not ends.is_set():
            store.conversation(f"s{n % 9}").append([n])
            n += 1

    levels = psycopg.IsolationLevel
    threads = [threading.Thread(target=read, args=[level]) for level in (levels.READ_COMMITTED, levels.REPEATABLE_READ)]
    threads.append(threading.Thread(target=append))
    for thread in threads:
        thread.start()
    try:
        for projection in versions(3):
            for again in (False, True):
                if again:
                    store.projections.rebuild(projection)
                (build,) = store.projections.runner([projection], limit=100).run(until_caught_up=True)
                assert build.state == "live"
    finally:
        ends.set()
        for thread in threads:
            thread.join(60)
    assert wrong == []
    assert reads[0] > 20
    store.projections.runner([projection]).run(until_caught_up=True)
    whole: dict[Any, Any] = {}
    for event in store.subscribe(idle=0):
        whole[event.tenant, event.stream] = chained(whole.get((event.tenant, event.stream)), event)
    assert view(db) == whole
