# Generated from builds_async.py by ops/generate_sync.py: edit that one.
"""Builds of projections: the tables that each fills, and the views that show the one that is live.

A build has tables of its own, so the next one grows beside it unseen. The switch replaces the views and says so in the
build's row, in one transaction; a view reads that row in the same snapshot as its table (``build_shown()``).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, LiteralString, cast

import psycopg
from psycopg import errors as pg
from psycopg import sql

from eventstore.errors import ProjectionRefused
from eventstore.projecting.rows import Build
from eventstore.projecting.statements import named, run
from projections.projection import Projection

STUCK: Final = "caught up, but"
"""How the error begins of a build that can't be shown until somebody does something."""
_LOCK: Final = 0x636F6E7670726F6A  # "convproj"
_COLUMNS: Final[LiteralString] = (
    "build, name, version, state, tables, cursor, position, applied, parked, accept_parked, failures, stopped, error,"
    " worker, updated_at"
)
_ALL: Final[LiteralString] = f"SELECT {_COLUMNS} FROM convstore.projections ORDER BY name, build"
# The tables and how far they are go together, so a crash of the server may take both back some milliseconds. The claim
# of a worker that was killed in a long statement ends within a second, of one that hangs in a minute.
_CLAIM: Final[LiteralString] = f"""SELECT {_COLUMNS}, set_config('synchronous_commit', 'off', true),
    set_config('idle_in_transaction_session_timeout', '60s', true),
    set_config('client_connection_check_interval', $2, true) FROM convstore.projections
    WHERE build = $1 AND state <> 'retired' AND NOT stopped AND retry_at <= clock_timestamp()
    FOR UPDATE SKIP LOCKED"""
_LOCKED: Final[LiteralString] = f"SELECT {_COLUMNS} FROM convstore.projections WHERE build = $1 FOR UPDATE"
_LIVE: Final[LiteralString] = f"""SELECT {_COLUMNS} FROM convstore.projections
    WHERE name = $1 AND state = 'live' FOR UPDATE"""
_NEW: Final[LiteralString] = f"""INSERT INTO convstore.projections (name, version, tables, views, accept_parked)
    VALUES ($1, $2, $3, $4, $5) RETURNING {_COLUMNS}"""
_TAKEN: Final[LiteralString] = """SELECT p.name, v FROM convstore.projections p, unnest(p.views) v
    WHERE p.name <> $1 AND p.state <> 'retired' AND v = ANY ($2::text[]) LIMIT 1"""
_RETIRE: Final[LiteralString] = "UPDATE convstore.projections SET state = 'retired' WHERE build = $1"
_GO_LIVE: Final[LiteralString] = """UPDATE convstore.projections SET state = 'live', live_at = clock_timestamp()
    WHERE build = $1"""
_NEWLY_PARKED: Final[LiteralString] = """SELECT count(*) FROM convstore.parked n WHERE n.build = $1
    AND NOT EXISTS (SELECT FROM convstore.parked o WHERE o.build = $2 AND o.position = n.position)"""
_ROLES: Final[LiteralString] = """SELECT r.rolname::text, pg_has_role(current_user, r.oid, 'MEMBER')
    FROM pg_roles r WHERE r.rolname IN ('convstore_projector', 'convstore_reader', 'convstore_auditor')"""
_WITHOUT_TENANT: Final[LiteralString] = """SELECT t FROM unnest($1::text[]) t WHERE NOT EXISTS (SELECT FROM pg_attribute
    WHERE attrelid = to_regclass('convstore_builds.' || t) AND attname = 'tenant' AND NOT attisdropped)"""
_POLICY: Final = sql.SQL(
    "CREATE POLICY tenant ON {} FOR SELECT USING"
    " (tenant = (SELECT t.name FROM convstore.tenants t WHERE t.tenant_id = (SELECT convstore.visible_tenant())))"
)


def read_builds(conn: psycopg.Connection[Any]) -> list[Build]:
    """Return all builds, those to be removed included."""
    return [Build(*row) for row in run(conn, _ALL, [])]


