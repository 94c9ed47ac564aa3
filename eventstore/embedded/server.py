"""Start, share, keep and stop the embedded server.

The first to come makes the cluster and starts the supervisor; all others find it. A server that was
started without ``durable`` is refused to whoever asks for a durable one: a commit means on disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from eventstore.embedded import binaries, cluster, locks, places, supervise
from eventstore.embedded.places import Home
from eventstore.errors import EmbeddedUnavailable

DATABASE = "convstore"


@dataclass(frozen=True)
class Status:
    """What is known of a home, found without starting or making anything.

    ``users`` says whether any process holds the server, this one included. ``kept`` says whether it
    stays without users. ``pid``, ``url`` and ``version`` are None while it does not run.
    """

    running: bool
    pid: int | None
    home: Path
    data: Path
    url: str | None
    version: str | None
    users: bool
    kept: bool


class Facts(NamedTuple):
    """What a running server says of itself."""

    socket: str
    version: str
    durable: bool
    has_database: bool


class Server:
    """One user of a running server, which stays until ``close`` or the end of this process."""

    def __init__(self, home: Home, users: int, socket: str, version: str) -> None:
        self.home = home.path
        self.data = home.data
        self.version = version
        self.major = binaries.major_of(version)
        self.url = url_of(socket, DATABASE)
        self._socket = socket
        self._users: int | None = users

    def __repr__(self) -> str:
        return f"Server({self.url!r}, version={self.version!r})"

    @property
    def pid(self) -> int | None:
        """The process id of postgres now; a crash and restart changes it."""
        return supervise.postmaster(self.data)

    def url_for(self, database: str) -> str:
        """The libpq URL of another database of this server."""
        return url_of(self._socket, database)

    def bin(self, name: str) -> Path:
        """The path of a Postgres program, such as ``pg_dump``, of the cluster's major version."""
        folder = binaries.find(self.data).folder
        if not (folder / name).exists():
            raise EmbeddedUnavailable(f"{folder} has no program {name!r}; install one of Postgres {self.major}")
        return folder / name

    def close(self) -> None:
        """Give the server up; it stops when nobody else uses it and nothing keeps it."""
        users, self._users = self._users, None
        if users is not None:
            os.close(users)  # no LOCK_UN: that would unlock for a forked child too

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def start(
    home: Path | None = None,
    *,
    durable: bool = True,
    settings: Mapping[str, str] | None = None,
    timeout: float = 60.0,
) -> Server:
    """Use the server of a home, and start it, and make its cluster, where that is needed.

    Args:
        home: the folder; None for CONVSTORE_HOME, or else the user's data folder.
        durable: False for test suites: nothing is synced to disk.
        settings: more settings of Postgres; they count where this call starts the server.
        timeout: seconds until this gives up.

    Raises:
        EmbeddedUnavailable: with the reason and what to do.
    """
    deadline = time.monotonic() + timeout
    place = places.find_home(home)
    with cluster.explained(place):
        places.make_home(place)
        # Waits while a supervisor that found no users stops the server.
        users = locks.take(place.users_lock, fcntl.LOCK_SH, deadline, "waiting for the server to stop")
        try:
            with locks.exclusive(place.start_lock, deadline, "waiting for another process to start the server"):
                found = bring_up(place, durable, settings or {}, deadline, timeout)
        except BaseException:
            os.close(users)
            raise
    return Server(place, users, found.socket, found.version)


def bring_up(home: Home, durable: bool, settings: Mapping[str, str], deadline: float, timeout: float) -> Facts:
    """Wait for a ready server, and start a supervisor where there is none."""
    spawned = False
    orphan: int | None = None  # a postgres whose supervisor is gone still answers until the new one has stopped it
    log_from = cluster.log_size(home)
    while True:
        if not locks.taken(home.supervisor_lock):
            if spawned:
                raise cluster.failure("Postgres did not start", cluster.log_tail(home, log_from), home)
            orphan = supervise.postmaster(home.data)
            spawn_supervisor(home, durable, settings)
            spawned = True
        found = None if orphan is not None and supervise.postmaster(home.data) == orphan else probe(home)
        if found is not None:
            if durable and not found.durable:
                raise EmbeddedUnavailable(
                    f"the server of {home.path} runs with fsync off, so no commit is safe there; "
                    "wait until its users are gone, or set CONVSTORE_HOME to another folder"
                )
            if not found.has_database:
                create_database(home, found.socket)
            return found
        if time.monotonic() > deadline:
            what = f"Postgres was not ready within {timeout:g} s"
            raise cluster.failure(what, cluster.log_tail(home, log_from), home)
        time.sleep(0.01)


