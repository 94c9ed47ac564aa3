"""Appends and reads cost what they touch, however large the log and with or without statistics about it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psycopg
import pytest

from eventstore import Artifact, AsyncEventStore, Event, EventStore
from eventstore.errors import TaskClosed

LOG = ["events", "streams", "directory", "contexts", "tasks"]
N = 10_000  # above what the planner takes for small


def scans(db: psycopg.Connection, inserted: int) -> dict[str, Any]:
    """Statistics of the log's tables, once those of closed connections are in."""
    deadline = time.monotonic() + 20
    while True:
        db.execute("SELECT pg_stat_clear_snapshot()")
        rows = db.execute(
            "SELECT relname, seq_scan, n_tup_ins, coalesce(idx_tup_fetch, 0),"
            " (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes i WHERE i.relid = t.relid)"
            " FROM pg_stat_user_tables t WHERE schemaname = 'convstore' AND relname = ANY (%s)",
            [LOG],
        ).fetchall()
        found = {name: row for name, *row in rows}
        if found["events"][1] >= inserted:
            return found
        assert time.monotonic() < deadline, f"{found['events'][1]} of {inserted} inserts in the statistics"
        time.sleep(0.02)


@pytest.fixture(params=["analyzed", "never analyzed"])
def large(request: pytest.FixtureRequest, url: str, db: psycopg.Connection) -> str:
    """A log of three long streams in one context and many small ones, with statistics or without."""
    db.execute("ALTER TABLE events SET (autovacuum_enabled = off)")
    with EventStore.open(url) as store:
        for name in ("s0", "s1", "s2"):
            store.conversation(name, context="ctx").append(list(range(N)), key="first")
            store.conversation(name).append_events(
                [Event(type="x.a", data=0, unique_key=f"unique-{name}", subject=name)]
            )
        for number in range(300):
            store.conversation(f"small-{number}", context="ctx" if number % 2 else None).append([number])
    if request.param == "analyzed":
        db.execute("ANALYZE")
    return url


def test_no_append_or_read_scans_the_log(large: str, db: psycopg.Connection) -> None:
    inserted = 3 * (N + 1) + 300
    before = scans(db, inserted)
    appends = 0
    with EventStore.open(large) as store:
        chat = store.conversation("s1")
        for n in range(50):
            chat.append([n])
            chat.append([n, n])
            chat.append([n], key=f"k{n}")
            chat.append([n], key=f"k{n}")
            chat.append([n, n], key=f"m{n}")
            chat.append([n, n], key=f"m{n}")
            chat.append([n], expected=chat.head())
            chat.append_events([Event(type="x.a", data=n, unique_key=f"u{n}")])
            store.conversation(f"new-{n}", context="ctx").append([n], key="k")
            appends += 9
        assert [e.data for e in chat.events(10, 12)] == [9, 10, 11]
        assert next(chat.events(N)).version == N
        store.conversations(limit=5)
    after = scans(db, inserted + appends)
    assert {name: after[name][0] - before[name][0] for name in LOG} == dict.fromkeys(LOG, 0)
    read = after["events"][3] - before["events"][3]
    assert read < 20 * appends + 5_000, f"{read} index entries read for {appends} events"


def test_the_repeat_of_a_large_append_reads_each_event_a_few_times(large: str, db: psycopg.Connection) -> None:
    inserted = 3 * (N + 1) + 300
    before = scans(db, inserted)
    with EventStore.open(large) as store:
        for name in ("s0", "s2"):
            assert store.conversation(name).append(list(range(N)), key="first").deduplicated
        store.conversation("s0").append(["end"])
    after = scans(db, inserted + 1)
    assert after["events"][0] == before["events"][0]
    read = after["events"][3] - before["events"][3]
    assert read < 12 * 2 * N, f"{read} index entries read for the repeats of {2 * N} events"


def test_a_large_keyed_append_to_a_long_stream_reads_its_ids_alone(large: str, db: psycopg.Connection) -> None:
    inserted = 3 * (N + 1) + 300
    before = scans(db, inserted)
    with EventStore.open(large) as store:
        assert store.conversation("s1").append(list(range(2_000)), key="second").last_version == N + 1 + 2_000
    after = scans(db, inserted + 2_000)
    assert after["events"][0] == before["events"][0]
    read = after["events"][3] - before["events"][3]
    assert read < 12 * 2_000, f"{read} index entries read for {2_000} new events"


