"""Rows 101, 107, 108 and 109: rows 1, 7, 8 and 9 through the OpenAI Agents SDK's ``Session``, beside its own sessions.

They are there where the ``bench`` extra is installed. SQLite has no server: of it, only time and client CPU are told.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any
from unittest import mock

import orjson
import psycopg
from agents import SQLiteSession
from agents.extensions.memory import SQLAlchemySession
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import create_async_engine

from eventstore import AsyncEventStore
from eventstore.adapters.openai_agents import ConvstoreSession

from .frame import Row, Sample, Variant, burst
from .items import items
from .lab import Bare, Lab

_number = count(1)


class Maker:
    """Makes sessions of one kind, and runs what is asked of them in one event loop."""

    def __init__(
        self, name: str, make: Callable[[str], Any], loop: asyncio.AbstractEventLoop, pid: Callable[[], int | None]
    ) -> None:
        self.name = name
        self.make = make
        self._loop = loop
        self._pid = pid

    def run(self, work: Awaitable[Any]) -> Any:
        return self._loop.run_until_complete(work)  # type: ignore[arg-type]

    def fill(self, session_id: str, length: int) -> Any:
        session = self.make(session_id)
        source = items()
        for first in range(0, length, 1_000):
            self.run(session.add_items(list(islice(source, min(1_000, length - first)))))
        return session

    def sampler(self, lab: Lab, work: Callable[[], int]) -> Callable[[], Sample]:
        pid = self._pid()
        return _timed(work) if pid is None else burst(lab, pid, work)


def _timed(work: Callable[[], int]) -> Callable[[], Sample]:
    def run() -> Sample:
        client, started = time.process_time(), time.perf_counter()
        n = work()
        took, client = time.perf_counter() - started, time.process_time() - client
        return Sample(value=took / n * 1e6, client_cpu=client / n * 1e6)

    return run


@contextmanager
def makers(lab: Lab) -> Iterator[list[Maker]]:
    """Ours, then the SDK's in Postgres through asyncpg, then the SDK's in a SQLite file; a connection each."""
    with asyncio.Runner() as runner, ExitStack() as stack:
        loop = runner.get_loop()

        def pid_of(database: str, name: str) -> Callable[[], int | None]:
            def find() -> int | None:
                with psycopg.connect(lab.url(database)) as conn:
                    row = conn.execute(
                        "SELECT pid FROM pg_stat_activity WHERE application_name = %s", [name]
                    ).fetchone()
                return None if row is None else int(row[0])

            return find

        database, theirs = lab.database(), lab.database()
        name = f"session {next(_number)}"
        with mock.patch.dict(os.environ, {"CONVSTORE_POOL_SIZE": "1", "CONVSTORE_PREPARE": "true"}):
            opened = AsyncEventStore.open(make_conninfo(lab.url(database), application_name=name))
            store = runner.run(_open(opened))
        stack.callback(lambda: runner.run(store.close()))
        given = conninfo_to_dict(lab.url(theirs))
        url = URL.create("postgresql+asyncpg", given.get("user"), given.get("password"), database=theirs)
        arguments = {"server_settings": {"application_name": f"peer {name}"}, "host": given["host"]}
        engine = create_async_engine(
            url, pool_size=1, max_overflow=0, connect_args=arguments | {"port": int(given.get("port") or 5432)}
        )
        stack.callback(lambda: runner.run(engine.dispose()))
        folder = tempfile.mkdtemp(prefix="convstore-bench-", dir="/tmp")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        file = Path(folder) / "sessions.sqlite"
        made: dict[str, SQLiteSession] = {}
        stack.callback(lambda: [session.close() for session in made.values()])

        def sqlite(session_id: str) -> SQLiteSession:
            return made.setdefault(session_id, SQLiteSession(session_id, file))

        found = [
            Maker("ConvstoreSession", lambda s: ConvstoreSession(s, store=store), loop, pid_of(database, name)),
            Maker(
                PEER,
                lambda s: SQLAlchemySession(s, engine=engine, create_tables=True),
                loop,
                pid_of(theirs, f"peer {name}"),
            ),
            Maker("SQLiteSession, a file", sqlite, loop, lambda: None),
        ]
        for maker in found:
            maker.fill("first", 1)
        yield found


async def _open(store: AsyncEventStore) -> AsyncEventStore:
    return await store


@contextmanager
def one_item(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 101."""
    n = lab.size(30, 3)
    with makers(lab) as (ours, peer, file), lab.bare(lab.database()) as bare:
        versions, source = count(1), items()

        def insert() -> int:
            for item in islice(source, n):
                bare.insert(1, next(versions), item)
            return n

        def adding(maker: Maker) -> Callable[[], int]:
            session = maker.make("one by one")

            def add() -> int:
                for item in islice(source, n):
                    maker.run(session.add_items([item]))
                return n

            return add

        yield [
            *(
                Variant(maker.name, maker.sampler(lab, adding(maker)), goal=maker is ours)
                for maker in (peer, ours, file)
            ),
            Variant("bare INSERT, prepared", burst(lab, bare.pid, insert)),
        ]


