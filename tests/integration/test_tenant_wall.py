"""The wall between tenants: no setting, role, search path, operator or function lets a login through."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import errors as pg
from psycopg import sql

from eventstore import EventStore
from eventstore.errors import NotPermitted, TenantRequired

SHOWN = ["tenants", "contexts", "directory", "streams", "events", "tasks"]
ROLES = ["writer", "reader", "auditor"]


def login_of(url: str) -> str:
    return str(urlsplit(url).username)


def seen(conn: psycopg.Connection[Any]) -> dict[str, set[int]]:
    """The tenants whose rows each table shows."""
    return {t: {n for (n,) in conn.execute(f"SELECT tenant_id FROM convstore.{t}")} for t in SHOWN}  # type: ignore[call-overload]


def only(*tenants: int) -> dict[str, set[int]]:
    """What shows where a login sees these tenants and no other."""
    return {table: set(tenants) for table in SHOWN}


@pytest.fixture
def ids(filled: EventStore, db: psycopg.Connection) -> dict[str, int]:
    return dict(db.execute("SELECT name, tenant_id FROM tenants").fetchall())


@pytest.mark.parametrize("role", ["reader", "auditor"])
def test_a_login_sees_its_tenant_alone_and_only_when_it_says_so(
    make_login: Callable[..., str], ids: dict[str, int], role: str
) -> None:
    with psycopg.connect(make_login(role, "acme"), autocommit=True) as conn:
        assert seen(conn) == only()
        for tenant in ("rival", "", "nobody", "ACME", "acme ", "%", "acme' OR true --", str(ids["rival"])):
            conn.execute("SELECT set_config('convstore.tenant', %s, false)", [tenant])
            assert seen(conn) == only(), tenant
        conn.execute("SET convstore.tenant = 'acme'")
        assert seen(conn) == only(ids["acme"])
        with conn.transaction():
            conn.execute("SET LOCAL convstore.tenant = 'rival'")
            assert seen(conn) == only()
        assert seen(conn) == only(ids["acme"])
        conn.execute("RESET convstore.tenant")
        assert seen(conn) == only()


def test_a_login_bound_to_several_tenants_sees_the_selected_one(
    make_login: Callable[..., str], ids: dict[str, int]
) -> None:
    for tenants in (("acme", "rival"), (None,)):
        with psycopg.connect(make_login("reader", *tenants), autocommit=True) as conn:
            assert seen(conn) == only()
            for tenant in ("acme", "rival"):
                conn.execute("SELECT set_config('convstore.tenant', %s, false)", [tenant])
                assert seen(conn) == only(ids[tenant])


def test_an_unbound_login_sees_and_does_nothing(make_login: Callable[..., str], filled: EventStore) -> None:
    for role in ROLES:
        url = make_login(role)
        with EventStore.open(url, tenant="acme") as store:
            chat = store.conversation("a")
            for call in (chat.head, lambda: list(chat.events()), store.conversations):  # noqa: B023
                with pytest.raises(TenantRequired, match=login_of(url)):
                    call()
            with pytest.raises((TenantRequired, NotPermitted)):
                chat.append([1])
            with pytest.raises((TenantRequired, NotPermitted)):
                store.verify()
        if role != "writer":
            with psycopg.connect(url, options="-c convstore.tenant=acme") as conn:
                assert seen(conn) == only()


def test_no_call_of_a_function_reaches_another_tenant(
    make_login: Callable[..., str], filled: EventStore, db: psycopg.Connection
) -> None:
    """Every function that a role may call is tried with the other tenant's name, and with none."""
    tried = set()
    for url in [make_login(role, "acme") for role in (*ROLES, "projector")]:
        functions = db.execute(
            "SELECT p.oid::regprocedure::text, p.proname, p.pronargs, p.proargnames[1] FROM pg_proc p"
            " WHERE p.pronamespace = 'convstore'::regnamespace AND has_function_privilege(%s, p.oid, 'EXECUTE')",
            [login_of(url)],
        ).fetchall()
        with psycopg.connect(url, autocommit=True, options="-c convstore.tenant=rival") as conn:
            for _, name, n, first in functions:
                if first != "p_tenant":
                    continue
                tried.add(name)
                for tenant in ("rival", "nobody", None):
                    nulls = sql.SQL("").join([sql.SQL(", NULL")] * (n - 1))
                    call = sql.SQL("SELECT * FROM convstore.{}({}{})").format(sql.Identifier(name), tenant, nulls)
                    with pytest.raises(psycopg.Error) as caught:
                        pytest.fail(f"{name} answers {conn.execute(call).fetchall()}")
                    assert caught.value.sqlstate in ("CV001", "22023"), (name, caught.value)
    assert tried >= {"append_event", "append_events", "append_set", "stream_head", "read_events", "list_streams"}
    assert tried >= {"append_tasks", "list_tasks", "find_claims", "read_types"}
    assert tried >= {"audit_streams", "audit_events", "audit_orphans", "audit_tasks"}


