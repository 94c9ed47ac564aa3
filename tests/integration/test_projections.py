"""Projections: each event once, what is shown and to whom, what can't be taken, and the switch to another build."""

from __future__ import annotations

import asyncio
import os
import random
import re
import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from ledger import LEDGER, Ledger, Ledger2, fold, view
from psycopg import errors as pg
from test_undecodable import write

from eventstore import AsyncEventStore, Event, EventStore, RecordedEvent, errors
from eventstore.projecting import Projection, Statement
from eventstore.testing import check_projection

POISON = {"poison": True}


def run(store: EventStore, *projections: Projection, **options: Any) -> list[Any]:
    options = {"backoff": 0.0, **options}
    return store.projections.runner(projections or [LEDGER], **options).run(until_caught_up=True)


def fill(store: EventStore, appends: int = 60, *, seed: int = 1, tenants: Sequence[str] = ("acme", "rival")) -> None:
    pick = random.Random(seed)
    for n in range(appends):
        chat = store.for_tenant(pick.choice(tenants)).conversation(f"s{pick.randrange(5)}")
        chat.append([{"n": n, "part": part} for part in range(pick.randint(1, 4))])


def parked(store: EventStore) -> list[tuple[int, int, int]]:
    return [(each.position, each.held, each.attempts) for each in store.projections.parked("ledger")]


# --- each event once, and how far it is ---


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_the_view_is_the_fold_of_the_log_whatever_the_batches(
    store: EventStore, db: psycopg.Connection, limit: int
) -> None:
    for seed in range(3):
        fill(store, 30, seed=seed)
        (build,) = run(store, limit=limit)
        assert view(db) == fold(store)
        assert build.applied == db.execute("SELECT count(*) FROM events").fetchone()[0]  # type: ignore[index]


def test_a_batch_is_no_larger_than_asked_for(store: EventStore) -> None:
    sizes: list[int] = []

    class Sizes(Ledger):
        def apply(self, batch: Sequence[RecordedEvent]) -> Any:
            sizes.append(len(batch))
            return super().apply(batch)

    store.conversation("a").append([{"n": n} for n in range(100)])
    run(store, Sizes(), limit=7)
    assert max(sizes) == 7
    assert sum(sizes) == 100
    sizes.clear()
    store.conversation("a").append([os.urandom(150_000).hex() for _ in range(10)])
    run(store, Sizes(), limit=1000)
    assert max(sizes) <= 4, "more than a page of the feed in memory"
    assert sum(sizes) == 10


def test_a_projection_of_some_types_is_at_the_end_of_the_log_too(store: EventStore, db: psycopg.Connection) -> None:
    class Some(Ledger):
        types = ("x.some",)

    chat = store.conversation("a")
    chat.append_events([Event(type="x.some", data=1)])
    last = chat.append([1, 2, 3])
    (build,) = run(store, Some())
    assert (build.position, build.applied) == (last.position, 1)
    assert [row[:2] for row in view(db).values()] == [(1, 1)]


def test_on_an_empty_log_there_is_an_empty_view(store: EventStore, db: psycopg.Connection) -> None:
    run(store)
    assert view(db) == {}


def test_who_waits_for_a_projection_sees_what_it_wrote(store: EventStore, db: psycopg.Connection) -> None:
    runner = store.projections.runner([LEDGER])
    worker = threading.Thread(target=runner.run)
    worker.start()
    try:
        for n in range(20):
            result = store.conversation("a").append([n, n])
            store.wait_for("ledger", result.position, timeout=30)
            assert view(db)["default", "a"][1] >= result.last_version
    finally:
        runner.stop()
        worker.join(30)
    assert not worker.is_alive()


def test_waiting_ends_with_the_reason(store: EventStore) -> None:
    result = store.conversation("a").append([1])
    with pytest.raises(errors.ProjectionBehind, match=r"'ledger' is at position 0, not yet at 1: nobody has run it"):
        store.wait_for("ledger", result.position, timeout=0)
    run(store)
    store.wait_for("ledger", result.position, timeout=0)
    with pytest.raises(TimeoutError, match=r"0\.01 s have passed"):
        store.wait_for("ledger", result.position + 1, timeout=0.01)
    for bad in (-1, "1", True):
        with pytest.raises(errors.InvalidItem, match="position"):
            store.wait_for("ledger", bad)  # type: ignore[arg-type]


