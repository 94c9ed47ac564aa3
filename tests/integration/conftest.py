"""A pooler in transaction mode before the run's server, where pgbouncer is installed."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit, urlunsplit

import psycopg
import pytest
from contract import AsyncDriver, Driver
from psycopg import sql

from eventstore import EventStore, embedded

PORT = 6432


def _binary() -> str | None:
    return shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


class Pooler:
    """A running pgbouncer: what connects to it may get another server connection with each transaction."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def url_for(self, url: str) -> str:
        """The way to the same database and login through the pooler."""
        parts = urlsplit(url)
        return f"postgresql://{parts.username}@{parts.path}?host={quote(str(self._folder))}&port={PORT}"


@pytest.fixture(scope="session")
def pooler(server: embedded.Server) -> Iterator[Pooler]:
    """A pgbouncer in transaction mode with few server connections a database."""
    binary = _binary()
    if binary is None:
        pytest.skip("pgbouncer is not installed, so nothing is checked behind a pooler")
    query = parse_qs(urlsplit(server.url).query)
    account = pwd.getpwuid(server.data.stat().st_uid)  # the server's own user: its socket is in a folder of mode 0700
    folder = Path(tempfile.mkdtemp(prefix="convstore-pooler-", dir="/tmp"))
    folder.chmod(0o755)
    (folder / "pgbouncer.ini").write_text(
        f"""
[databases]
* = host={query["host"][0]} port={query["port"][0]}

[pgbouncer]
pool_mode = transaction
default_pool_size = 3
max_client_conn = 200
listen_addr =
unix_socket_dir = {folder}
listen_port = {PORT}
auth_type = trust
auth_file = {folder / "users.txt"}
ignore_startup_parameters = extra_float_digits
logfile = {folder / "pgbouncer.log"}
"""
    )
    superuser = urlsplit(server.url).username
    (folder / "users.txt").write_text(f'"{superuser}" ""\n')
    if os.geteuid() == 0:
        os.chown(folder, account.pw_uid, account.pw_gid)
    # pgbouncer refuses to run as root.
    as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    process = subprocess.Popen(
        [binary, "--quiet", str(folder / "pgbouncer.ini")],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **as_user,
    )
    try:
        made = Pooler(folder)
        _wait_for(made.url_for(server.url_for("postgres")), process, folder)
        yield made
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(url: str, process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + 15
    while True:
        try:
            with psycopg.connect(url, prepare_threshold=None) as conn:
                conn.execute("SELECT 1")
        except psycopg.OperationalError as e:
            if process.poll() is not None or time.monotonic() > deadline:
                log = folder / "pgbouncer.log"
                pytest.fail(f"pgbouncer does not answer: {e}; {log.read_text() if log.exists() else 'no log'}")
            time.sleep(0.02)
        else:
            return


@pytest.fixture(scope="session")
def contract_url(server: embedded.Server, admin: psycopg.Connection, template: str) -> Iterator[str]:
    """One migrated database for all of the contract; each test has a tenant of its own in it."""
    name = f"contract_{os.getpid()}"
    admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template)))
    yield server.url_for(name)
    admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(scope="session", params=["sync", "async", "pooler"])
def driver(request: pytest.FixtureRequest, contract_url: str) -> Iterator[Driver]:
    """The store opened each way."""
    if request.param == "async":
        made: Driver = AsyncDriver(contract_url)
    elif request.param == "pooler":
        made = Driver(request.getfixturevalue("pooler").url_for(contract_url))
    else:
        made = Driver(contract_url)
    yield made
    made.close()


@pytest.fixture
def any_store(driver: Driver) -> Any:
    """The driver's store for a tenant that has no data; the async one is awaited for the test."""
    return driver.store.for_tenant(f"tenant-{uuid.uuid4()}")


@pytest.fixture
def contract_db(contract_url: str) -> Iterator[psycopg.Connection]:
    """The owner's own connection to the contract's database."""
    with psycopg.connect(contract_url, autocommit=True, options="-c search_path=convstore") as conn:
        yield conn


_logins = count(1)


@pytest.fixture
def make_login(url: str, admin: psycopg.Connection, db: psycopg.Connection) -> Iterator[Callable[..., str]]:
    """Make a login with a role (None: with none), bound to tenants, and return its URL."""
    made: list[str] = []

    def make(role: str | None, *tenants: str | None, options: str = "") -> str:
        name = f"login_{os.getpid()}_{next(_logins)}_{role or 'none'}"
        made.append(name)
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN " + options).format(sql.Identifier(name)))
        if role is not None:
            admin.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(f"convstore_{role}"), sql.Identifier(name)))
        for tenant in tenants:
            db.execute("SELECT bind_login(%s, %s)", [name, tenant])
        parts = urlsplit(url)
        return urlunsplit(parts._replace(netloc=f"{name}@"))

    yield make
    for name in made:
        db.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@pytest.fixture
def filled(store: EventStore) -> EventStore:
    """Two tenants with data under the same names."""
    for tenant in ("acme", "rival"):
        chat = store.for_tenant(tenant).conversation("a", context="ctx", tags={"of": tenant})
        chat.append([f"{tenant} secret", 2], key="k", task_id="label", metadata={"of": tenant})
    return store