@pytest.mark.parametrize("role", ROLES)
def test_no_call_of_the_store_reaches_another_tenant(
    make_login: Callable[..., str], filled: EventStore, role: str
) -> None:
    with EventStore.open(make_login(role, "acme"), tenant="acme") as store:
        assert [e.data for e in store.conversation("a").events()] == ["acme secret", 2]
        if role == "writer":
            store.conversation("a").append([3])  # warms the cache of ids
        for tenant in ("rival", "nobody"):
            scope = store.for_tenant(tenant)
            chat = scope.conversation("a")
            for call in (chat.head, lambda: list(chat.events()), scope.conversations):  # noqa: B023
                with pytest.raises(TenantRequired, match=tenant):
                    call()
            for items in ([1], [1, 2]):
                with pytest.raises(TenantRequired if role == "writer" else (TenantRequired, NotPermitted)):
                    chat.append(items)
                with pytest.raises(TenantRequired if role == "writer" else (TenantRequired, NotPermitted)):
                    chat.append(items, key="k")
            with pytest.raises((TenantRequired, NotPermitted)):
                scope.verify()
    assert filled.for_tenant("rival").conversation("a").head() == 2
    assert filled.for_tenant("rival").verify().ok


def test_numeric_ids_of_another_tenant_append_nothing(
    make_login: Callable[..., str], filled: EventStore, db: psycopg.Connection
) -> None:
    """Who knows or guesses another tenant's ids, and the digest of its names, gets no further with them."""
    stolen = db.execute(
        "SELECT context_id, stream_id, origin FROM streams JOIN tenants t USING (tenant_id) WHERE t.name = 'rival'"
    ).fetchone()
    assert stolen is not None
    one = "SELECT outcome FROM convstore.append_event(%s, 'a', NULL, NULL, %s, %s, %s, NULL, %s, %s, 1::int2, 1::int2,"
    one += " 'x.a', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '1')"
    with psycopg.connect(make_login("writer", "acme"), autocommit=True) as conn:
        for may_repeat in (True, False):
            row = conn.execute(one, ["acme", *stolen, may_repeat, uuid.uuid4()]).fetchone()
            assert row == ("unknown_stream",)
            with pytest.raises(psycopg.Error) as caught:
                conn.execute(one, ["rival", *stolen, may_repeat, uuid.uuid4()])
            assert caught.value.sqlstate == "CV001"
    assert filled.for_tenant("rival").conversation("a").head() == 2


def test_a_repeat_tells_nothing_about_another_tenants_events(
    make_login: Callable[..., str], filled: EventStore
) -> None:
    known = [e.event_id for e in filled.for_tenant("rival").conversation("a").events()]
    with EventStore.open(make_login("writer", "acme"), tenant="acme") as store:
        assert not store.conversation("a").append([1, 2], ids=known).deduplicated
        assert not store.conversation("new", context="ctx").append([1, 2], ids=known).deduplicated


