"""Many threads on one store, many stores in one process."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg

from eventstore import EventStore

THREADS, APPENDS, STREAMS, STORES = 16, 50, 5, 30


def test_many_threads_share_a_store(store: EventStore) -> None:
    begin = threading.Barrier(THREADS)

    def work(thread: int) -> list[tuple[str, int, list[int]]]:
        begin.wait()
        done = []
        for n in range(APPENDS):
            stream = f"s{(thread + n) % STREAMS}"
            result = store.conversation(stream).append([[thread, n]])
            done.append((stream, result.last_version, [thread, n]))
        return done

    with ThreadPoolExecutor(THREADS) as pool:
        answers = [answer for done in pool.map(work, range(THREADS)) for answer in done]
    found = 0
    for stream in (f"s{n}" for n in range(STREAMS)):
        events = list(store.conversation(stream).events())
        assert [event.version for event in events] == list(range(1, len(events) + 1))
        told = {version: data for name, version, data in answers if name == stream}
        assert {event.version: event.data for event in events} == told
        found += len(events)
    assert found == THREADS * APPENDS
    assert store.verify().ok


def test_many_stores_in_one_process_hold_few_connections(url: str, db: psycopg.Connection) -> None:
    with ExitStack() as stack:
        stores = [stack.enter_context(EventStore.open(url)) for _ in range(STORES)]
        for number, store in enumerate(stores):
            assert store.conversation("s").append([number]).last_version == number + 1
        query = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'convstore' AND pid <> pg_backend_pid()"
        )
        row = db.execute(query).fetchone()
        assert row is not None
        assert row[0] <= 2 * STORES
    with EventStore.open(url) as store:
        assert [event.data for event in store.conversation("s").events()] == list(range(STORES))