def look_every(conn: psycopg.Connection[Any]) -> str:
    """Tell how often the server can look whether its client lives, in a long statement; not every platform can."""
    try:
        with conn.transaction():
            run(conn, "SELECT set_config('client_connection_check_interval', '1s', true)")
    except pg.InvalidParameterValue:
        return "0"
    return "1s"


def claim(conn: psycopg.Connection[Any], build: int, look_every: str) -> Build | None:
    """Take a build for this transaction; None where another worker has it, or nothing is to be done now."""
    rows = run(conn, _CLAIM, [build, look_every])
    return Build(*rows[0][:-3]) if rows else None


def locked(conn: psycopg.Connection[Any], build: int) -> Build | None:
    """Take a build for this transaction, and wait for it; None where it is gone."""
    rows = run(conn, _LOCKED, [build])
    return Build(*rows[0]) if rows else None


def claim_live(conn: psycopg.Connection[Any], name: str) -> Build | None:
    """Take a projection's live build for this transaction, and wait for it."""
    rows = run(conn, _LIVE, [name])
    return Build(*rows[0]) if rows else None


def register(
    conn: psycopg.Connection[Any], projection: Projection, *, again: bool = False, accept_parked: bool = False
) -> Build | None:
    """Make sure that there is a build of this version, and make its tables where it is new; in one transaction.

    ``again``: a new one beside the live one of the same version. None where a newer version is there.

    Raises:
        ProjectionRefused: the tables can't be made, or another projection has a view of the same name.
    """
    name, version = projection.name, projection.version
    with conn.transaction():
        run(conn, "SELECT pg_advisory_xact_lock($1::bigint)::text", [_LOCK])
        mine = [b for b in read_builds(conn) if b.name == name and b.state != "retired"]
        under_way = next((b for b in mine if b.state == "building"), None)
        same = [b for b in mine if b.version == version]
        if same and not again:
            return same[-1]
        if any(b.version > version for b in mine):
            return None
        views = list(projection.shown())
        taken = run(conn, _TAKEN, [name, views])
        if taken:
            whose, view = taken[0]
            raise ProjectionRefused(name, f"projection {whose!r} has a view {view!r} already; name another")
        if under_way is not None:
            run(conn, _RETIRE, [under_way.build])
        (row,) = run(conn, _NEW, [name, version, list(projection.tables), views, accept_parked])
        made = Build(*row)
        try:
            make_tables(conn, projection, made.build)
        except (pg.ProgrammingError, pg.DataError, pg.NotSupportedError) as e:
            if isinstance(e, pg.InsufficientPrivilege):
                raise
            raise ProjectionRefused(name, f"its tables can't be made: {e.diag.message_primary or e}") from e
        return made


def make_tables(conn: psycopg.Connection[Any], projection: Projection, build: int) -> None:
    """Make a build's tables: a tenant's rows show to who may see that tenant, all of them to projectors."""
    roles, tables = _roles(conn), places(projection.tables, build)
    for table, body in projection.tables.items():
        run(conn, f"CREATE TABLE {tables[table]} ({body})")
    for statement in projection.indexes:
        run(conn, named(statement, tables))
    names = [f"{table}_{build}" for table in projection.tables]
    bare = run(conn, _WITHOUT_TENANT, [names])
    if bare:
        raise ProjectionRefused(
            projection.name, f"table {bare[0][0].rpartition('_')[0]!r} has no column tenant, by which rows are shown"
        )
    for name in names:
        relation = sql.Identifier("convstore_builds", name)
        conn.execute(sql.SQL("ALTER TABLE {} ENABLE ROW LEVEL SECURITY").format(relation))
        conn.execute(_POLICY.format(relation))
        _hand_over(conn, sql.SQL("TABLE"), relation, roles)