def test_changing_the_role_does_not_help(make_login: Callable[..., str], ids: dict[str, int]) -> None:
    url = make_login("reader", "acme")
    other = login_of(make_login("reader", "rival"))
    with psycopg.connect(url, autocommit=True, options="-c convstore.tenant=rival") as conn:
        for target in ("convstore_owner", "convstore_projector", "convstore_auditor", "convstore_writer", other):
            with pytest.raises(pg.InsufficientPrivilege):
                conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(target)))
        with pytest.raises(pg.InsufficientPrivilege):
            conn.execute(sql.SQL("SET SESSION AUTHORIZATION {}").format(sql.Identifier(other)))
        with pytest.raises(pg.InsufficientPrivilege):
            conn.execute(sql.SQL("GRANT convstore_projector TO {}").format(sql.Identifier(login_of(url))))
        conn.execute("SET ROLE convstore_reader")
        assert seen(conn) == only()
        conn.execute("SET row_security = off")
        with pytest.raises(pg.InsufficientPrivilege):
            seen(conn)


def test_a_login_that_may_become_another_is_still_itself(
    make_login: Callable[..., str], admin: psycopg.Connection, ids: dict[str, int]
) -> None:
    """SET ROLE changes what may be called, never whose tenant it is: that is the login's."""
    url = make_login("reader", "acme")
    other = login_of(make_login("reader", "rival"))
    admin.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(other), sql.Identifier(login_of(url))))
    with psycopg.connect(url, autocommit=True, options="-c convstore.tenant=rival") as conn:
        conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(other)))
        assert seen(conn) == only()
        with pytest.raises(psycopg.Error, match="is not bound") as caught:
            conn.execute("SELECT convstore.stream_head('rival', 'a')")
        assert login_of(url) in str(caught.value)


def test_a_search_path_with_functions_operators_and_tables_of_ones_own_does_not_help(
    make_login: Callable[..., str], db: psycopg.Connection, ids: dict[str, int], filled: EventStore
) -> None:
    url = make_login("reader", "acme")
    login = login_of(url)
    db.execute(sql.SQL("CREATE SCHEMA evil AUTHORIZATION {}").format(sql.Identifier(login)))
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("SET search_path = evil, pg_temp, pg_catalog")
        traps = [
            f"CREATE FUNCTION evil.visible_tenant() RETURNS int LANGUAGE sql AS 'SELECT {ids['rival']}'",
            f"CREATE FUNCTION evil.tenant_of(text) RETURNS int LANGUAGE sql AS 'SELECT {ids['rival']}'",
            "CREATE FUNCTION evil.current_setting(text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT 'rival' $$",
            "CREATE FUNCTION evil.always(int, int) RETURNS bool LANGUAGE sql AS 'SELECT true'",
            "CREATE OPERATOR evil.= (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.always)",
            "CREATE FUNCTION evil.always(name, name) RETURNS bool LANGUAGE sql AS 'SELECT true'",
            "CREATE OPERATOR evil.= (LEFTARG = name, RIGHTARG = name, FUNCTION = evil.always)",
            "CREATE FUNCTION evil.always(text, text) RETURNS bool LANGUAGE sql AS 'SELECT true'",
            "CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.always)",
            f"CREATE TABLE evil.tenant_logins AS SELECT session_user::name AS login, {ids['rival']} AS tenant_id",
            f"CREATE TEMP TABLE tenant_logins AS SELECT session_user::name AS login, {ids['rival']} AS tenant_id",
            f"CREATE TEMP TABLE tenants AS SELECT {ids['rival']} AS tenant_id, 'rival'::text AS name",
        ]
        for trap in traps:
            conn.execute(trap)  # type: ignore[call-overload]
        conn.execute("SET convstore.tenant = 'rival'")
        assert seen(conn) == only()
        for call in ("stream_head('rival', 'a')", "read_events('rival', 'a', 1, NULL, NULL, 9)"):
            with pytest.raises(psycopg.Error, match="is not bound"):
                conn.execute(f"SELECT convstore.{call}")  # type: ignore[call-overload]
        conn.execute("SET convstore.tenant = 'acme'")
        assert conn.execute("SELECT convstore.stream_head('acme', 'a')").fetchone() == (2,)
    db.execute("DROP SCHEMA evil CASCADE")