def test_appends_update_streams_in_place(large: str, db: psycopg.Connection) -> None:
    """Nothing that an append changes is indexed, so its update of the stream's row is HOT."""
    inserted = 3 * (N + 1) + 300
    scans(db, inserted)
    query = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'streams'"
    before = db.execute(query).fetchone()
    with EventStore.open(large) as store:
        for n in range(200):
            store.conversation("s1").append([n])
    scans(db, inserted + 200)
    db.execute("SELECT pg_stat_clear_snapshot()")
    after = db.execute(query).fetchone()
    assert before is not None
    assert after is not None
    assert after[0] - before[0] == 200
    assert after[1] - before[1] >= 195


def test_no_set_of_appends_scans_the_log(large: str, db: psycopg.Connection) -> None:
    inserted = 3 * (N + 1) + 300
    names = ["s0", "s1", "s2", *(f"small-{number}" for number in range(20))]
    rounds = 20

    async def play() -> float | None:
        async with AsyncEventStore.open(large) as store:
            for name in names:
                await store.conversation(name).append(["known"])
            for n in range(rounds):
                for key in (None, f"k{n}", f"k{n}"):
                    await asyncio.gather(*(store.conversation(name).append([n, n], key=key) for name in names))
            return store.telemetry.registry.get_sample_value("convstore_append_set_appends_sum")

    before = scans(db, inserted)
    together = asyncio.run(play())
    appends = len(names) * (1 + 4 * rounds)
    after = scans(db, inserted + appends)
    assert together is not None
    assert together > 50 * rounds
    assert {name: after[name][0] - before[name][0] for name in LOG} == dict.fromkeys(LOG, 0)
    assert after["streams"][3] - before["streams"][3] < 10 * appends
    read = after["events"][3] - before["events"][3]
    assert read < 20 * appends, f"{read} index entries read for {appends} events"


def test_tasks_and_artifacts_read_what_they_touch(large: str, db: psycopg.Connection) -> None:
    inserted = 3 * (N + 1) + 300
    before = scans(db, inserted)
    with EventStore.open(large) as store:
        chat = store.conversation("s1")
        for n in range(20):
            chat.tasks.open(f"t{n}", goal="g", follows=f"t{n - 1}" if n else None)
            chat.append([n], task_id=f"t{n}")
            chat.append([n, n], task_id=f"t{n}", key=f"k{n}")
            source = [("file:///a", n)] if n else []
            chat.artifacts.publish(Artifact("file:///a", n + 1, "a", derived_from=source), task_id=f"t{n}")
            chat.tasks.set_status(f"t{n}", "completed")
            with pytest.raises(TaskClosed):
                chat.append([n], task_id=f"t{n}")
            assert chat.tasks.get(f"t{n}") is not None
        branch = chat.fork("branch", at=N)
        assert branch.artifacts.list() == []
        assert len(chat.artifacts.list()) == len(chat.tasks.list()) == len(branch.tasks.list()) == 20
        assert chat.artifacts.latest("file:///a") == chat.artifacts.list()[-1]
    after = scans(db, inserted + 20 * 6 + 1)
    assert {name: after[name][0] - before[name][0] for name in LOG} == dict.fromkeys(LOG, 0)
    read = after["events"][3] - before["events"][3]
    assert read < 4_000, f"{read} index entries read for 20 tasks and artifacts"


def test_an_effect_is_claimed_found_and_listed_without_reading_the_log(large: str, db: psycopg.Connection) -> None:
    inserted = 3 * (N + 1) + 300
    before = scans(db, inserted)
    with EventStore.open(large) as store:
        effects = store.conversation("s1").effects
        for n in range(20):
            effects.run("t", lambda n=n: n, key=f"k{n}")
            assert effects.run("t", lambda: 1 / 0, key=f"k{n}") == n
            assert effects.resolve(f"k{n}", succeeded=True).result == n
        assert len(effects.list()) == 20
    after = scans(db, inserted + 40)
    assert {name: after[name][0] - before[name][0] for name in LOG} == dict.fromkeys(LOG, 0)
    read = after["events"][3] - before["events"][3]
    assert read < 3_000, f"{read} index entries read for 20 effects"
