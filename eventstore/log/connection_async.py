"""How calls reach Postgres: through the store's pool, where a lost connection is made good, or on the caller's own.

Each call is one statement that commits by itself. A call whose connection was lost may have been carried out, so it is
sent again with ``again=`` parameters that make the server look for what it wrote the first time.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, LiteralString
from weakref import WeakSet

import psycopg
from psycopg import AsyncRawCursor
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import DeadlockDetected, SerializationFailure
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_random_exponential,
)

from eventstore.errors import (
    ConvstoreError,
    InvalidName,
    SchemaOutOfDate,
    SequencesUnsafe,
    StoreUnavailable,
    TransactionAborted,
    UnsafeSetting,
)
from eventstore.log import binary, faults
from eventstore.log.caller_async import AsyncCaller as AsyncCaller
from eventstore.log.caller_async import Closes, Params
from eventstore.log.caller_async import Row as Row
from eventstore.log.coalescing import CoalescingWriter  # async only
from eventstore.log.deadline import AsyncDeadline
from eventstore.log.hints_async import AsyncHints
from eventstore.log.lending import give_async, lend_async
from eventstore.telemetry import Telemetry, logger

_ADAPTERS = binary.adapters()


class _Lost(Exception):
    """The connection went away under a call that can be sent again."""


class AsyncPooled:
    """The store's own connections."""

    commits = True

    def __init__(
        self, url: str, *, timeout: float, size: int, prepare: bool, telemetry: Telemetry, hint: bool = False
    ) -> None:
        if not isinstance(url, str):
            raise InvalidName("url", url, f"a libpq URL is a str, not {type(url).__name__}")
        try:
            self.conninfo = make_conninfo(url, **_defaults(url, timeout))
        except psycopg.ProgrammingError as e:
            raise InvalidName("url", url, f"no libpq URL, such as postgresql://user@host/database: {e}") from None
        self.timeout = timeout
        self.prepare = prepare
        self.login = ""
        self.refusal: SchemaOutOfDate | SequencesUnsafe | None = None
        self.subscriptions: WeakSet[Closes] = WeakSet()
        self.hints = AsyncHints(self.beside)
        self._hint = hint
        self._process = os.getpid()
        self.telemetry = telemetry
        self.writer: CoalescingWriter | None = CoalescingWriter(self, size)  # async only
        self._deadline = AsyncDeadline(timeout)
        # psycopg-pool's hand-over costs about 10 µs, so the connection used last stays out of it. Both lists
        # are only appended to and popped from, which threads may do at once.
        self._hot: list[AsyncRawCursor[Row]] = []
        self._wanting: list[None] = []
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection[Row]] = AsyncConnectionPool(
            self.conninfo,
            min_size=1,
            max_size=size,
            timeout=timeout,
            reconnect_timeout=1.0,
            reconnect_failed=self._reconnect_async,
            open=False,
            name="convstore",
            kwargs={
                "autocommit": True,
                "prepare_threshold": 2 if prepare else None,
                "row_factory": tuple_row,
            },
        )

    async def open(self) -> None:
        """Connect once, so that a wrong URL says so at once and in libpq's words; then open the pool."""
        async with self.beside() as conn:
            self.login = conn.info.user
        await self._pool.open()
        self.telemetry.pools.add(self._pool)

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[psycopg.AsyncConnection[Row]]:
        """Give a connection that is not the pool's."""
        try:
            conn = await psycopg.AsyncConnection.connect(self.conninfo, autocommit=True, prepare_threshold=None)
        except psycopg.OperationalError as e:
            raise faults.unavailable(e) from e
        async with conn:
            yield conn

    async def close(self) -> None:
        """Return the connections. In a forked child they are the parent's, and left alone."""
        if os.getpid() != self._process:
            return
        for subscription in list(self.subscriptions):
            subscription.close()
        await self.hints.close()
        self._deadline.close()
        if self.writer is not None:  # async only
            self.writer.close()  # async only
        while self._hot:
            await give_async(self._pool, self._hot.pop().connection)
        await self._pool.close()

    @property
    def closed(self) -> bool:
        """Whether no call can succeed any more."""
        return self._pool.closed or os.getpid() != self._process

    async def _reconnect_async(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Row]]) -> None:
        """Go on trying once a second: left alone, the pool waits twice as long after each failure."""
        if not pool.closed and pool.get_stats()["pool_size"] == 0:
            await pool.resize(0, pool.max_size)
            await pool.resize(1, pool.max_size)

    async def call(
        self,
        query: LiteralString,
        params: Params,
        *,
        tenant: str | None,
        action: str,
        role: str,
        again: Params | None = None,
    ) -> list[Row]:
        """Run a statement that commits by itself; send it again where the connection is lost, until the time-out.

        Raises ``StoreUnavailable`` after that, with ``outcome="unknown"`` where it may have been carried out.
        """
        rows = await self._carried_out(query, params, tenant, action, role, again)
        if self._hint and role == "convstore_writer":
            self.hints.send()
        return rows

    async def _carried_out(
        self, query: LiteralString, params: Params, tenant: str | None, action: str, role: str, again: Params | None
    ) -> list[Row]:
        if self.refusal is not None:
            raise self.refusal
        try:
            return await self._once(query, params, tenant, action, role)
        except _Lost as e:
            self.telemetry.retries.inc()
            logger().warning(
                "connection lost, sending again",
                action=action,
                tenant=tenant,
                error=str(e.__cause__),
            )
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(_Lost),
                wait=wait_random_exponential(multiplier=0.02, max=1.0),
                stop=stop_after_delay(self.timeout),
                reraise=True,
            ):
                with attempt:
                    return await self._once(query, params if again is None else again, tenant, action, role)
        except _Lost as e:
            raise faults.unavailable(e.__cause__ or e, "unknown") from e.__cause__
        except StoreUnavailable as e:
            raise StoreUnavailable(e.reason, "unknown") from e
        raise AssertionError("unreachable: the loop returns or raises")

    async def _once(
        self, query: LiteralString, params: Params, tenant: str | None, action: str, role: str
    ) -> list[Row]:
        self.check_process()
        cursor = await self._borrow()
        conn = cursor.connection
        try:
            async with self._deadline.over(conn):
                await cursor.execute(query, params, binary=True)
                return await cursor.fetchall()
        except psycopg.Error as e:
            # A statement that commits by itself has no snapshot of its own to be at odds with: it is just sent again.
            if faults.lost(e, conn) or isinstance(e, SerializationFailure):
                raise _Lost from e
            known = faults.translate(e, tenant=tenant, login=self.login, action=action, role=role)
            if known is None:
                raise
            raise known from e
        except TimeoutError as e:
            raise StoreUnavailable(f"the server did not answer within {self.timeout:g} s", "unknown") from e
        finally:
            await self._give_back(cursor)

    def check_process(self) -> None:
        """Refuse a child of the process that opened the store."""
        if os.getpid() != self._process:
            raise StoreUnavailable(
                "this store was opened before a fork, its connections are the parent's; open one here"
            )

    async def _borrow(self) -> AsyncRawCursor[Row]:
        """Give a connection's cursor: the one that was used last, or one of the pool's."""
        try:
            return self._hot.pop()
        except IndexError:
            pass
        self._wanting.append(None)
        try:
            if self._hot:
                return self._hot.pop()
            conn = await self._from_pool()
        except IndexError:
            conn = await self._from_pool()
        finally:
            self._wanting.pop()
        return _Cursor(conn, row_factory=tuple_row)

    async def _give_back(self, cursor: AsyncRawCursor[Row]) -> None:
        """Keep the connection at hand for the next call, but not where somebody waits at the pool."""
        conn = cursor.connection
        busy = conn.closed or conn.pgconn.transaction_status != TransactionStatus.IDLE
        if busy or self._hot or self._wanting or self._pool.closed:
            await give_async(self._pool, conn)
            return
        self._hot.append(cursor)
        if self._wanting:  # came between the look and the append, and may not have seen it
            with contextlib.suppress(IndexError):
                await give_async(self._pool, self._hot.pop().connection)

    async def _connection(self) -> psycopg.AsyncConnection[Row]:
        cursor = await self._borrow()
        return cursor.connection

    async def _from_pool(self) -> psycopg.AsyncConnection[Row]:
        try:
            return await lend_async(self._pool)
        except PoolTimeout as e:
            raise StoreUnavailable(f"no connection within {self.timeout:g} s: {e}") from e
        except PoolClosed as e:
            raise StoreUnavailable("the store is closed") from e

    async def _live_connection(self) -> psycopg.AsyncConnection[Row]:
        """Give a connection that answers; one that the server closed while it was idle is replaced."""
        deadline = time.monotonic() + self.timeout
        while True:
            conn = await self._connection()
            alive = False
            try:
                await self._pool.check_connection(conn)
                alive = True
            except psycopg.OperationalError as e:
                if time.monotonic() > deadline:
                    raise faults.unavailable(e) from e
            finally:
                if not alive:
                    await give_async(self._pool, conn)
            if alive:
                return conn

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[psycopg.AsyncConnection[Row]]:
        """Give a connection for one transaction; it commits where the block ends well."""
        if self.refusal is not None:
            raise self.refusal
        self.check_process()
        conn = await self._live_connection()
        try:
            try:
                async with conn.transaction():
                    yield conn
                    _check_alive(conn)
                if self._hint:
                    self.hints.send()
            except psycopg.OperationalError as e:
                if isinstance(e, DeadlockDetected):
                    raise StoreUnavailable("the transaction and another one waited for each other; run it again") from e
                if faults.lost(e, conn):
                    raise faults.unavailable(e, "unknown") from e
                raise
        finally:
            await give_async(self._pool, conn)


