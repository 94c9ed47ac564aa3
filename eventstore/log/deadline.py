"""A bound on how long one call may take, without a setting on the server.

A time-out set on the session would stay on a pooler's connection and hit strangers, so the client keeps the time: the
async one by ``asyncio.timeout``, the sync one by a thread that cancels what runs too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count

import psycopg


class AsyncDeadline:
    """The time-out of an async store's calls, in seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    @asynccontextmanager
    async def over(self, _conn: psycopg.AsyncConnection[object]) -> AsyncIterator[None]:
        """Raise ``TimeoutError`` where the block takes longer; psycopg cancels the query."""
        async with asyncio.timeout(self.seconds):
            yield

    def close(self) -> None:
        """Nothing to stop."""


class Deadline:
    """The time-out of a sync store's calls, in seconds, kept by one thread that starts with the first call."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._running: dict[
            int, tuple[float, psycopg.Connection[object]]
        ] = {}  # in order of expiry: one time-out for all
        self._number = count()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @contextmanager
    def over(self, conn: psycopg.Connection[object]) -> Iterator[None]:
        """Have the server cancel what the block runs where it takes longer: it raises ``QueryCanceled``."""
        if self._thread is None:
            self._start()
        number = next(self._number)
        self._running[number] = (time.monotonic() + self.seconds, conn)
        try:
            yield
        finally:
            self._running.pop(number, None)

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="convstore-deadline", daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(min(self.seconds / 4, 1.0)):
            now = time.monotonic()
            for number, (at, conn) in list(self._running.items()):
                if at > now:
                    break
                if self._running.pop(number, None) is not None:
                    with contextlib.suppress(psycopg.Error):
                        conn.cancel_safe(timeout=5.0)
