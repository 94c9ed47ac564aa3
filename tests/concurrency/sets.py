"""An async store whose appends go together, and streams that somebody else holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from eventstore import AsyncEventStore, EventStore
from eventstore.log import coalescing

N = 12
SET = N - coalescing.CALLS
"""Of N appends that begin at once so many go in one set: the first ones find a free place."""
FOREVER = 600.0
WAIT_FOR_A_LOCK = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def play(url: str, scene: Callable[[AsyncEventStore], Awaitable[None]], **options: Any) -> None:
    """Run a scene with a store that knows N streams; in the end nothing of the writer's books may be left."""

    async def run() -> None:
        async with AsyncEventStore.open(url, **options) as store:
            for n in range(N):
                await store.conversation(f"s{n}").append(["before"])
            async with asyncio.timeout(60):
                await scene(store)
                writer = store._pooled.writer
                assert writer is not None
                while writer._sets:
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0)
                assert not writer._calls
                assert not writer._held
                assert not writer._ready

    asyncio.run(run())


def sets(store: AsyncEventStore) -> tuple[int, int]:
    """How many sets there were, and of how many appends."""
    value = store.telemetry.registry.get_sample_value
    return tuple(int(value(f"convstore_append_set_appends_{what}") or 0) for what in ("count", "sum"))  # type: ignore[return-value]


@contextmanager
def held(url: str, *streams: str) -> Iterator[Callable[[], None]]:
    """Hold streams as an open transaction that appended to them does; call what is given to commit it."""
    with EventStore.open(url) as other, psycopg.connect(url) as conn:
        for stream in streams:
            other.using(conn).conversation(stream).append(["theirs"])
        yield conn.commit
        conn.rollback()


def data(store: EventStore, stream: str) -> list[Any]:
    return [event.data for event in store.conversation(stream).events(2)]
