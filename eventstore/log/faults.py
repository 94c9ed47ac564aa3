"""What Postgres and the network answer, as errors of the product."""

from __future__ import annotations

from typing import Literal

import psycopg
from psycopg import errors as pg

from eventstore.errors import (
    ConvstoreError,
    IsolationLevelError,
    NotPermitted,
    SchemaOutOfDate,
    StoreUnavailable,
    TenantRequired,
    UnsafeSetting,
)

NOT_BOUND = "CV001"
UNSAFE = "CV002"
ISOLATION = "CV003"
CURSOR = "CV004"

_STARTING = (pg.CannotConnectNow, pg.TooManyConnections, pg.AdminShutdown, pg.CrashShutdown)


def lost(e: psycopg.Error, conn: psycopg.Connection[object] | psycopg.AsyncConnection[object]) -> bool:
    """Tell whether the connection is gone, or the server asked to come again: the same call can be repeated."""
    return conn.closed or isinstance(e, (*_STARTING, pg.DeadlockDetected))


def unavailable(e: BaseException, outcome: Literal["not_done", "unknown"] = "not_done") -> StoreUnavailable:
    """Say that the server can't be reached, in the server's or libpq's own words."""
    words = e.diag.message_primary if isinstance(e, psycopg.Error) else None  # without the statement that it was in
    text = " ".join((words or str(e)).split()) or type(e).__name__
    return StoreUnavailable(f"the store can't be reached: {text}", outcome)


def translate(e: psycopg.Error, *, tenant: str | None, login: str, action: str, role: str) -> ConvstoreError | None:
    """Return our error for one of Postgres; None where the caller should see Postgres' own.

    ``action`` and ``role`` say what was being done and which role may do it.
    """
    if e.sqlstate == NOT_BOUND:
        return TenantRequired(tenant, login)
    if e.sqlstate == UNSAFE:
        return UnsafeSetting(str(e.diag.message_primary), str(e.diag.message_hint))
    if e.sqlstate == ISOLATION:
        return IsolationLevelError(f"{e.diag.message_primary}; {e.diag.message_hint}")
    if isinstance(e, pg.InsufficientPrivilege):
        return NotPermitted(login, action, role)
    if isinstance(e, pg.InvalidSchemaName | pg.UndefinedFunction | pg.UndefinedTable):
        return SchemaOutOfDate(
            f"the database is not migrated for this code ({e.diag.message_primary}); run: convstore migrate"
        )
    if isinstance(e, pg.ReadOnlySqlTransaction):
        return StoreUnavailable(f"the server only reads ({e.diag.message_primary}); connect to the primary", "not_done")
    if isinstance(e, pg.QueryCanceled | pg.LockNotAvailable):
        return StoreUnavailable(f"the server did not answer in time: {e.diag.message_primary}", "not_done")
    if isinstance(e, pg.DiskFull | pg.OutOfMemory | pg.TooManyConnections | pg.CannotConnectNow):
        return StoreUnavailable(f"the server refused: {e.diag.message_primary}", "not_done")
    return None
