# Generated from repair_async.py by ops/generate_sync.py: edit that one.
"""Repairing the sequences after a restore or a failover, so that no cursor handed out before can hide a new event."""

from __future__ import annotations

import time
from typing import Any, Final, LiteralString, cast

import psycopg
from psycopg import errors as pg
from psycopg.rows import tuple_row

from eventstore.errors import SequencesUnsafe, StoreUnavailable
from eventstore.log import faults
from eventstore.log.pause import pause
from eventstore.log.rows import RepairReport

OVERFLOW: Final = "CV005"
_FAULTS: Final[LiteralString] = "SELECT * FROM convstore.sequence_faults()"
_REPAIR: Final[LiteralString] = "SELECT faults, done, reached, incarnation FROM convstore.repair_sequences()"


def sequence_faults(conn: psycopg.Connection[object]) -> list[str]:
    """Return what is wrong with the sequences, a line each; nothing where the database has no function to tell."""
    try:
        cursor = conn.execute(_FAULTS)
    except (pg.UndefinedFunction, pg.InvalidSchemaName):
        return []
    return [row[0] for row in cast("list[tuple[str]]", cursor.fetchall())]


def repair(conninfo: str, *, timeout: float, dry_run: bool) -> RepairReport:
    """Repair in one transaction, which waits for all that is open and holds off what begins; undo it for a dry run.

    A transaction in the way is waited for in turns of two seconds, so that those behind us get on in between.
    """
    deadline = time.monotonic() + timeout
    try:
        with psycopg.Connection.connect(
            conninfo, autocommit=True, prepare_threshold=None, row_factory=tuple_row
        ) as conn:
            while True:
                try:
                    return _repair(conn, dry_run)
                except (pg.LockNotAvailable, pg.DeadlockDetected) as e:
                    if time.monotonic() > deadline:
                        raise StoreUnavailable(
                            "a transaction that drew or read a position is open, or prepared, and did not end in time; "
                            "SELECT * FROM pg_locks WHERE relation = 'convstore.position'::regclass; end it, try again"
                        ) from e
                pause(0.1)
    except psycopg.OperationalError as e:
        raise faults.unavailable(e) from e


def _repair(conn: psycopg.Connection[tuple[object, ...]], dry_run: bool) -> RepairReport:
    try:
        with conn.transaction(force_rollback=dry_run):
            conn.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            conn.execute("SET LOCAL lock_timeout = '2s'")
            conn.execute("SET LOCAL synchronous_commit = on")
            cursor = conn.execute(_REPAIR)
            found, done, position, incarnation = cast("tuple[Any, ...]", cursor.fetchone())
    except psycopg.Error as e:
        if e.sqlstate == OVERFLOW:
            raise SequencesUnsafe([str(e.diag.message_primary)], str(e.diag.message_hint)) from e
        if isinstance(e, pg.LockNotAvailable | pg.DeadlockDetected):
            raise
        known = faults.translate(
            e, tenant=None, login=conn.info.user, action="repair the sequences", role="convstore_owner"
        )
        if known is None:
            raise
        raise known from e
    return RepairReport(tuple(found), tuple(done), position, incarnation, dry_run)
