"""Optional hints between clients that something was appended, so that idle readers need to ask less often.

NOTIFY in the append's own transaction would take a lock of the whole cluster at its commit. A client says it
afterwards, from another connection, at most every 20 ms, on one channel and without a payload. Nothing depends on a
hint: one that is lost, or that a pooler does not pass on, costs a reader its pause.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, LiteralString
from weakref import WeakSet

import psycopg

from eventstore.errors import StoreUnavailable
from eventstore.log.pause import AsyncBackground, AsyncBell, pause_async
from eventstore.telemetry import logger

CHANNEL: Final = "convstore_appended"
EVERY: Final = 0.02
RETRY: Final = 1.0
_LISTEN: Final[LiteralString] = f"LISTEN {CHANNEL}"
# As text without parameters: one round trip, and the reader's next question does not wait for the disk.
_NOTIFY: Final[LiteralString] = f"SET LOCAL synchronous_commit = off; NOTIFY {CHANNEL}"


class AsyncHints:
    """A store's end of it: a connection for sending and one for listening, each from its first use on."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]]) -> None:
        self.heard = 0
        self._connect = connect
        self._due = AsyncBell()
        self._bells: WeakSet[AsyncBell] = WeakSet()
        self._sender: AsyncBackground | None = None
        self._listener: AsyncBackground | None = None
        self._closed = False

    def send(self) -> None:
        """Have the others told, soon and if it can be done."""
        self._due.ring()
        if self._sender is None and not self._closed:
            self._sender = AsyncBackground(self._send, "convstore-hints")

    def listen(self, bell: AsyncBell) -> None:
        """Have ``bell`` rung when somebody appended."""
        self._bells.add(bell)
        if self._listener is None and not self._closed:
            self._listener = AsyncBackground(self._listen, "convstore-listens")

    async def close(self) -> None:
        """Hang up."""
        self._closed = True
        self._due.ring()
        for background in (self._sender, self._listener):
            if background is not None:
                await background.stop()

    async def _send(self) -> None:
        while not self._closed:
            try:
                async with self._connect() as conn:
                    while not self._closed:
                        if await self._due.wait(60.0) and not self._closed:
                            await conn.execute(_NOTIFY)
                            await pause_async(EVERY)
            except (psycopg.OperationalError, StoreUnavailable):
                self._due.ring()
                await pause_async(RETRY)
            except psycopg.Error as e:
                logger().warning("no hints are sent: the server refuses them", error=str(e))
                return

    async def _listen(self) -> None:
        while not self._closed:
            try:
                async with self._connect() as conn:
                    await conn.execute(_LISTEN)
                    self._ring()  # what was said before is not heard
                    while not self._closed:
                        async for _ in conn.notifies(timeout=0.25, stop_after=1):
                            self.heard += 1
                            self._ring()
                            await pause_async(EVERY)
            except (psycopg.OperationalError, StoreUnavailable):
                await pause_async(RETRY)
            except psycopg.Error as e:  # a stand-by, for one
                logger().warning("no hints are heard: the server refuses LISTEN", error=str(e))
                return

    def _ring(self) -> None:
        for bell in list(self._bells):
            bell.ring()