def test_a_cheap_function_in_a_query_is_not_shown_other_tenants_rows(
    make_login: Callable[..., str], db: psycopg.Connection, filled: EventStore, ids: dict[str, int]
) -> None:
    url = make_login("reader", "acme")
    db.execute(sql.SQL("CREATE SCHEMA evil AUTHORIZATION {}").format(sql.Identifier(login_of(url))))
    db.execute("ANALYZE")
    heard: list[str] = []
    with psycopg.connect(url, autocommit=True, options="-c convstore.tenant=acme") as conn:
        conn.add_notice_handler(lambda diag: heard.append(str(diag.message_primary)))
        conn.execute(
            "CREATE FUNCTION evil.tell(text) RETURNS bool COST 0.0000001 LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE NOTICE '%', $1; RETURN true; END $$"
        )
        conn.execute("SELECT FROM convstore.events WHERE evil.tell(data::text)")
        conn.execute("SELECT FROM convstore.directory WHERE evil.tell(tags::text)")
        assert "acme secret" in "".join(heard)
        assert "rival" not in "".join(heard)
        # Nor by what the planner knows.
        assert (
            conn.execute(
                "SELECT * FROM pg_stats WHERE schemaname = 'convstore' AND tablename = ANY (%s)", [SHOWN]
            ).fetchall()
            == []
        )
    db.execute("DROP SCHEMA evil CASCADE")


def test_the_secrets_that_salt_the_hashes_are_hidden_from_readers(
    make_login: Callable[..., str], ids: dict[str, int]
) -> None:
    for role in ("reader", "projector"):
        with psycopg.connect(make_login(role, "acme"), autocommit=True, options="-c convstore.tenant=acme") as conn:
            for table in ("contexts", "streams"):
                for query in ("secret", "*", "t", "t::text", "md5(secret::text)"):
                    with pytest.raises(pg.InsufficientPrivilege):
                        conn.execute(f"SELECT {query} FROM convstore.{table} AS t")  # type: ignore[call-overload]
                with pytest.raises(pg.InsufficientPrivilege):
                    conn.execute(f"SELECT 1 FROM convstore.{table} WHERE secret > '\\x80'")  # type: ignore[call-overload]
    with psycopg.connect(make_login("auditor", "acme"), options="-c convstore.tenant=acme") as conn:
        assert len(conn.execute("SELECT secret FROM convstore.contexts").fetchall()) == 1


def test_a_projector_sees_all_tenants_and_changes_none(make_login: Callable[..., str], ids: dict[str, int]) -> None:
    with psycopg.connect(make_login("projector"), autocommit=True) as conn:
        assert seen(conn) == only(*ids.values())
        conn.execute("SET convstore.tenant = 'acme'")
        assert seen(conn) == only(*ids.values())
        for table in SHOWN:
            with pytest.raises(pg.InsufficientPrivilege):
                conn.execute(f"DELETE FROM convstore.{table}")  # type: ignore[call-overload]


def test_a_binding_taken_away_is_gone_at_once(
    make_login: Callable[..., str], db: psycopg.Connection, filled: EventStore
) -> None:
    url = make_login("writer", "acme", "rival")
    with EventStore.open(url, tenant="acme") as store:
        store.conversation("a").append([3])
        store.for_tenant("rival").conversation("a").append([3])
        db.execute("SELECT unbind_login(%s, 'nobody')", [login_of(url)])
        db.execute("SELECT unbind_login(%s, 'acme')", [login_of(url)])
        for items in ([4], [4, 5]):
            with pytest.raises(TenantRequired):
                store.conversation("a").append(items)
        assert store.for_tenant("rival").conversation("a").append([4]).last_version == 4
    with pytest.raises(pg.UndefinedObject, match="there is no login"):
        db.execute("SELECT bind_login('nobody_by_this_name', 'acme')")


def test_binding_names_one_tenant_even_where_it_is_being_created(
    make_login: Callable[..., str], db: psycopg.Connection, url: str, store: EventStore
) -> None:
    login = login_of(make_login("reader"))
    with psycopg.connect(url) as conn:
        store.using(conn).for_tenant("fresh").conversation("a").append([1])
        conn.execute("SELECT convstore.bind_login(%s, 'fresh')", [login])
    rows = db.execute("SELECT tenant_id > 0 FROM tenant_logins WHERE login = %s", [login]).fetchall()
    assert rows == [(True,)]
