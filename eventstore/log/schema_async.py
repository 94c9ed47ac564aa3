"""The migration runner: numbered files once, functions whenever they changed, safe from many processes at once.

One process at a time works, by an advisory lock that is polled: waiting inside ``pg_advisory_lock`` would hold a
snapshot that ``CREATE INDEX CONCURRENTLY`` of the process at work waits for. The lock belongs to a transaction, so it
holds behind a transaction pooler too, and goes with a killed process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import LiteralString, cast

import psycopg
from psycopg import errors as pg
from psycopg import sql
from psycopg.rows import tuple_row

from eventstore.errors import MigrationFailed
from eventstore.log import faults
from eventstore.log.pause import pause_async
from eventstore.log.sql_files import FileState, SqlFile, SqlFiles, refuse_unfit

LOCK = 0x636F6E7673746F72  # "convstor"
_TRY_LOCK = sql.SQL(
    "SELECT pg_try_advisory_xact_lock({}), set_config('idle_in_transaction_session_timeout', '0', true)"
).format(LOCK)
_RECORD: dict[str, LiteralString] = {
    "migration": "INSERT INTO convstore.schema_migrations (name, checksum) VALUES (%s, %s)",
    "function": "INSERT INTO convstore.schema_functions (name, checksum) VALUES (%s, %s) ON CONFLICT (name)"
    " DO UPDATE SET checksum = excluded.checksum, applied_at = clock_timestamp()",
}
_APPLIED: dict[str, LiteralString] = {
    "migration": "SELECT name, checksum FROM convstore.schema_migrations",
    "function": "SELECT name, checksum FROM convstore.schema_functions",
}
# A killed process takes a statement that runs for hours, and its locks, with it; not every platform can tell.
_NOTICE_DEATH: LiteralString = """DO $$
BEGIN PERFORM set_config('client_connection_check_interval', '1s', true);
EXCEPTION WHEN invalid_parameter_value THEN NULL; END $$"""
_TOLD: dict[str, LiteralString] = {  # for logins without a right on tables
    "migration": "SELECT split_part(f, ' ', 1), split_part(f, ' ', 2)"
    " FROM convstore.store_state() AS s, unnest(s.migrations) AS f",
    "function": "SELECT split_part(f, ' ', 1), split_part(f, ' ', 2)"
    " FROM convstore.store_state() AS s, unnest(s.functions) AS f",
}


async def status_async(conn: psycopg.AsyncConnection[object], files: SqlFiles) -> list[FileState]:
    """Compare the files with what the database has."""
    migrations = await _applied(conn, "migration")
    functions = await _applied(conn, "function")
    states = []
    for file in files.migrations:
        stored = migrations.pop(file.name, None)
        state = "pending" if stored is None else "applied" if stored == file.checksum else "edited"
        states.append(FileState(file.name, state))
    states.extend(FileState(name, "unknown") for name in sorted(migrations))
    for file in files.functions:
        stored = functions.get(file.name)
        state = "pending" if stored is None else "applied" if stored == file.checksum else "changed"
        states.append(FileState(file.name, state))
    return states


async def migrate_async(
    conninfo: str,
    files: SqlFiles,
    *,
    timeout: float,
    dry_run: bool = False,
    notice: Callable[[str], None] | None = None,
) -> list[str]:
    """Apply what is missing and return the names, in order.

    ``notice`` is called with what the files have to say, such as a statement that an administrator has to run; more
    than once where a file is tried again.

    Raises ``MigrationFailed`` where a file fails or ``timeout`` seconds pass (the database is then as it was before
    that file), ``SchemaOutOfDate`` where the database is newer than this code.
    """
    deadline = time.monotonic() + timeout
    try:
        async with await psycopg.AsyncConnection.connect(
            conninfo, autocommit=True, prepare_threshold=None, row_factory=tuple_row
        ) as work:
            if notice is not None:
                work.add_notice_handler(lambda diag: _tell(diag, notice))
            encoding = work.info.parameter_status("server_encoding")
            if encoding != "UTF8":
                raise MigrationFailed(
                    f"the database's encoding is {encoding}, and the log's bytes are UTF-8; "
                    "make one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
                )
            if dry_run:
                states = await status_async(work, files)
                refuse_unfit(states)
                return [s.name for s in states if s.state != "applied"]
            async with await psycopg.AsyncConnection.connect(conninfo, prepare_threshold=None) as lock:
                await _take_lock(lock, deadline)
                return await _apply_missing(work, files, deadline)
    except psycopg.OperationalError as e:
        raise faults.unavailable(e) from e


def _tell(diag: pg.Diagnostic, notice: Callable[[str], None]) -> None:
    """Pass on what a file raised itself; what Postgres adds about IF EXISTS and the like is noise."""
    if diag.source_function == "exec_stmt_raise" and diag.message_primary:
        notice(diag.message_primary)


async def _take_lock(conn: psycopg.AsyncConnection[object], deadline: float) -> None:
    while True:
        # With no parameters, so by the simple protocol: the other one keeps the snapshot until the next statement.
        cursor = await conn.execute(_TRY_LOCK)
        row = cast("tuple[bool, str]", await cursor.fetchone())
        if row[0]:
            return
        await conn.rollback()
        if time.monotonic() > deadline:
            raise MigrationFailed("another process has been migrating this database for the whole time-out; try again")
        await pause_async(0.05)


async def _apply_missing(conn: psycopg.AsyncConnection[object], files: SqlFiles, deadline: float) -> list[str]:
    states = await status_async(conn, files)
    refuse_unfit(states)
    wanted = {s.name for s in states if s.state != "applied"}
    migrations = [file for file in files.migrations if file.name in wanted]
    functions = [file for file in files.functions if file.name in wanted]
    if functions or migrations:  # rights follow what was made anew
        functions += [file for file in files.functions if file.name == "roles.sql" and file not in functions]
    together: list[SqlFile] = []
    for file in migrations:
        if file.transactional:
            together.append(file)
            continue
        await _in_one_transaction(conn, files.bootstrap, together, [], deadline)
        together = []
        await _alone(conn, file)
    if together or functions:
        await _in_one_transaction(conn, files.bootstrap, together, functions, deadline)
    return [file.name for file in migrations] + [file.name for file in functions if file.name in wanted]


async def _in_one_transaction(
    conn: psycopg.AsyncConnection[object],
    bootstrap: str,
    migrations: Sequence[SqlFile],
    functions: Sequence[SqlFile],
    deadline: float,
) -> None:
    while True:
        name = "bootstrap.sql"
        try:
            async with conn.transaction():
                # For a table that somebody uses: then back off, so that we don't hold up those behind us.
                await conn.execute("SET LOCAL lock_timeout = '2s'")
                await conn.execute(_NOTICE_DEATH)
                await conn.execute(bootstrap)
                await conn.execute("SET LOCAL search_path = convstore")
                await conn.execute("SET LOCAL check_function_bodies = off")
                await conn.execute("SET LOCAL client_min_messages = notice")
                for file in migrations:
                    name = file.name
                    await conn.execute(file.text)
                    await _record(conn, "migration", file)
                for file in functions:
                    name = file.name
                    await conn.execute(file.text)
                    if name != "roles.sql" or await _roles_exist(conn):
                        await _record(conn, "function", file)
        except psycopg.Error as e:
            if not _passing(e):
                raise MigrationFailed(f"{name}: {e}; nothing of it was applied") from e
            if time.monotonic() > deadline:
                raise MigrationFailed(
                    f"{name}: {e}; it was in the way for the whole time-out, nothing was applied"
                ) from e
            await pause_async(0.1)
        else:
            return


async def _alone(conn: psycopg.AsyncConnection[object], file: SqlFile) -> None:
    """Run a file whose one statement can't be in a transaction; what a killed run left is undone first."""
    try:
        if file.before is not None:
            await conn.execute(file.before)
        await conn.execute(file.text)
        await _record(conn, "migration", file)
    except psycopg.Error as e:
        raise MigrationFailed(f"{file.name}: {e}; migrate again: it begins by undoing what was left") from e