def test_the_async_store_does_the_same(url: str, store: EventStore, db: psycopg.Connection) -> None:
    fill(store)

    async def work() -> None:
        async with AsyncEventStore.open(url) as other:
            runner = other.projections.runner([LEDGER], limit=5)
            task = asyncio.create_task(runner.run())
            result = await other.conversation("own").append([1])
            await other.wait_for("ledger", result.position, timeout=30)
            runner.stop()
            await task
            (state,) = [s for s in await other.projections.status([LEDGER]) if s.name == "ledger"]
            assert (state.lag, state.state) == (0, "live")

    asyncio.run(work())
    assert view(db) == fold(store)


def test_a_worker_ends_with_its_store(url: str, store: EventStore) -> None:
    other = EventStore.open(url)
    worker = threading.Thread(target=other.projections.runner([LEDGER]).run)
    worker.start()
    store.wait_for("ledger", store.conversation("a").append([1]).position, timeout=30)
    other.close()
    worker.join(30)
    assert not worker.is_alive()


def test_the_lag_counts_what_is_behind(store: EventStore) -> None:
    store.conversation("a").append([1, 2])
    (state,) = store.projections.status([LEDGER])
    assert (state.state, state.lag, state.position) == ("new", 2, 0)
    run(store)
    store.conversation("a").append([1, 2, 3])
    (state,) = store.projections.status([LEDGER])
    assert (state.state, state.lag, state.position, state.applied) == ("live", 3, 2, 2)
    shown = store.telemetry.registry.get_sample_value
    seen: list[tuple[float | None, float | None]] = []
    runner = store.projections.runner([LEDGER], limit=1)
    gauges = ("convstore_feed_lag_events", "convstore_feed_lag_seconds")
    reader = {"reader": "projection:ledger"}
    runner.run(until_caught_up=True, progress=lambda *_: seen.append(tuple(shown(g, reader) for g in gauges)))  # type: ignore[arg-type]
    assert seen[0][0] == 2, "not what is behind the first batch"
    assert seen[0][1] > 0  # type: ignore[operator]
    runner.run(until_caught_up=True)
    assert tuple(shown(gauge, reader) for gauge in gauges) == (0, 0)
    store.conversation("a").append([1, 2, 3])
    (state,) = store.projections.status([LEDGER])
    assert state.lag_seconds is not None
    assert state.lag_seconds > 0


# --- who sees what ---


def test_rows_show_by_tenant_and_a_projector_needs_no_more_than_its_role(
    store: EventStore, db: psycopg.Connection, make_login: Callable[..., str]
) -> None:
    fill(store)
    projectors = [make_login("projector", None), make_login("projector", None)]
    for login in projectors:
        with EventStore.open(login) as worker:
            run(worker)
            run(worker, *store_models())
            fill(store, 5)
    with EventStore.open(projectors[0]) as worker:  # tables that the other made too
        worker.projections.rebuild(LEDGER)
        run(worker)
        assert worker.projections.parked() == []
    everything = fold(store)
    for role in ("reader", "auditor"):
        with psycopg.connect(make_login(role, "acme")) as conn:
            assert view(conn) == {}
            conn.execute("SET convstore.tenant = 'acme'")
            assert view(conn) == {key: row for key, row in everything.items() if key[0] == "acme"}
            assert conn.execute("SELECT DISTINCT tenant FROM convstore_views.conversations").fetchall() == [("acme",)]
            conn.execute("SET convstore.tenant = 'rival'")
            assert view(conn) == {}
            with pytest.raises(pg.InsufficientPrivilege):
                conn.execute(f"DELETE FROM convstore_builds.{tables(db)[-1]}")
    with psycopg.connect(make_login("writer", "acme")) as conn, pytest.raises(pg.InsufficientPrivilege):
        view(conn)


