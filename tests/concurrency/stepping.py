"""Actors with a connection each, stepped one statement at a time, and a look at who waits for whom."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import psycopg

from eventstore import EventStore

T = TypeVar("T")
NAMESPACE = 17750


class Actor:
    """One connection, a thread that uses it, and the store bound to it."""

    def __init__(self, store: EventStore, url: str, **kwargs: Any) -> None:
        self.conn = psycopg.connect(url, **kwargs)
        self.pid = self.conn.info.backend_pid
        self.store = store.using(self.conn)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="actor")

    def begins(self, call: Callable[[], T]) -> Future[T]:
        """Start a call that may have to wait."""
        return self._thread.submit(call)

    def append(self, stream: str, items: list[Any], **named: Any) -> Future[Any]:
        """Start an append."""
        return self.begins(lambda: self.store.conversation(stream).append(items, **named))

    def commit(self) -> None:
        self.begins(self.conn.commit).result(20)

    def rollback(self) -> None:
        self.begins(self.conn.rollback).result(20)

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self.conn.cancel_safe(timeout=5)  # after a failed test it may still wait
        self._thread.shutdown()
        self.conn.close()

    def __enter__(self) -> Actor:
        return self

    def __exit__(self, *caught: object) -> None:
        self.close()


def until(db: psycopg.Connection[Any], query: str, params: list[Any], what: str) -> None:
    """Poll until a query gives true."""
    deadline = time.monotonic() + 20
    while True:
        row = db.execute(query, params).fetchone()  # type: ignore[call-overload]
        if row is not None and row[0]:
            return
        assert time.monotonic() < deadline, f"not within 20 s: {what}"
        time.sleep(0.005)


def until_waits(db: psycopg.Connection[Any], actor: Actor, *, for_: Actor | None = None) -> None:
    """Poll until the actor's connection waits for a lock (that ``for_`` holds)."""
    if for_ is None:
        until(db, "SELECT cardinality(pg_blocking_pids(%s)) > 0", [actor.pid], "it waits for a lock")
    else:
        until(db, "SELECT %s = ANY (pg_blocking_pids(%s))", [for_.pid, actor.pid], "it waits for the other")


def stamps(db: psycopg.Connection[Any], pid: int) -> list[tuple[int, str]]:
    """The stamps that a connection holds: key and mode."""
    return db.execute(
        "SELECT (classid::bigint & 65535) << 32 | objid::bigint, mode FROM pg_locks WHERE locktype = 'advisory'"
        " AND granted AND classid::bigint >> 16 = %s AND pid = %s ORDER BY 1",
        [NAMESPACE, pid],
    ).fetchall()


def last_value(db: psycopg.Connection[Any]) -> int:
    """The last position drawn, by whomever."""
    row = db.execute("SELECT pg_sequence_last_value('position')").fetchone()
    assert row is not None
    return int(row[0])


def together(calls: list[Callable[[], T]]) -> list[T | BaseException]:
    """Run calls in threads that start at the same moment; give results or errors in order."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        futures = [threads.submit(run, call) for call in calls]
        return [f.exception(60) or f.result() for f in futures]
