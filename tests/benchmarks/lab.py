"""Where the benchmark runs: a durable Postgres of its own, or the one of ``CONVSTORE_BENCH_URL``."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import orjson
import psutil
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Json, set_json_dumps

from eventstore import EventStore, embedded
from eventstore.embedded import binaries

SETTINGS = ("fsync", "synchronous_commit", "wal_level", "full_page_writes", "shared_buffers", "max_wal_size", "jit")


class Lab:
    """A server to measure on. Databases that it made go when it closes."""

    def __init__(self, admin: psycopg.Connection, *, quick: bool, own: bool) -> None:
        self.quick = quick
        self.own = own
        self._admin = admin
        self._made: list[str] = []
        self._number = count(1)
        self._inspects = _has_walinspect(admin)
        self._template = self._create("template0")
        with EventStore.open(self.url(self._template)) as store:
            store.migrate()

    def size(self, full: int, quick: int) -> int:
        """Choose how much to do."""
        return quick if self.quick else full

    def url(self, database: str) -> str:
        """Give the URL of a database of this server."""
        return make_conninfo(self._admin.info.dsn, dbname=database, password=self._admin.info.password)

    def database(self, *statements: str) -> str:
        """Make a migrated database, changed by ``statements``, and return its name."""
        name = self._create(self._template)
        with psycopg.connect(self.url(name), autocommit=True, options="-c search_path=convstore") as conn:
            for statement in statements:
                conn.execute(statement.encode())
        return name

    def without(self, **bodies: str) -> str:
        """Make a database whose functions of these names have another SQL body, to see what they cost."""
        name = self._create(self._template)
        with psycopg.connect(self.url(name), autocommit=True, options="-c search_path=convstore") as conn:
            for function, body in bodies.items():
                found = conn.execute(
                    "SELECT format('%%s(%%s) RETURNS %%s', oid::regproc, pg_get_function_arguments(oid),"
                    " pg_get_function_result(oid)) FROM pg_proc WHERE proname = %s"
                    " AND pronamespace = 'convstore'::regnamespace",
                    [function],
                ).fetchone()
                if found is None:
                    raise LookupError(f"the store has no function {function}")
                conn.execute(f"CREATE OR REPLACE FUNCTION {found[0]} LANGUAGE sql AS $${body}$$".encode())
        return name

    def _create(self, template: str) -> str:
        name = f"convstore_bench_{os.getpid()}_{next(self._number)}"
        self._made.append(name)
        self._admin.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
        )
        return name

    def drop(self) -> None:
        """Drop what was made."""
        for name in self._made:
            self._admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    # --- probes ---------------------------------------------------------------------------------

    def lsn(self) -> str:
        """Return how far the WAL is."""
        return str(self._one("SELECT pg_current_wal_insert_lsn()"))

    def wal_since(self, lsn: str) -> tuple[int, int | None]:
        """Return the bytes of WAL since, and how many of them are full-page images (None where nobody can tell)."""
        end = self.lsn()
        total = int(self._one("SELECT pg_wal_lsn_diff(%s, %s)", end, lsn))
        if not self._inspects or not total:
            return total, None
        try:
            images = self._one(
                "SELECT sum(fpi_size) FROM pg_get_wal_stats(%s, least(%s::pg_lsn, pg_current_wal_flush_lsn()))",
                lsn,
                end,
            )
        except (psycopg.errors.InternalError, psycopg.errors.InvalidParameterValue):  # a read's traces, not flushed yet
            return total, None
        return total, int(images or 0)

    def cpu(self, pid: int) -> float | None:
        """Return the seconds of CPU that a backend has had; None where the server is on another machine."""
        try:
            return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
        except (OSError, IndexError, ValueError):
            pass
        if not self.own:
            return None
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)

    def backends(self, application_name: str) -> list[int]:
        """Return the processes that serve connections of this name."""
        query = "SELECT pid FROM pg_stat_activity WHERE application_name = %s ORDER BY pid"
        return [pid for (pid,) in self._admin.execute(query, [application_name])]

    def bytes_of(self, database: str, *relations: str) -> int:
        """Return what tables take on disk, their indexes and TOAST included."""
        with psycopg.connect(self.url(database)) as conn:
            query = "SELECT sum(pg_total_relation_size(r::regclass)) FROM unnest(%s::text[]) r"
            row = conn.execute(query, [list(relations)]).fetchone()
        return int(row[0]) if row else 0

    def _one(self, query: str, *params: object) -> Any:
        row = self._admin.execute(query.encode(), params).fetchone()
        return None if row is None else row[0]

    def machine(self) -> dict[str, Any]:
        """Say where these figures come from."""
        settings = {name: self._one("SELECT current_setting(%s)", name) for name in SETTINGS}
        return {
            "cores": os.cpu_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30),
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "psycopg": f"{psycopg.__version__} ({psycopg.pq.__impl__})",
            "postgres": self._one("SHOW server_version"),
            "server": "own, through a Unix socket" if self.own else "CONVSTORE_BENCH_URL",
            "commit_us": self._commit(),
            "settings": settings,
        }

    def _commit(self) -> int:
        """Return what a commit that reaches the disk takes at least, in microseconds."""
        times = []
        for _ in range(50):
            started = time.perf_counter()
            self._one("SELECT pg_logical_emit_message(true, 'bench', '')")
            times.append(time.perf_counter() - started)
        return round(median(times) * 1e6)

    # --- who writes -----------------------------------------------------------------------------

    @contextmanager
    def bare(self, database: str) -> Iterator[Bare]:
        """Give a plain psycopg connection and a plain table."""
        with psycopg.connect(self.url(database), autocommit=True) as conn:
            conn.execute(
                "CREATE TABLE IF NOT EXISTS public.bare"
                " (stream bigint, version bigint, data json NOT NULL, PRIMARY KEY (stream, version))"
            )
            yield Bare(conn)

    @contextmanager
    def ours(self, database: str, *, prepare: bool = True) -> Iterator[Ours]:
        """Give a store with one connection. ``prepare`` is the like of what the bare limit does."""
        name = f"bench {next(self._number)}"
        chosen = {"CONVSTORE_POOL_SIZE": "1", "CONVSTORE_PREPARE": str(prepare).lower()}
        url = make_conninfo(self.url(database), application_name=name)
        with ExitStack() as stack:
            with mock.patch.dict(os.environ, chosen):
                store = stack.enter_context(EventStore.open(url))
            store.conversation("first").append({"first": True})
            pid = self._one("SELECT pid FROM pg_stat_activity WHERE application_name = %s", name)
            yield Ours(store, pid)


class Bare:
    """The limit: what nobody can beat with one row an item, and what everybody gives up something for."""

    def __init__(self, conn: psycopg.Connection) -> None:
        set_json_dumps(orjson.dumps, conn)
        self._cursor = conn.cursor()
        self.pid = conn.info.backend_pid

    def insert(self, stream: int, version: int, item: object) -> None:
        """Insert one row: prepared, binary, one commit."""
        self._cursor.execute(
            "INSERT INTO bare (stream, version, data) VALUES (%b, %b, %b)", [stream, version, Json(item)], prepare=True
        )

    def copy(self, stream: int, first: int, items: Sequence[object]) -> None:
        """Copy rows in as text, in one commit."""
        lines = [
            b"%d\t%d\t%b\n" % (stream, version, orjson.dumps(item).replace(b"\\", b"\\\\"))
            for version, item in enumerate(items, first)
        ]
        with self._cursor.copy("COPY bare (stream, version, data) FROM STDIN") as copy:
            copy.write(b"".join(lines))

    def read(self, stream: int, limit: int | None) -> list[str]:
        """Give the JSON of the last rows, the newest first."""
        self._cursor.execute(
            "SELECT data::text FROM bare WHERE stream = %b ORDER BY version DESC LIMIT %b",
            [stream, limit],
            prepare=True,
        )
        return [row[0] for row in self._cursor]


class Ours:
    """A store and the process at the other end of its one connection."""

    def __init__(self, store: EventStore, pid: int) -> None:
        self.store = store
        self.pid = pid


@contextmanager
def opened(*, quick: bool, major: int | None = None) -> Iterator[Lab]:
    """Give a lab; ``major`` takes the system's Postgres of that version for a server of our own."""
    with ExitStack() as stack:
        url = os.environ.get("CONVSTORE_BENCH_URL")
        own = url is None
        if url is None:
            if major is not None:
                folder = Path(f"/usr/lib/postgresql/{major}/bin")
                stack.enter_context(mock.patch.object(binaries, "candidates", return_value=[folder]))
            home = Path(tempfile.mkdtemp(prefix="convstore-bench-", dir="/tmp"))
            home.chmod(0o755)
            stack.callback(shutil.rmtree, home, ignore_errors=True)
            server = stack.enter_context(embedded.start(home, durable=True))
            stack.callback(embedded.down, home, force=True)
            url = server.url_for("postgres")
        admin = stack.enter_context(psycopg.connect(url, autocommit=True))
        lab = Lab(admin, quick=quick, own=own)
        stack.callback(lab.drop)
        yield lab


def _has_walinspect(admin: psycopg.Connection) -> bool:
    try:
        admin.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
    except psycopg.Error:
        return False
    return True
