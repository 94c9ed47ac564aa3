# Generated from statements_async.py by ops/generate_sync.py: edit that one.
"""Statements of a projection and of its worker, on the worker's own connection."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import psycopg
from psycopg import RawCursor
from psycopg.rows import tuple_row

from eventstore.log import binary
from eventstore.log.connection import Pooled
from projections.projection import Rows, Work


@contextmanager
def connection(pooled: Pooled) -> Iterator[psycopg.Connection[Any]]:
    """Give a connection of one's own, for transactions at READ COMMITTED."""
    if pooled.refusal is not None:
        raise pooled.refusal
    with pooled.beside() as conn:
        binary.register(conn)
        conn.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        yield conn


def run(conn: psycopg.Connection[Any], query: str, params: Sequence[Any] = ()) -> Rows:
    """Run a statement and return its rows, none where it gives none."""
    cursor = RawCursor(conn, row_factory=tuple_row)
    cursor.execute(query, [_param(value) for value in params], binary=True)
    return cursor.fetchall() if cursor.description is not None else []


def carry_out(conn: psycopg.Connection[Any], work: Work, tables: Mapping[str, str]) -> None:
    """Run what a projection's ``apply`` gave; ``tables`` has the names of this build's."""
    if not isinstance(work, Generator):
        for statement in work:
            run(conn, named(statement.sql, tables), statement.params)
        return
    rows: Rows | None = None
    while True:
        try:
            statement = work.send(cast(Rows, rows))
        except StopIteration:
            return
        rows = run(conn, named(statement.sql, tables), statement.params)


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
