# Generated from hints_async.py by ops/generate_sync.py: edit that one.
"""Optional hints between clients that something was appended, so that idle readers need to ask less often.

NOTIFY in the append's own transaction would take a lock of the whole cluster at its commit. A client says it
afterwards, from another connection, at most every 20 ms, on one channel and without a payload. Nothing depends on a
hint: one that is lost, or that a pooler does not pass on, costs a reader its pause.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, LiteralString
from weakref import WeakSet

import psycopg

from eventstore.errors import StoreUnavailable
from eventstore.log.pause import Background, Bell, pause
from eventstore.telemetry import logger

CHANNEL: Final = "convstore_appended"
EVERY: Final = 0.02
RETRY: Final = 1.0
_LISTEN: Final[LiteralString] = f"LISTEN {CHANNEL}"
# As text without parameters: one round trip, and the reader's next question does not wait for the disk.
_NOTIFY: Final[LiteralString] = f"SET LOCAL synchronous_commit = off; NOTIFY {CHANNEL}"


class Hints:
    """A store's end of it: a connection for sending and one for listening, each from its first use on."""

    def __init__(self, connect: Callable[[], AbstractContextManager[psycopg.Connection[Any]]]) -> None:
        self.heard = 0
        self._connect = connect
        self._due = Bell()
        self._bells: WeakSet[Bell] = WeakSet()
        self._sender: Background | None = None
        self._listener: Background | None = None
        self._closed = False

    def send(self) -> None:
        """Have the others told, soon and if it can be done."""
        self._due.ring()
        if self._sender is None and not self._closed:
            self._sender = Background(self._send, "convstore-hints")

    def listen(self, bell: Bell) -> None:
        """Have ``bell`` rung when somebody appended."""
        self._bells.add(bell)
        if self._listener is None and not self._closed:
            self._listener = Background(self._listen, "convstore-listens")

    def close(self) -> None:
        """Hang up."""
        self._closed = True
        self._due.ring()
        for background in (self._sender, self._listener):
            if background is not None:
                background.stop()

    def _send(self) -> None:
        while not self._closed:
            try:
                with self._connect() as conn:
                    while not self._closed:
                        if self._due.wait(60.0) and not self._closed:
                            conn.execute(_NOTIFY)
                            pause(EVERY)
            except (psycopg.OperationalError, StoreUnavailable):
                self._due.ring()
                pause(RETRY)
            except psycopg.Error as e:
                logger().warning("no hints are sent: the server refuses them", error=str(e))
                return

    def _listen(self) -> None:
        while not self._closed:
            try:
                with self._connect() as conn:
                    conn.execute(_LISTEN)
                    self._ring()  # what was said before is not heard
                    while not self._closed:
                        for _ in conn.notifies(timeout=0.25, stop_after=1):
                            self.heard += 1
                            self._ring()
                            pause(EVERY)
            except (psycopg.OperationalError, StoreUnavailable):
                pause(RETRY)
            except psycopg.Error as e:  # a stand-by, for one
                logger().warning("no hints are heard: the server refuses LISTEN", error=str(e))
                return

    def _ring(self) -> None:
        for bell in list(self._bells):
            bell.ring()