def store_models() -> list[Projection]:
    from projections.models import SHIPPED

    return list(SHIPPED)


def test_a_login_that_may_not_run_projections_is_told_which_role_it_lacks(
    store: EventStore, make_login: Callable[..., str]
) -> None:
    with EventStore.open(make_login("reader", None)) as reader, pytest.raises(errors.NotPermitted, match="projector"):
        run(reader)
    with EventStore.open(make_login("projector", "acme")) as bound, pytest.raises(errors.TenantRequired):
        run(bound)
    with EventStore.open(make_login("writer", "default")) as writer:
        run(store)
        writer.wait_for("ledger", writer.conversation("a").append([1]).position - 1, timeout=0)


# --- what can't be taken ---


def test_a_poison_event_is_parked_the_rest_goes_on_and_replaying_it_gives_the_right_view(
    store: EventStore, db: psycopg.Connection
) -> None:
    fill(store, 20)
    chat = store.for_tenant("acme").conversation("bad")
    chat.append([1])
    poison = chat.append([POISON]).position
    behind = [chat.append([n, n]).position for n in range(3)]
    fill(store, 20, seed=2)
    (build,) = run(store, limit=9)
    (row,) = store.projections.parked("ledger")
    assert (row.position, row.stream, row.version, row.held) == (poison, "bad", 2, 6)
    assert row.error == f"ValueError: poison at {poison}"
    held = [position for p in behind for position in (p - 1, p)]
    assert view(db) == fold(store, without=[poison, *held]), "the rest did not go on, or went past it in its stream"
    assert build.parked == 1
    chat.append([9])
    run(store, limit=9)
    assert parked(store) == [(poison, 7, 1)]

    (again,) = store.projections.replay_parked("ledger", projections=[LEDGER])
    assert (again.applied, again.error) == (0, f"poison at {poison}")
    assert parked(store) == [(poison, 7, 2)]

    mended = Ledger()
    mended.mended = True
    (again,) = store.projections.replay_parked("ledger", projections=[mended])
    assert (again.applied, again.error) == (8, None)
    assert parked(store) == []
    assert view(db) == fold(store)
    assert store.projections.replay_parked("ledger", projections=[mended]) == []
    chat.append([10])
    (build,) = run(store, mended)
    assert view(db) == fold(store)
    assert build.parked == 0


def test_a_second_poison_behind_the_first_is_parked_in_its_turn(store: EventStore, db: psycopg.Connection) -> None:
    chat = store.conversation("bad")
    first = chat.append([1, POISON]).position
    second = chat.append([2, {"poison": True, "n": 2}]).position
    chat.append([3])
    run(store)
    assert parked(store) == [(first, 3, 1)]

    class First(Ledger):
        def apply(self, batch: Sequence[RecordedEvent]) -> Any:
            if any(event.position == second for event in batch):
                raise KeyError("second")
            self.mended = True
            return super().apply(batch)

    (done,) = store.projections.replay_parked("ledger", projections=[First()])
    assert (done.applied, done.error) == (2, "'second'")
    assert parked(store) == [(second, 1, 1)]
    assert view(db) == fold(store, without=[second, second + 1])


def test_where_the_order_counts_in_a_context_its_other_streams_wait_too(
    store: EventStore, db: psycopg.Connection
) -> None:
    class Contexts(Ledger):
        ordered = "context"

    a, b = (store.conversation(name, context="ctx") for name in "ab")
    other = store.conversation("other")
    first = [chat.append([1]).position for chat in (a, b, other)]
    poison = a.append([POISON]).position
    waits = [b.append([2]).position, a.append([3]).position]
    other.append([4])
    run(store, Contexts(), limit=2)
    assert parked(store) == [(poison, 2, 1)]
    assert view(db) == fold(store, without=[poison, *waits])
    assert first[1] in (event.position for event in store.feed().events if event.stream == "b")
    mended = Contexts()
    mended.mended = True
    (done,) = store.projections.replay_parked("ledger", projections=[mended])
    assert (done.applied, done.error) == (3, None)
    assert view(db) == fold(store)