def _hand_over(conn: psycopg.Connection[Any], kind: sql.SQL, relation: sql.Identifier, roles: dict[str, bool]) -> None:
    """Let readers read, and every projector own what this one made."""
    for role in ("convstore_reader", "convstore_auditor"):
        if role in roles:
            conn.execute(sql.SQL("GRANT SELECT ON {} TO {}").format(relation, sql.Identifier(role)))
    if roles.get("convstore_projector"):
        conn.execute(sql.SQL("ALTER {} {} OWNER TO convstore_projector").format(kind, relation))


def _roles(conn: psycopg.Connection[Any]) -> dict[str, bool]:
    return dict(cast("list[tuple[str, bool]]", run(conn, _ROLES, [])))


def switch(conn: psycopg.Connection[Any], projection: Projection, build: Build, live: Build | None) -> str | None:
    """Show a build in place of the live one, both taken by this transaction; say why not, where that can't be now."""
    if live is not None and not build.accept_parked:
        ((more,),) = run(conn, _NEWLY_PARKED, [build.build, live.build])
        if more:
            return (
                f"{STUCK} of the events that the live build holds {more} are parked; mend it and run: convstore project"
                f" replay-parked {build.name}, or build it again with --accept-parked"
            )
    try:
        with conn.transaction():
            conn.execute("SET LOCAL lock_timeout = '200ms'")  # readers queue behind us meanwhile
            if live is not None:
                run(conn, _RETIRE, [live.build])
            run(conn, _GO_LIVE, [build.build])
            _show(conn, projection, build.build, live)
            conn.execute("SET LOCAL lock_timeout = 0")
    except pg.LockNotAvailable:
        return "caught up; a transaction that reads the view is in the way of the switch"
    except pg.DependentObjectsStillExist as e:
        return f"{STUCK} its views lose columns that something depends on: {e.diag.message_detail}"
    return None


def _show(conn: psycopg.Connection[Any], projection: Projection, build: int, live: Build | None) -> None:
    roles, views = _roles(conn), projection.shown()
    for name, select in views.items():
        view = sql.Identifier("convstore_views", name)
        body = sql.SQL("VIEW {} WITH (security_invoker = true) AS SELECT * FROM ({}) shown WHERE {}").format(
            view,
            sql.SQL(named(select, places(projection.tables, build))),
            sql.SQL("convstore.build_shown({})").format(sql.Literal(build)),
        )
        try:
            with conn.transaction():
                conn.execute(sql.SQL("CREATE OR REPLACE {}").format(body))
        except pg.InvalidTableDefinition:  # not the same columns with more behind them
            conn.execute(sql.SQL("DROP VIEW {}").format(view))
            conn.execute(sql.SQL("CREATE {}").format(body))
        _hand_over(conn, sql.SQL("VIEW"), view, roles)
    if live is not None:
        old = run(conn, "SELECT views FROM convstore.projections WHERE build = $1", [live.build])
        for name in set(old[0][0]) - set(views):
            conn.execute(sql.SQL("DROP VIEW IF EXISTS {}").format(sql.Identifier("convstore_views", name)))


def sweep(conn: psycopg.Connection[Any]) -> None:
    """Remove the builds that were replaced; one that is in use stays until the next time."""
    for build in [b for b in read_builds(conn) if b.state == "retired"]:
        with suppress(pg.LockNotAvailable, pg.DependentObjectsStillExist):
            _remove(conn, build)


def _remove(conn: psycopg.Connection[Any], build: Build) -> None:
    with conn.transaction():
        conn.execute("SET LOCAL lock_timeout = '200ms'")
        if locked(conn, build.build) is None:
            return
        for table in build.tables:
            name = sql.Identifier("convstore_builds", f"{table}_{build.build}")
            conn.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(name))
        run(conn, "DELETE FROM convstore.projections WHERE build = $1", [build.build])


def places(tables: Iterable[str], build: int) -> dict[str, str]:
    """Give the tables of a build: the projection's name of each → what it is in SQL."""
    return {table: f'convstore_builds."{table}_{build}"' for table in tables}