class AsyncBound:
    """A connection of the caller, with whatever transaction it is in."""

    commits = False
    writer: CoalescingWriter | None = None  # async only

    def __init__(self, conn: psycopg.AsyncConnection[Any]) -> None:
        self._conn = conn
        self.hints: AsyncHints | None = None
        self.subscriptions: WeakSet[Closes] = WeakSet()

    @property
    def closed(self) -> bool:
        """Whether the caller has closed it."""
        return self._conn.closed

    async def call(
        self,
        query: LiteralString,
        params: Params,
        *,
        tenant: str | None,
        action: str,
        role: str,
        again: Params | None = None,  # noqa: ARG002
    ) -> list[Row]:
        """Run a statement in the caller's transaction."""
        encoding = (self._conn.pgconn.parameter_status(b"client_encoding") or b"UTF8").decode()
        if encoding != "UTF8":
            raise UnsafeSetting(
                f"client_encoding is {encoding}: the server would take our UTF-8 for something else",
                "SET client_encoding = 'UTF8' on this connection",
            )
        try:
            return await fetch(self._conn, query, params)
        except psycopg.Error as e:
            known: ConvstoreError | None = None
            if not self._conn.closed:
                login = self._conn.info.user
                known = faults.translate(e, tenant=tenant, login=login, action=action, role=role)
            if known is None:
                raise
            raise known from e

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Give the caller's connection, in a savepoint where it is in a transaction."""
        async with self._conn.transaction():
            yield self._conn
            _check_alive(self._conn)