def test_where_the_order_does_not_count_nothing_waits(store: EventStore, db: psycopg.Connection) -> None:
    class Count(Projection):
        name = "ledger"
        ordered = None
        tables = {"ledger": "tenant text PRIMARY KEY, n bigint"}
        mended = False

        def apply(self, batch: Sequence[RecordedEvent]) -> list[Statement]:
            if not self.mended and POISON in [event.data for event in batch]:
                raise ValueError("poison")
            upsert = "INSERT INTO {ledger} AS l VALUES ($1, $2) ON CONFLICT (tenant) DO UPDATE SET n = l.n + excluded.n"
            return [Statement(upsert, [batch[0].tenant, len(batch)])]

    count = "SELECT n FROM convstore_views.ledger"
    store.conversation("a").append([1, POISON, 2, POISON, 3])
    run(store, Count())
    assert db.execute(count).fetchone() == (3,)
    assert [(held, attempts) for _, held, attempts in parked(store)] == [(0, 1), (0, 1)]
    mended = Count()
    mended.mended = True
    first = store.projections.parked()[0].position
    assert len(store.projections.replay_parked("ledger", first, projections=[mended])) == 1
    assert db.execute(count).fetchone() == (4,)
    assert len(store.projections.replay_parked("ledger", projections=[mended])) == 1
    assert db.execute(count).fetchone() == (5,)


def test_an_event_that_cannot_be_decoded_is_parked_at_once(store: EventStore, db: psycopg.Connection) -> None:
    store.conversation("s").append([1])
    write(db, "default", "item.appended", 1, 1, "1e999", None)
    store.conversation("t").append([2])
    tries = 0

    class Tries(Ledger):
        def apply(self, batch: Sequence[RecordedEvent]) -> Any:
            nonlocal tries
            tries += 1
            return super().apply(batch)

    run(store, Tries())
    assert tries == 2, "before and after it"
    assert store.projections.parked()[0].error.startswith("version 2 of stream 's'")
    assert view(db) == fold(store)
    run(store, *store_models())
    assert db.execute("SELECT stream, items FROM convstore_views.conversations ORDER BY 1").fetchall() == [
        ("s", 1),
        ("t", 1),
    ]


def test_what_passes_is_tried_again_and_nothing_is_parked(store: EventStore, db: psycopg.Connection) -> None:
    tried: list[int] = []

    class Flaky(Ledger):
        left = 2

        def apply(self, batch: Sequence[RecordedEvent]) -> Any:
            tried.append(len(batch))
            if self.left:
                self.left -= 1
                raise ConnectionError("somebody else's server")
            return super().apply(batch)

    fill(store)
    (build,) = run(store, Flaky(), attempts=3)
    assert view(db) == fold(store)
    assert (build.parked, build.failures, build.error) == (0, 0, None)
    assert tried == [build.applied] * 3, "it was cut before it was tried again as it is"


def test_what_the_database_refuses_is_parked_as_what_python_does(store: EventStore, db: psycopg.Connection) -> None:
    class Checked(Projection):
        name = "ledger"
        ordered = None
        tables = {"ledger": "tenant text, n bigint CHECK (n <> 3), PRIMARY KEY (tenant, n)"}

        def apply(self, batch: Sequence[RecordedEvent]) -> Any:
            for event in batch:
                yield Statement("INSERT INTO {ledger} VALUES ($1, $2)", [event.tenant, event.data])

    store.conversation("a").append([1, 2, 3, 2, "x\x00", 4])
    (build,) = run(store, Checked())
    assert db.execute("SELECT n FROM convstore_views.ledger ORDER BY 1").fetchall() == [(1,), (2,), (4,)]
    assert build.parked == 3
    kinds = [each.error.split(":")[0] for each in store.projections.parked()]
    assert kinds[:2] == ["CheckViolation", "UniqueViolation"]


def test_a_worker_that_was_stopped_before_it_ran_does_not_run(store: EventStore) -> None:
    runner = store.projections.runner([LEDGER])
    runner.stop()
    runner.run()


