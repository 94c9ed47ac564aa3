"""Clusters of a test's own: a primary, copies of it started in their own folders, and the programs that make them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
from clients import wait_until

from eventstore import EventStore, embedded
from eventstore.embedded import binaries, places

SETTINGS = {"max_connections": "100", "max_wal_senders": "5", "wal_level": "logical", "max_prepared_transactions": "5"}


def answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


class Cluster:
    """The primary, migrated, and the folder in which everything of the test lies."""

    def __init__(self, home: Path, server: embedded.Server) -> None:
        self.home = home
        self.server = server
        self.url = server.url
        self.programs = binaries.reachable(binaries.find(server.data), places.find_home(home)).folder
        self.socket = parse_qs(urlsplit(server.url).query)["host"][0]
        owner = server.data.stat()
        self._owner = owner.st_uid, owner.st_gid
        self._as_user: dict[str, Any] = {"cwd": home, "stdin": subprocess.DEVNULL}
        if os.geteuid() == 0:
            self._as_user |= {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}

    def folder(self, name: str) -> Path:
        """Make a folder that the servers can use."""
        made = self.home / name
        made.mkdir(mode=0o700)
        os.chown(made, *self._owner)
        return made

    def run(self, program: str, *args: str | Path) -> None:
        """Run one of Postgres' programs as the servers' user."""
        done = subprocess.run(
            [self.programs / program, *args], capture_output=True, text=True, check=False, **self._as_user
        )
        assert done.returncode == 0, done.stderr

    def base_backup(self, name: str, *options: str) -> Path:
        """Copy the running primary; the data folder of the copy."""
        data = self.folder(name) / "data"
        self.run("pg_basebackup", "-h", self.socket, "-U", "postgres", "-D", data, "-c", "fast", *options)
        return data

    def stop(self) -> None:
        """Stop the primary; stand-bys that are connected have all of its WAL then."""
        embedded.down(self.home, force=True)

    @contextmanager
    def running(self, data: Path, settings: Mapping[str, str]) -> Iterator[str]:
        """Start a copy; its URL."""
        folder = data.parent
        chosen = SETTINGS | {"listen_addresses": "", "unix_socket_directories": str(folder), "archive_mode": "off"}
        options = [part for name, value in (chosen | dict(settings)).items() for part in ("-c", f"{name}={value}")]
        with (self.home / f"{folder.name}.log").open("wb") as log:
            command = [self.programs / "postgres", "-D", data, *options]
            process = subprocess.Popen(command, stdout=log, stderr=log, **self._as_user)
        url = self.url.replace(urlsplit(self.url).query, f"host={folder}&port={places.PORT}")
        try:
            wait_until(lambda: process.poll() is not None or answers(url), f"{folder.name} answers")
            assert process.poll() is None, (self.home / f"{folder.name}.log").read_text()
            yield url
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def primary(settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Start a cluster that syncs; its binaries are those of the run's server, which has to be up."""
    home = Path(tempfile.mkdtemp(prefix="cs-cluster-", dir="/tmp"))
    home.chmod(0o755)
    try:
        filled = {name: value.format(home=home) for name, value in (settings or {}).items()}
        with embedded.start(home, durable=True, settings=SETTINGS | filled) as running:
            with EventStore.open(running.url) as store:
                store.migrate()
            yield Cluster(home, running)
    finally:
        embedded.down(home, force=True)
        shutil.rmtree(home)