def spawn_supervisor(home: Home, durable: bool, settings: Mapping[str, str]) -> None:
    """Make the cluster if need be, and return when a detached supervisor holds its lock."""
    found = binaries.reachable(binaries.find(home.data), home)
    if not durable:
        home.unsynced.touch()
    cluster.make_cluster(home, found, durable=durable)
    if durable:
        cluster.sync_cluster(home, found)
    socket = places.socket_folder(home)
    order = {
        "home": str(home.path),
        "argv": cluster.postgres_command(home, found, socket, durable=durable, settings=settings),
        "uid": home.account.uid,
        "gid": home.account.gid,
        "socket": str(socket),
    }
    command = [sys.executable, "-I", "-S", supervise.__file__, "supervise", json.dumps(order)]
    with home.log.open("ab") as log:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=cluster.environment(),
            start_new_session=True,
            check=False,
        )
    if ended.returncode != 0:
        raise cluster.failure("the supervisor did not start", cluster.log_tail(home), home)


def probe(home: Home) -> Facts | None:
    """Ask a ready server about itself; None where there is none."""
    lines = supervise.read_pidfile(home.data)
    if len(lines) < 8 or lines[7].strip() != "ready" or supervise.postmaster(home.data) is None:
        return None
    socket = lines[4]
    try:
        with psycopg.connect(url_of(socket, "postgres"), autocommit=True, connect_timeout=5) as connection:
            row = connection.execute(
                "SELECT current_setting('server_version'), current_setting('fsync') = 'on',"
                " EXISTS (SELECT FROM pg_database WHERE datname = %s)",
                [DATABASE],
            ).fetchone()
    except psycopg.OperationalError:
        return None  # it goes down, or it went
    return Facts(socket, str(row[0]).split()[0], bool(row[1]), bool(row[2])) if row else None


def create_database(home: Home, socket: str) -> None:
    """Make the database; the caller holds the start lock."""
    create = sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(DATABASE), sql.Identifier(cluster.USER))
    try:
        with psycopg.connect(url_of(socket, "postgres"), autocommit=True, connect_timeout=5) as connection:
            connection.execute(create)
    except psycopg.Error as error:
        raise cluster.failure(f"the database {DATABASE!r} could not be made", str(error), home) from error


def url_of(socket: str, database: str) -> str:
    """A libpq URL through the socket; the port is named, or PGPORT would replace it."""
    return (
        f"postgresql://{cluster.USER}@/{quote(database, safe='')}"
        f"?host={quote(os.fsencode(socket), safe='')}&port={places.PORT}"
    )


def up(
    home: Path | None = None,
    *,
    durable: bool = True,
    settings: Mapping[str, str] | None = None,
    timeout: float = 60.0,
) -> Status:
    """Start the server and let it stay without users, until ``down``; arguments as in ``start``."""
    with start(home, durable=durable, settings=settings, timeout=timeout) as server:
        place = places.find_home(server.home)
        with cluster.explained(place):
            place.keep.touch(mode=0o600)
    return status(server.home)


def down(home: Path | None = None, *, force: bool = False, timeout: float = 60.0) -> Status:
    """Let the server go: it stops now if nobody uses it, else with its last user; ``force`` is now.

    The answer tells which: ``running`` and ``users`` are both true where users hold the server up.

    Raises:
        EmbeddedUnavailable: the server was still there after ``timeout`` seconds.
    """
    place = places.find_home(home)
    deadline = time.monotonic() + timeout
    with cluster.explained(place):
        place.keep.unlink(missing_ok=True)
        told = False
        while locks.taken(place.supervisor_lock):
            told = told or tell_supervisor(place, signal.SIGTERM if force else signal.SIGUSR1)
            if told and not force and locks.held(place.users_lock) == "shared":
                return status(place.path)
            if time.monotonic() > deadline:
                raise EmbeddedUnavailable(f"the server of {place.path} did not stop within {timeout:g} s")
            time.sleep(0.01)
        if supervise.postmaster(place.data) is not None and (force or locks.held(place.users_lock) == "no"):
            supervise.stop_orphan(place.data)
    return status(place.path)


def tell_supervisor(home: Home, number: signal.Signals) -> bool:
    """Signal the supervisor once it has written its process id into the lock that it holds."""
    told = home.supervisor_lock.read_text()
    if not told.isdigit():
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(told), number)
    return True


def status(home: Path | None = None) -> Status:
    """What is known of a home; starts nothing and makes nothing."""
    place = places.find_home(home)
    with cluster.explained(place):
        pid = supervise.postmaster(place.data)
        found = probe(place)
        return Status(
            running=found is not None,
            pid=pid,
            home=place.path,
            data=place.data,
            url=url_of(found.socket, DATABASE) if found else None,
            version=found.version if found else None,
            users=locks.held(place.users_lock) == "shared",
            kept=place.keep.exists(),
        )