def test_the_servers_faults_are_never_an_events(store: EventStore, db: psycopg.Connection) -> None:
    class Deadlocked(Ledger):
        left = 10

        def apply(self, batch: Sequence[RecordedEvent]) -> Any:
            if self.left:
                self.left -= 1
                yield Statement("DO $$ BEGIN RAISE deadlock_detected; END $$")
            yield from super().apply(batch)

    fill(store)
    (build,) = run(store, Deadlocked(), attempts=1)
    assert build.parked == 0
    assert view(db) == fold(store)


def test_by_policy_it_stops_before_the_event_and_goes_on_when_started_again(
    store: EventStore, db: psycopg.Connection
) -> None:
    class Strict(Ledger):
        on_error = "stop"

    store.conversation("a").append([1, 2])
    poison = store.conversation("b").append([POISON]).position
    store.conversation("c").append([3])
    for _ in range(2):  # not mended yet: a start tries again
        (build,) = run(store, Strict())
        assert (build.stopped, build.position, build.parked) == (True, poison - 1, 0)
        assert f"stopped before position {poison}" in build.error
        assert "mend it" in build.error
    (state,) = store.projections.status([Strict()])
    assert (state.stopped, state.lag) == (True, 2)
    strict = Strict()
    strict.mended = True
    (build,) = run(store, strict)
    assert (build.stopped, build.error, build.state) == (False, None, "live")
    assert view(db) == fold(store)


def test_a_stopped_projection_is_not_waited_for(store: EventStore) -> None:
    class Strict(Ledger):
        on_error = "stop"

    store.conversation("a").append([1])
    run(store, Strict())
    position = store.conversation("a").append([POISON]).position
    run(store, Strict())
    with pytest.raises(errors.ProjectionBehind, match="stopped before position"):
        store.wait_for("ledger", position, timeout=60)


def test_the_cursor_of_another_life_stops_it_and_names_the_way_out(store: EventStore, db: psycopg.Connection) -> None:
    fill(store)
    run(store)
    shown = view(db)
    store.repair_sequence()
    store.conversation("new").append([1])
    (build,) = run(store)
    assert build.stopped
    assert "another life" in build.error
    assert "convstore project rebuild ledger" in build.error
    assert view(db) == shown
    (state,) = store.projections.status([LEDGER])
    assert (state.lag, state.stopped) == (None, True)
    store.projections.rebuild(LEDGER)
    (build,) = run(store)
    assert (build.state, build.stopped) == ("live", False)
    assert view(db) == fold(store)


# --- builds ---


def tables(db: psycopg.Connection) -> list[str]:
    query = "SELECT relname FROM pg_class WHERE relnamespace = 'convstore_builds'::regnamespace AND relkind = 'r'"
    return sorted(name for (name,) in db.execute(query))


def test_a_new_version_takes_the_place_of_the_old_one_with_its_columns(
    store: EventStore, db: psycopg.Connection
) -> None:
    fill(store)
    (old,) = run(store)
    fill(store, 10, seed=3)
    (new,) = run(store, Ledger2())
    assert (old.version, new.version, new.state) == (1, 2, "live")
    assert view(db) == fold(store)
    assert db.execute("SELECT DISTINCT made_by FROM convstore_views.ledger").fetchall() == [(2,)]
    assert tables(db) == [f"ledger_{new.build}"], "what was replaced is still there"
    assert run(store) == [], "an older worker has built it back"
    assert view(db) == fold(store)


def test_the_old_worker_keeps_the_live_build_up_while_the_next_one_grows(
    store: EventStore, db: psycopg.Connection
) -> None:
    fill(store)
    run(store)
    build = store.projections.rebuild(Ledger2())
    assert build.state == "building"
    fill(store, 10, seed=3)
    (live,) = run(store)
    assert (live.version, live.state) == (1, "live")
    assert view(db) == fold(store)


