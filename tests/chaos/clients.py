"""One face for both kinds of store, so that each test is written once and run against both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import psycopg

from eventstore import AppendResult, AsyncEventStore, Event, EventStore


class Client(Protocol):
    """What the tests do with a store."""

    retries: Callable[[], float]

    def append(self, stream: str, items: Sequence[Any], **options: Any) -> AppendResult: ...
    def append_events(self, stream: str, events: Sequence[Event], **options: Any) -> AppendResult: ...
    def data(self, stream: str) -> list[Any]: ...
    def in_transaction(self, *appends: tuple[str, Sequence[Any], str | None]) -> list[AppendResult]: ...
    def close(self) -> None: ...


class SyncClient:
    """By ``EventStore``."""

    def __init__(self, url: str, *, timeout: float) -> None:
        self.store = EventStore.open(url, timeout=timeout)
        self.retries = lambda: _retries(self.store)

    def append(self, stream: str, items: Sequence[Any], **options: Any) -> AppendResult:
        return self.store.conversation(stream).append(items, **options)

    def append_events(self, stream: str, events: Sequence[Event], **options: Any) -> AppendResult:
        return self.store.conversation(stream).append_events(events, **options)

    def data(self, stream: str) -> list[Any]:
        return [event.data for event in self.store.conversation(stream).events()]

    def in_transaction(self, *appends: tuple[str, Sequence[Any], str | None]) -> list[AppendResult]:
        with self.store.transaction() as scope:
            return [scope.conversation(stream).append(items, key=key) for stream, items, key in appends]

    def close(self) -> None:
        self.store.close()


class AsyncClient:
    """By ``AsyncEventStore``, in an event loop that runs while a call does."""

    def __init__(self, url: str, *, timeout: float) -> None:
        self._runner = asyncio.Runner()
        self.run = self._runner.run
        try:
            self.store: AsyncEventStore = self.run(self._open(url, timeout))
        except BaseException:
            self._runner.close()
            raise
        self.retries = lambda: _retries(self.store)

    async def _open(self, url: str, timeout: float) -> AsyncEventStore:
        return await AsyncEventStore.open(url, timeout=timeout)

    def append(self, stream: str, items: Sequence[Any], **options: Any) -> AppendResult:
        return self.run(self.store.conversation(stream).append(items, **options))

    def append_events(self, stream: str, events: Sequence[Event], **options: Any) -> AppendResult:
        return self.run(self.store.conversation(stream).append_events(events, **options))

    def data(self, stream: str) -> list[Any]:
        async def read() -> list[Any]:
            return [event.data async for event in self.store.conversation(stream).events()]

        return self.run(read())

    def in_transaction(self, *appends: tuple[str, Sequence[Any], str | None]) -> list[AppendResult]:
        async def block() -> list[AppendResult]:
            async with self.store.transaction() as scope:
                return [await scope.conversation(stream).append(items, key=key) for stream, items, key in appends]

        return self.run(block())

    def close(self) -> None:
        self.run(self.store.close())
        self._runner.close()


KINDS: dict[str, Callable[..., Client]] = {"sync": SyncClient, "async": AsyncClient}


def wait_until(true: Callable[[], object], what: str, seconds: float = 30.0) -> None:
    """Poll until ``true()`` is; fail when it takes longer."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.005)


def waits_for_a_lock(db: psycopg.Connection) -> bool:
    """Tell whether a statement on this database waits for a lock."""
    query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return db.execute(query).fetchone() is not None


def _retries(store: EventStore | AsyncEventStore) -> float:
    return store.telemetry.registry.get_sample_value("convstore_retries_total") or 0.0