def _passing(e: psycopg.Error) -> bool:
    """Tell whether an error comes from another process at the same work, or in the way, and may be gone next time."""
    if isinstance(e, pg.LockNotAvailable | pg.DeadlockDetected | pg.SerializationFailure):
        return True
    # Roles and grants belong to the cluster: two databases of one that migrate at once meet in its catalogues.
    return "tuple concurrently" in str(e) or (
        isinstance(e, pg.UniqueViolation | pg.DuplicateObject) and "pg_" in str(e)
    )


async def _roles_exist(conn: psycopg.AsyncConnection[object]) -> bool:
    """Tell whether nobody has to make roles by hand and migrate again, which would then give them their rights."""
    cursor = await conn.execute(
        "SELECT count(*) = 5 FROM pg_roles WHERE rolname ~ '^convstore_(owner|writer|reader|projector|auditor)$'"
    )
    row = cast("tuple[bool]", await cursor.fetchone())
    return row[0]


async def _record(conn: psycopg.AsyncConnection[object], kind: str, file: SqlFile) -> None:
    await conn.execute(_RECORD[kind], [file.name, file.checksum])


async def _applied(conn: psycopg.AsyncConnection[object], kind: str) -> dict[str, str]:
    cursor = await conn.execute("SELECT to_regclass('convstore.schema_functions') IS NOT NULL")
    row = cast("tuple[bool]", await cursor.fetchone())
    if not row[0]:
        return {}
    try:
        cursor = await conn.execute(_APPLIED[kind])
    except pg.InsufficientPrivilege:
        cursor = await conn.execute(_TOLD[kind])
    return dict(cast("list[tuple[str, str]]", await cursor.fetchall()))