def test_a_view_that_loses_columns_is_made_anew_unless_something_depends_on_it(
    store: EventStore, db: psycopg.Connection
) -> None:
    class Narrow(Ledger):
        version = 3
        views = {"ledger": "SELECT tenant, stream FROM {ledger}", "longest": "SELECT tenant, version FROM {ledger}"}

    fill(store)
    run(store)
    db.execute("CREATE VIEW public.mine AS SELECT * FROM convstore_views.ledger")
    (build,) = [b for b in run(store, Narrow()) if b.version == 3]
    assert build.state == "building"
    assert "public.mine" in build.error or "view mine" in build.error
    assert view(db) == fold(store)
    db.execute("DROP VIEW public.mine")
    (build,) = run(store, Narrow())
    assert (build.state, build.error) == ("live", None)
    assert len(db.execute("SELECT * FROM convstore_views.longest").fetchall()) == len(fold(store))
    run(store, type("Back", (Ledger,), {"version": 4})())
    with pytest.raises(pg.UndefinedTable):
        db.execute("SELECT FROM convstore_views.longest")


def test_a_build_that_parks_more_than_the_live_one_is_not_shown_unasked(
    store: EventStore, db: psycopg.Connection
) -> None:
    mended = Ledger()
    mended.mended = True
    store.conversation("a").append([1, POISON, 2])
    store.conversation("b").append([1])
    run(store, mended)
    store.projections.rebuild(LEDGER)
    builds = {b.state: b for b in run(store)}
    assert "of the events that the live build holds 1 are parked" in builds["building"].error
    assert view(db) == fold(store)
    store.projections.replay_parked("ledger", projections=[mended])
    (build,) = run(store)
    assert build.state == "live"
    store.projections.rebuild(LEDGER, accept_parked=True)
    (build,) = run(store)
    assert (build.state, build.parked) == ("live", 1)
    store.projections.rebuild(LEDGER)
    (build,) = run(store)
    assert (build.state, build.parked) == ("live", 1), "the live one had parked it too"


def test_a_first_build_is_not_shown_before_it_has_caught_up(store: EventStore, db: psycopg.Connection) -> None:
    fill(store)
    seen = []

    def look(build: Any, end: int) -> None:
        there = db.execute("SELECT to_regclass('convstore_views.ledger') IS NOT NULL").fetchone() == (True,)
        seen.append((there, build.position >= end))

    store.projections.runner([LEDGER], limit=10).run(until_caught_up=True, progress=look)
    assert len(seen) > 5
    assert [caught_up for there, caught_up in seen if there and not caught_up] == []
    assert view(db) == fold(store)


def test_a_build_that_the_feed_is_held_back_from_is_not_shown_before_it_is_where_the_live_one_is(
    store: EventStore, url: str, db: psycopg.Connection
) -> None:
    fill(store)
    (live,) = run(store)
    with psycopg.connect(url) as conn:
        store.using(conn).conversation("own").append([1])
        conn.execute("SET LOCAL convstore.stamp = '5'")  # as low as a slow writer's may be, and lower
        store.using(conn).conversation("own").append([2])
        build = store.projections.rebuild(LEDGER)
        runner = store.projections.runner([LEDGER])
        steps: list[int] = []
        worker = threading.Thread(
            target=lambda: runner.run(
                progress=lambda b, _: steps.append(b.position) if b.build == build.build else None
            )
        )
        worker.start()
        try:
            while steps.count(5) < 5:
                worker.join(0.01)
                assert worker.is_alive()
            assert set(steps) == {5}
            assert max(row[1] for row in view(db).values()) > 5, "it shows what is built up to position 5"
            conn.commit()
            until(
                db, worker, "SELECT EXISTS (SELECT FROM projections WHERE build = %s AND state = 'live')", build.build
            )
        finally:
            runner.stop()
            worker.join(30)
    assert live.build != build.build
    run(store)
    assert view(db) == fold(store)


def until(db: psycopg.Connection, worker: threading.Thread, query: str, build: int) -> None:
    while db.execute(query, [build]).fetchone() != (True,):  # type: ignore[call-overload]
        worker.join(0.01)
        assert worker.is_alive()


