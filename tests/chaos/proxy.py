"""A TCP proxy before Postgres' Unix socket that loses connections at the worst moment, once a time when told to."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from typing import Literal

from psycopg.conninfo import conninfo_to_dict, make_conninfo

Moment = Literal["before", "after", "never"]
READY = b"Z\x00\x00\x00\x05I"  # the server is done, outside of a transaction
APPEND = b"convstore.append_event"


class Proxy:
    """``url`` leads through it to ``target``."""

    def __init__(self, target: str) -> None:
        given = conninfo_to_dict(target)
        self._target = f"{given['host']}/.s.PGSQL.{given['port']}"
        self._lock = threading.Lock()
        self._moment: Moment | None = None
        self._needle = b""
        self._then_down = False
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._listener: socket.socket | None = None
        self._port = 0
        self.cuts = 0
        self.turn_away = False
        """Whether who connects is hung up on at once; ``turned_away`` counts them."""
        self.turned_away = 0
        self.up()
        self.url = make_conninfo(
            target, host="127.0.0.1", port=self._port, sslmode="disable", gssencmode="disable", connect_timeout=2
        )

    def cut(self, moment: Moment, needle: bytes = APPEND, *, then_down: bool = False) -> None:
        """Lose the connection of the next request that holds ``needle``.

        "before" the server has it; "after" the server has answered, and the answer is lost; "never": nobody says
        anything any more, but the connection stands. With ``then_down`` nobody can connect from then on.
        """
        with self._lock:
            self._moment, self._needle, self._then_down = moment, needle, then_down

    def down(self) -> None:
        """Refuse connections and drop those that are open."""
        with self._lock:
            listener, self._listener = self._listener, None
            pairs = list(self._pairs)
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept()
            listener.close()
        for pair in pairs:
            _hang_up(pair)

    @property
    def is_down(self) -> bool:
        """Whether connections are refused."""
        return self._listener is None

    def up(self) -> None:
        """Take connections, at the same port as before."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        listener.listen()
        self._port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=[listener], daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                if self.turn_away:
                    client.close()
                    self.turned_away += 1
                    continue
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                pair = (client, server)
                with self._lock:
                    alive = self._listener is listener
                    self._pairs.add(pair)
                if not alive:
                    _hang_up(pair)
                threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        try:
            with selectors.DefaultSelector() as selector, contextlib.suppress(OSError):
                selector.register(client, selectors.EVENT_READ, server)
                selector.register(server, selectors.EVENT_READ, client)
                while True:
                    for key, _ in selector.select():
                        source, sink = key.fileobj, key.data
                        assert isinstance(source, socket.socket)
                        data = source.recv(1 << 20)
                        if not data:
                            return
                        moment = self._is_the_one(data) if source is client else None
                        if moment is None:
                            sink.sendall(data)
                        elif self._lose(moment, data, client, server):
                            return
        finally:
            _hang_up((client, server))
            client.close()
            server.close()
            with self._lock:
                self._pairs.discard((client, server))

    def _is_the_one(self, data: bytes) -> Moment | None:
        with self._lock:
            if self._moment is None or self._needle not in data:
                return None
            moment, self._moment = self._moment, None
            self.cuts += 1
            return moment

    def _lose(self, moment: Moment, data: bytes, client: socket.socket, server: socket.socket) -> bool:
        if moment == "never":
            server.sendall(data)
            while client.recv(1 << 20):  # until the client gives up
                pass
            return True
        if moment == "after":
            server.sendall(data)
            answer = b""
            while not answer.endswith(READY):
                part = server.recv(1 << 20)
                if not part:
                    break
                answer += part
        if self._then_down:
            self.down()
        return True


def _hang_up(pair: tuple[socket.socket, socket.socket]) -> None:
    for end in pair:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
