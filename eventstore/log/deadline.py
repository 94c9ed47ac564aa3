"""A bound on how long one call may take, without a setting on the server.

A time-out set on the session would stay on a pooler's connection and hit strangers, so the client keeps the time: the
async one by ``asyncio.timeout``, the sync one by a thread that cancels what runs too long. A server that does not even
answer the cancel is hung up on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import Final

import psycopg

GRACE: Final = 5.0
"""Seconds for a cancelled query to end; psycopg gives its own as many when a task is cancelled."""


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
        self._running: dict[int, _Call] = {}  # in order of expiry: one time-out for all
        self._number = count()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @contextmanager
    def over(self, conn: psycopg.Connection[object]) -> Iterator[None]:
        """Have the server cancel what the block runs where it takes longer: it raises ``QueryCanceled``.

        Raises ``TimeoutError`` where the server does not answer that either; the connection is broken then.
        """
        if self._thread is None:
            self._start()
        number = next(self._number)
        call = self._running[number] = _Call(time.monotonic() + self.seconds, conn)
        try:
            yield
        except psycopg.OperationalError as e:
            if call.hung_up:
                raise TimeoutError from e
            raise
        finally:
            self._running.pop(number, None)
            call.finished()

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
            for number, call in list(self._running.items()):
                if call.at > now:
                    break
                if self._running.pop(number, None) is not None:
                    threading.Thread(target=call.end, name="convstore-cancel", daemon=True).start()


class _Call:
    """What runs on a connection until ``at``."""

    __slots__ = ("_cancelling", "_conn", "_running", "at", "hung_up")

    def __init__(self, at: float, conn: psycopg.Connection[object]) -> None:
        self.at = at
        self.hung_up = False
        self._conn = conn
        self._running = threading.Lock()
        self._running.acquire()
        self._cancelling = threading.Lock()

    def finished(self) -> None:
        """Wait for a cancel that is on its way: it must not meet the connection's next query."""
        with self._cancelling:
            self._running.release()

    def end(self) -> None:
        """Cancel the query; hang up where that does not end it."""
        with self._cancelling, contextlib.suppress(psycopg.Error):
            if self._running.locked():
                self._conn.cancel_safe(timeout=GRACE)
        if self._running.acquire(timeout=GRACE):
            return
        self.hung_up = True
        with contextlib.suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(self._conn.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for an answer