def test_a_transaction_with_an_older_snapshot_is_refused_and_not_shown_half_a_build(
    store: EventStore, url: str, db: psycopg.Connection
) -> None:
    fill(store)
    run(store)
    with psycopg.connect(url) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.execute("SELECT 1 FROM convstore.events").fetchone()
        store.projections.rebuild(LEDGER)
        run(store)
        with pytest.raises(pg.SerializationFailure, match="switched to another build"):
            view(conn)
        conn.rollback()
        assert view(conn) == fold(store)


def test_readers_in_the_way_put_the_switch_off_and_do_not_end_the_work(
    store: EventStore, url: str, db: psycopg.Connection
) -> None:
    fill(store)
    (old,) = run(store)
    with psycopg.connect(url) as conn:
        before = view(conn)
        store.projections.rebuild(LEDGER)
        runner = store.projections.runner([LEDGER])
        worker = threading.Thread(target=runner.run)
        worker.start()
        try:
            query = "SELECT EXISTS (SELECT FROM projections WHERE error LIKE '%%in the way of the switch')"
            while db.execute(query).fetchone() != (True,):
                worker.join(0.01)
                assert worker.is_alive()
            assert view(conn) == before
            conn.commit()
            query = "SELECT EXISTS (SELECT FROM projections WHERE state = 'live' AND build > %s)"
            while db.execute(query, [old.build]).fetchone() != (True,):
                worker.join(0.01)
                assert worker.is_alive()
        finally:
            runner.stop()
            worker.join(30)
    assert view(db) == fold(store)


# --- what is none ---


class Bare(Projection):
    name = "bare"
    tables = {"bare": "n bigint"}


class Broken(Projection):
    name = "broken"
    tables = {"broken": "tenant text,"}


class Thief(Ledger):
    name = "thief"


@pytest.mark.parametrize(
    ("projection", "error", "text"),
    [
        (Bare(), errors.ProjectionRefused, "table 'bare' has no column tenant"),
        (Broken(), errors.ProjectionRefused, "its tables can't be made: syntax error"),
        (Thief(), errors.ProjectionRefused, "projection 'ledger' has a view 'ledger' already"),
        (type("Bad", (Ledger,), {"name": "No Name"})(), errors.InvalidName, "a-z, 0-9"),
        (type("Bad", (Ledger,), {"version": 0})(), errors.InvalidItem, "Bad.version: 0"),
        (type("Bad", (Ledger,), {"ordered": "log"})(), errors.InvalidItem, "Bad.ordered: 'log'"),
        (type("Bad", (Ledger,), {"on_error": None})(), errors.InvalidItem, "'park', 'stop'"),
        (type("Bad", (Ledger,), {"types": "x.a"})(), errors.InvalidItem, "list of event types"),
        (type("Bad", (Ledger,), {"tables": {}})(), errors.InvalidItem, "is empty"),
        (Ledger, errors.InvalidItem, "no instance of a subclass of Projection"),
    ],
)
def test_what_is_no_projection_is_refused_and_leaves_nothing(
    store: EventStore, db: psycopg.Connection, projection: Any, error: type[Exception], text: str
) -> None:
    run(store)
    before = tables(db), db.execute("SELECT count(*) FROM projections").fetchone()
    with pytest.raises(error, match=text):
        run(store, projection)
    assert (tables(db), db.execute("SELECT count(*) FROM projections").fetchone()) == before


# --- the check ---


class Last(Projection):
    """Wrong where batches are cut otherwise: it keeps how large the last one was."""

    name = "last"
    tables = {"last": "tenant text PRIMARY KEY, n bigint"}

    def apply(self, batch: Sequence[RecordedEvent]) -> list[Statement]:
        upsert = "INSERT INTO {last} VALUES ($1, $2) ON CONFLICT (tenant) DO UPDATE SET n = excluded.n"
        return [Statement(upsert, [batch[0].tenant, len(batch)])]


class Fickle(Ledger):
    def apply(self, batch: Sequence[RecordedEvent]) -> list[Statement]:
        return [Statement("SELECT $1::text", [str(uuid.uuid4())])]


