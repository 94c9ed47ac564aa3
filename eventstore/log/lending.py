"""Taking a connection from the pool and giving it back, also where the task that does so is cancelled in between.

psycopg-pool loses a connection whose hand-over is cancelled a second time, so the async hand-over runs in a task of its
own that a cancellation does not reach.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

_under_way: set[asyncio.Future[Any]] = set()


async def lend_async(pool: AsyncConnectionPool[Any]) -> psycopg.AsyncConnection[Any]:
    """Take a connection; where the caller is cancelled meanwhile, it goes back as soon as it is there."""
    taking = asyncio.ensure_future(pool.getconn())
    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError:
        _keep(taking)
        taking.add_done_callback(lambda _: None if taking.cancelled() or taking.exception() else _late(pool, taking))
        raise


async def give_async(pool: AsyncConnectionPool[Any], conn: psycopg.AsyncConnection[Any]) -> None:
    """Give a connection back, whatever happens to the caller."""
    await asyncio.shield(_keep(asyncio.ensure_future(pool.putconn(conn))))


def _late(pool: AsyncConnectionPool[Any], taking: asyncio.Future[Any]) -> None:
    _keep(asyncio.ensure_future(pool.putconn(taking.result())))


def _keep(future: asyncio.Future[Any]) -> asyncio.Future[Any]:
    _under_way.add(future)
    future.add_done_callback(_under_way.discard)
    return future


def lend(pool: ConnectionPool[Any]) -> psycopg.Connection[Any]:
    """Take a connection."""
    conn: psycopg.Connection[Any] = pool.getconn()
    return conn


def give(pool: ConnectionPool[Any], conn: psycopg.Connection[Any]) -> None:
    """Give a connection back."""
    pool.putconn(conn)
