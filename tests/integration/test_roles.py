"""Who may do what: the matrix of sql/README.md against the catalogue, and against those who try."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import errors as pg

import eventstore
from eventstore import Event, EventStore
from eventstore.errors import NotPermitted

README = Path(eventstore.__file__).parent.parent / "sql" / "README.md"
ROLES = ["owner", "writer", "reader", "projector", "auditor"]
PRIVILEGES = ["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE"]
TABLES = ["tenants", "tenant_logins", "contexts", "directory", "streams", "events", "tasks", "store"]
TABLES += ["schema_migrations", "schema_functions"]


def matrix(kind: str) -> dict[str, dict[str, str]]:
    """One of README's tables: object → role → cell."""
    rows: dict[str, dict[str, str]] = {}
    head: list[str] = []
    for line in README.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == kind:
            head = cells[1:]
        elif not line.startswith("|"):
            head = []
        elif head and not cells[0].startswith("---"):
            rows[cells[0].strip("`")] = dict(zip(head, cells[1:], strict=True))
    assert rows, f"no table of {kind} in {README.name}"
    return rows


def login_of(url: str) -> str:
    return str(urlsplit(url).username)


# --- the matrix ---


@pytest.mark.parametrize("role", [*ROLES, None])
def test_the_catalogue_grants_what_the_matrix_says_on_tables(
    make_login: Callable[..., str], db: psycopg.Connection, role: str | None
) -> None:
    login = login_of(make_login(role))
    kinds = matrix("table")
    existing = (
        "SELECT relname FROM pg_class"
        " WHERE relnamespace = 'convstore'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')"
    )
    assert {name for (name,) in db.execute(existing)} == set(kinds)
    for table, cells in kinds.items():
        cell = cells[role] if role else "no"
        granted = {
            p
            for p in PRIVILEGES
            if db.execute("SELECT has_table_privilege(%s, %s, %s)", [login, f"convstore.{table}", p]).fetchone()
            == (True,)
        }
        assert granted == {"all": set(PRIVILEGES), "select": {"SELECT"}}.get(cell, set()), (table, role)
        hidden = set(re.findall("`(.+?)`", cell))
        columns = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
        for (column,) in db.execute(columns, [f"convstore.{table}"]).fetchall():
            for privilege in ("SELECT", "INSERT", "UPDATE"):
                may = db.execute(
                    "SELECT has_column_privilege(%s, %s, %s, %s)", [login, f"convstore.{table}", column, privilege]
                ).fetchone()
                seen = cell.startswith("select") and column not in hidden and privilege == "SELECT"
                assert may == (cell == "all" or seen,), (table, column, privilege, role)


@pytest.mark.parametrize("role", [*ROLES, None])
def test_the_catalogue_grants_what_the_matrix_says_on_functions(
    make_login: Callable[..., str], db: psycopg.Connection, role: str | None
) -> None:
    login = login_of(make_login(role))
    kinds = matrix("function")
    existing = db.execute("SELECT oid, proname FROM pg_proc WHERE pronamespace = 'convstore'::regnamespace").fetchall()
    assert {name for _, name in existing} == set(kinds)
    for oid, name in existing:
        may = db.execute("SELECT has_function_privilege(%s, %s::oid, 'EXECUTE')", [login, oid]).fetchone()
        assert may == (role is not None and kinds[name][role] == "yes",), (name, role)


@pytest.mark.parametrize("role", [*ROLES, None])
def test_the_catalogue_grants_what_the_matrix_says_on_sequences(
    make_login: Callable[..., str], db: psycopg.Connection, role: str | None
) -> None:
    login = login_of(make_login(role))
    kinds = matrix("sequence")
    existing = "SELECT relname FROM pg_class WHERE relnamespace = 'convstore'::regnamespace AND relkind = 'S'"
    assert {name for (name,) in db.execute(existing)} == set(kinds)
    for name, cells in kinds.items():
        for privilege in ("USAGE", "SELECT", "UPDATE"):
            row = db.execute(
                "SELECT has_sequence_privilege(%s, %s, %s)", [login, f"convstore.{name}", privilege]
            ).fetchone()
            assert row == (role is not None and cells[role] == "yes",), (name, privilege, role)


def test_nobody_owns_or_creates_in_the_schema_but_the_owner(
    make_login: Callable[..., str], db: psycopg.Connection
) -> None:
    owners = db.execute(
        "SELECT DISTINCT pg_get_userbyid(o) FROM ("
        " SELECT relowner FROM pg_class WHERE relnamespace = 'convstore'::regnamespace UNION ALL"
        " SELECT proowner FROM pg_proc WHERE pronamespace = 'convstore'::regnamespace UNION ALL"
        " SELECT nspowner FROM pg_namespace WHERE nspname = 'convstore') AS owned (o)"
    ).fetchall()
    assert owners == [("convstore_owner",)]
    assert (
        db.execute(
            "SELECT rolcanlogin, rolsuper, rolbypassrls FROM pg_roles WHERE rolname LIKE 'convstore\\_%'"
            " AND (rolcanlogin OR rolsuper OR rolbypassrls)"
        ).fetchall()
        == []
    )
    for role in ROLES[1:]:
        login = login_of(make_login(role))
        row = db.execute("SELECT has_schema_privilege(%s, 'convstore', 'CREATE')", [login]).fetchone()
        assert row == (False,)