@contextmanager
def long_session(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 107: each kind at 10 and at 2,000; sessions at 10 are new in each run."""
    n, long = lab.size(24, 3), lab.size(2_000, 50)
    with makers(lab) as found:
        yield [
            Variant(f"{maker.name}: {length:,}", maker.sampler(lab, work), before, goal=not number and length == long)
            for number, maker in enumerate(found)
            for length, (before, work) in ((10, _shorts(maker, n)), (long, _long(maker, n, long)))
        ]


def _shorts(maker: Maker, n: int) -> tuple[Callable[[], object], Callable[[], int]]:
    sessions: list[Any] = []

    def before() -> None:
        sessions[:] = [maker.fill(f"short {next(_number)}", 10) for _ in range(n)]

    return before, lambda: _add_each(maker, sessions)


def _long(maker: Maker, n: int, length: int) -> tuple[Callable[[], object], Callable[[], int]]:
    sessions = [maker.fill(f"long {next(_number)}", length) for _ in range(4)]
    return lambda: None, lambda: _add_each(maker, [sessions[number % 4] for number in range(n)])


def _add_each(maker: Maker, sessions: Sequence[Any]) -> int:
    for session, item in zip(sessions, items(), strict=False):
        maker.run(session.add_items([item]))
    return len(sessions)


@contextmanager
def read_all(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 108."""
    with _reading(lab, lab.size(2_000, 50), None, lab.size(5, 1)) as variants:
        yield variants


@contextmanager
def read_last(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 109."""
    with _reading(lab, lab.size(20_000, 100), 50, lab.size(30, 2)) as variants:
        yield variants


@contextmanager
def _reading(lab: Lab, length: int, limit: int | None, n: int) -> Iterator[Sequence[Variant]]:
    each = n * (limit or length)
    with makers(lab) as (ours, peer, file), lab.bare(lab.database()) as bare:
        bare.copy(1, 1, list(islice(items(), length)))

        def select() -> int:
            for _ in range(n):
                assert len(_select(bare, limit)) == (limit or length)
            return each

        def reading(maker: Maker) -> Callable[[], int]:
            session = maker.fill("read", length)

            def read() -> int:
                for _ in range(n):
                    assert len(maker.run(session.get_items(limit))) == (limit or length)
                return each

            return read

        yield [
            *(Variant(maker.name, _timed(reading(maker)), goal=maker is ours) for maker in (peer, ours, file)),
            Variant("bare SELECT + orjson", _timed(select)),
        ]


def _select(bare: Bare, limit: int | None) -> list[Any]:
    rows = bare.read(1, limit)
    return [orjson.loads(row) for row in reversed(rows)]


PEER = "SQLAlchemySession, asyncpg"
ROWS = [
    Row(101, "one item into a session", PEER, 1.30, one_item, passes=5),
    Row(
        107,
        "one more item in a session at 2,000 against at 10",
        "ours at 10",
        1.10,
        long_session,
        ratio="cost",
        passes=4,
    ),
    Row(108, "read a session of 2,000 items", PEER, 1.30, read_all, unit="µs/item", passes=3),
    Row(109, "last 50 of a session of 20,000", PEER, 1.30, read_last, unit="µs/item", passes=3),
]