def _check_alive(conn: psycopg.AsyncConnection[Any]) -> None:
    """Refuse to end a block well whose transaction has failed: Postgres would answer COMMIT with a silent ROLLBACK."""
    if conn.closed or conn.pgconn.transaction_status == TransactionStatus.UNKNOWN:
        raise StoreUnavailable("the connection was lost inside the transaction")
    if conn.pgconn.transaction_status == TransactionStatus.INERROR:
        raise TransactionAborted


class _Cursor(AsyncRawCursor[Row]):
    """A cursor with our adapters, whatever its connection was set up with."""

    @property
    def adapters(self) -> AdaptersMap:
        """Return ours."""
        return _ADAPTERS


async def fetch(conn: psycopg.AsyncConnection[Any], query: LiteralString, params: Params) -> list[Row]:
    """Run one statement and fetch its rows, whatever factories and adapters the connection was set up with."""
    cursor = _Cursor(conn, row_factory=tuple_row)
    await cursor.execute(query, params, binary=True)
    return await cursor.fetchall()


def _defaults(url: str, timeout: float) -> dict[str, Any]:
    """Give what the URL leaves open; a dead network is noticed within the time-out."""
    given = conninfo_to_dict(url)
    defaults: dict[str, Any] = {
        "application_name": "convstore",
        "client_encoding": "UTF8",
        "connect_timeout": max(2, round(timeout)),
        "keepalives_idle": 30,
        "tcp_user_timeout": round(timeout * 1000),
    }
    return {key: value for key, value in defaults.items() if key not in given or key == "client_encoding"}
