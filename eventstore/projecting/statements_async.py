"""Statements of a projection and of its worker, on the worker's own connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import psycopg
from psycopg import AsyncRawCursor
from psycopg.rows import tuple_row

from eventstore.log import binary
from eventstore.log.connection_async import AsyncPooled
from projections.projection import Rows, Work


@asynccontextmanager
async def connection_async(pooled: AsyncPooled) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Give a connection of one's own, for transactions at READ COMMITTED."""
    if pooled.refusal is not None:
        raise pooled.refusal
    async with pooled.beside() as conn:
        binary.register(conn)
        await conn.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        yield conn


async def run_async(conn: psycopg.AsyncConnection[Any], query: str, params: Sequence[Any] = ()) -> Rows:
    """Run a statement and return its rows, none where it gives none."""
    cursor = AsyncRawCursor(conn, row_factory=tuple_row)
    await cursor.execute(query, [_param(value) for value in params], binary=True)
    return await cursor.fetchall() if cursor.description is not None else []


async def carry_out_async(conn: psycopg.AsyncConnection[Any], work: Work, tables: Mapping[str, str]) -> None:
    """Run what a projection's ``apply`` gave; ``tables`` has the names of this build's."""
    if not isinstance(work, Generator):
        for statement in work:
            await run_async(conn, named(statement.sql, tables), statement.params)
        return
    rows: Rows | None = None
    while True:
        try:
            statement = work.send(cast(Rows, rows))
        except StopIteration:
            return
        rows = await run_async(conn, named(statement.sql, tables), statement.params)


def named(text: str, tables: Mapping[str, str]) -> str:
    """Put a build's tables in the place of ``{table}``."""
    for name, place in tables.items():
        text = text.replace(f"{{{name}}}", place)
    return text


def _param(value: Any) -> Any:
    """Write a list of text in one go: psycopg visits each element, and takes one of None only for another type."""
    if type(value) is list and value and all(v is None or type(v) is str for v in value):
        return binary.texts(value) or binary.nulls(len(value))
    return value
