"""One Postgres a run, one database a test, made from a migrated template.

``CONVSTORE_TEST_PG`` says which: ``embedded`` (the default) or a major version of the system's binaries, as ``15``.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from eventstore import EventStore, embedded
from eventstore.embedded import binaries

COSTS = ("unit", "integration", "concurrency", "chaos", "peers", "benchmarks")
DATA = Path(__file__).parent.parent.parent / "shared" / "data"
WHICH = os.environ.get("CONVSTORE_TEST_PG", "embedded")

# A shell starts what runs in the background with interrupts ignored, and processes inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the cheap tests first."""
    items.sort(key=lambda item: COSTS.index(item.path.relative_to(Path(__file__).parent).parts[0]))


@pytest.fixture(scope="session")
def recordings() -> Path:
    """The folder of recorded conversations."""
    if not DATA.is_dir():
        pytest.skip(f"the recorded conversations are not here: {DATA.name} beside the project's folder is absent")
    return DATA


def make_home() -> Path:
    """Make a folder that the server's user can reach, also when the tests run as root."""
    home = Path(tempfile.mkdtemp(prefix="convstore-test-", dir="/tmp"))
    home.chmod(0o755)
    return home


@pytest.fixture(scope="session")
def server() -> Iterator[embedded.Server]:
    """The run's Postgres."""
    with pytest.MonkeyPatch.context() as patch:
        if WHICH != "embedded":
            folder = Path(f"/usr/lib/postgresql/{WHICH}/bin")
            if not folder.is_dir():
                pytest.fail(f"CONVSTORE_TEST_PG={WHICH}, but {folder} is not there")
            patch.setattr(binaries, "candidates", lambda: iter([folder]))
        home = make_home()
        settings = {"max_prepared_transactions": "20", "max_connections": "300", "synchronous_commit": "on"}
        with embedded.start(home, durable=False, settings=settings) as running:
            yield running
        embedded.down(home, force=True)
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def admin(server: embedded.Server) -> Iterator[psycopg.Connection]:
    """A superuser's connection to the server, outside of any test's database."""
    with psycopg.connect(server.url_for("postgres"), autocommit=True) as conn:
        yield conn


_number = count(1)


@pytest.fixture(scope="session")
def template(server: embedded.Server, admin: psycopg.Connection) -> str:
    """The name of a migrated database with no data."""
    name = f"template_{os.getpid()}"
    admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
    with EventStore.open(server.url_for(name)) as store:
        store.migrate()
    return name


@pytest.fixture
def make_database(server: embedded.Server, admin: psycopg.Connection) -> Iterator[Callable[..., str]]:
    """Make databases and return their URLs: ``make_database()`` is empty, ``make_database(template)`` a copy."""
    made: list[str] = []

    def make(template: str = "template0") -> str:
        name = f"test_{os.getpid()}_{next(_number)}"
        made.append(name)
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        admin.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
        return server.url_for(name)

    yield make
    for name in made:
        admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def url(make_database: Callable[..., str], template: str) -> str:
    """The URL of a fresh, migrated database."""
    return make_database(template)


@pytest.fixture
def store(url: str) -> Iterator[EventStore]:
    """A store on a fresh database."""
    with EventStore.open(url) as opened:
        yield opened


@pytest.fixture
def db(url: str) -> Iterator[psycopg.Connection]:
    """The owner's own connection to the test's database, to look and to tamper."""
    with psycopg.connect(url, autocommit=True, options="-c search_path=convstore") as conn:
        yield conn