# --- those who try ---


def denied(url: str, statement: str) -> None:
    options = "-c convstore.tenant=acme"
    with psycopg.connect(url, autocommit=True, options=options) as conn, pytest.raises(pg.InsufficientPrivilege):
        conn.execute(statement)  # type: ignore[call-overload]


def test_a_writer_appends_and_reads_by_the_store_and_touches_no_table(
    make_login: Callable[..., str], filled: EventStore
) -> None:
    url = make_login("writer", "acme")
    for table in TABLES:
        denied(url, f"SELECT FROM convstore.{table}")
        denied(url, f"INSERT INTO convstore.{table} DEFAULT VALUES")
        denied(url, f"DELETE FROM convstore.{table}")
        denied(url, f"TRUNCATE convstore.{table}")
        denied(url, f"BEGIN; LOCK TABLE convstore.{table} IN ACCESS SHARE MODE")
    denied(url, "UPDATE convstore.events SET type = 'x.forged'")
    denied(url, "COPY convstore.events TO STDOUT")
    denied(url, "SELECT nextval('convstore.position')")
    denied(url, "SELECT setval('convstore.position', 1)")
    denied(url, "SELECT last_value FROM convstore.position")
    denied(url, "SELECT convstore.stamp(true)")
    denied(url, "SELECT convstore.create_stream('acme', 'c', 's', NULL)")
    denied(url, "SELECT convstore.bind_login(session_user, NULL)")
    denied(url, "CREATE TABLE convstore.mine (n int)")
    denied(url, "ALTER TABLE convstore.events DISABLE ROW LEVEL SECURITY")
    denied(url, "ALTER TABLE convstore.events DISABLE TRIGGER ALL")
    denied(url, "SET session_replication_role = replica")
    denied(url, "DROP FUNCTION convstore.visible_tenant")
    with EventStore.open(url, tenant="acme") as store:
        chat = store.conversation("a")
        assert chat.append([3], key="k2").last_version == 3
        assert chat.append([3], key="k2").deduplicated
        assert store.conversation("new", tags={"x": "y"}).append([1, 2]).last_version == 2
        assert [e.data for e in chat.events()] == ["acme secret", 2, 3]
        assert [s.name for s in store.conversations().streams] == ["a", "new"]
        with store.transaction() as tx:
            tx.conversation("a").append([4])
        with pytest.raises(NotPermitted, match="convstore_auditor"):
            store.verify()
    assert filled.for_tenant("acme").verify().ok


def test_a_reader_that_appends_is_told_which_role_it_lacks(make_login: Callable[..., str], filled: EventStore) -> None:
    url = make_login("reader", "acme")
    with EventStore.open(url, tenant="acme") as store:
        assert [e.data for e in store.conversation("a").events()] == ["acme secret", 2]
        for items in ([3], [3, 4]):
            with pytest.raises(NotPermitted) as caught:
                store.conversation("a").append(items)
            assert caught.value.role == "convstore_writer"
            assert f"GRANT convstore_writer TO {login_of(url)}" in str(caught.value)
    assert filled.for_tenant("acme").conversation("a").head() == 2


def test_an_auditor_verifies_and_writes_nothing(make_login: Callable[..., str], filled: EventStore) -> None:
    url = make_login("auditor", "acme")
    with EventStore.open(url, tenant="acme") as store:
        assert store.verify().ok
        with pytest.raises(NotPermitted, match="convstore_writer"):
            store.conversation("a").append([3])
    denied(url, "DELETE FROM convstore.events")
    denied(url, "UPDATE convstore.events SET data = '1'")


def test_a_login_without_a_role_is_told_what_it_needs(make_login: Callable[..., str], filled: EventStore) -> None:
    url = make_login(None, "acme")
    with pytest.raises(NotPermitted, match="convstore_reader"), EventStore.open(url, tenant="acme"):
        pass
    denied(url, "SELECT FROM convstore.events")
    denied(url, "SELECT convstore.stream_head('acme', 'a')")


def test_a_member_of_the_owner_may_all(make_login: Callable[..., str], filled: EventStore) -> None:
    url = make_login("owner", "acme")
    with EventStore.open(url, tenant="acme") as store:
        store.conversation("a").append([3])
        assert store.verify().ok
    with psycopg.connect(url) as conn:
        assert conn.execute("SELECT count(*) FROM convstore.events").fetchone() == (5,)


def test_triggers_on_events_run_on_every_append(db: psycopg.Connection, filled: EventStore, make_login: Any) -> None:
    db.execute("CREATE TABLE counted (n bigint)")
    db.execute("ALTER TABLE counted OWNER TO convstore_owner")
    db.execute(
        "CREATE FUNCTION tally() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO convstore.counted VALUES (NEW.version); RETURN NULL; END $$"
    )
    db.execute("CREATE TRIGGER tally AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION tally()")
    with EventStore.open(make_login("writer", "acme"), tenant="acme") as store:
        store.conversation("a").append([3])
        store.conversation("a").append([4, 5])
        store.conversation("new").append_events([Event(type="x.a", data=1)])
    assert db.execute("SELECT n FROM counted ORDER BY 1").fetchall() == [(1,), (3,), (4,), (5,)]