class Unordered(Ledger):
    """Says that any order will do, which is not so."""

    ordered = None


def test_the_check_finds_what_is_wrong_and_leaves_nothing(store: EventStore, db: psycopg.Connection) -> None:
    with pytest.raises(AssertionError, match="the log has no event"):
        check_projection(LEDGER, store)
    fill(store)
    for projection in (LEDGER, *store_models()[:1]):
        check_projection(projection, store)
    for wrong, text in (
        (Last(), "table 'last' differs"),
        (Fickle(), "for the same again"),
        (Unordered(), "table 'ledger' differs"),
    ):
        with pytest.raises(AssertionError, match=text):
            check_projection(wrong, store)
    assert tables(db) == []


# --- behind a pooler ---


def test_two_workers_behind_a_pooler_share_the_work(store: EventStore, url: str, pooler: Any) -> None:
    fill(store, 40)
    runners, threads, opened = [], [], []
    for _ in range(2):
        opened.append(EventStore.open(pooler.url_for(url)))
        runners.append(opened[-1].projections.runner([LEDGER, *store_models()], limit=3))
        threads.append(threading.Thread(target=runners[-1].run))
        threads[-1].start()
    try:
        for seed in range(5):
            fill(store, 20, seed=seed)
            result = store.conversation("mine").append([1])
            for name in ("ledger", "conversations"):
                store.wait_for(name, result.position, timeout=60)
    finally:
        for runner in runners:
            runner.stop()
        for thread in threads:
            thread.join(60)
        for each in opened:
            each.close()
    with psycopg.connect(url) as conn:
        assert view(conn) == fold(store)
        counted = conn.execute("SELECT tenant, stream, events, version FROM convstore_views.conversations").fetchall()
    assert {(t, s): (n, v) for t, s, n, v in counted} == {key: row[:2] for key, row in fold(store).items()}


def test_the_example_in_the_docs_is_right(store: EventStore, db: psycopg.Connection) -> None:
    text = (Path(__file__).parent.parent.parent / "docs" / "projections.md").read_text()
    (code,) = re.findall(r"```python\n(# mypkg/views.py.*?)```", text, re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)
    for n in range(30):
        data = {"order": n % 4, "cents": n}
        store.for_tenant(f"t{n % 2}").conversation(f"s{n % 3}").append_events([Event(type="x.refund", data=data)])
    check_projection(scope["refunds"], store)
    run(store, scope["refunds"])
    assert db.execute("SELECT sum(cents) FROM convstore_views.refunds").fetchone() == (sum(range(30)),)


def test_a_projection_is_removed_as_the_docs_say(store: EventStore, url: str, make_login: Callable[..., str]) -> None:
    text = (Path(__file__).parent.parent.parent / "docs" / "projections.md").read_text()
    (code,) = re.findall(r"```sql\n(DROP VIEW.*?)```", text, re.DOTALL)
    fill(store)
    run(store)
    run(store, *store_models()[:1])
    with psycopg.connect(make_login("projector", None), autocommit=True) as conn:
        for statement in code.replace("refunds", "ledger").strip().split("\n"):
            conn.execute(statement)
        run(store, *store_models()[:1])
        assert [name.rpartition("_")[0] for name in tables(conn)] == ["conversations"]
    assert [state.name for state in store.projections.status([])] == ["conversations"]


def test_every_view_of_the_docs_has_the_columns_that_are_named_there(store: EventStore, db: psycopg.Connection) -> None:
    run(store, *store_models())
    text = (Path(__file__).parent.parent.parent / "docs" / "projections.md").read_text()
    named = {
        name: columns.split() for name, columns in re.findall(r"^\| `(\w+)` \| [^|]+ \| `([\w ]+)` \|", text, re.M)
    }
    query = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'convstore_views'"
    shown: dict[str, list[str]] = {}
    for view_name, column in db.execute(query + " ORDER BY ordinal_position"):
        shown.setdefault(view_name, []).append(column)
    assert named == shown
