"""A second, untouched cluster: the schema is the same on the other version, and no right on the cluster is needed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from eventstore import EventStore, embedded
from eventstore.embedded import binaries
from eventstore.log import sql_files
from eventstore.log.schema import migrate

_number = count(1)
TABLES = "relnamespace = 'convstore'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S')"
CATALOGUE = {
    "relations": "SELECT relname, relkind::text, reloptions, relpersistence::text, relrowsecurity,"
    f" relforcerowsecurity, pg_get_userbyid(relowner) FROM pg_class WHERE {TABLES}",
    "columns": "SELECT attrelid::regclass::text, attnum, attname, format_type(atttypid, atttypmod), attnotnull,"
    " attidentity::text, attcollation::regcollation::text, attstorage::text, pg_get_expr(adbin, adrelid)"
    " FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum"
    f" WHERE attnum > 0 AND NOT attisdropped AND attrelid IN (SELECT oid FROM pg_class WHERE {TABLES} OR"
    " relnamespace = 'convstore'::regnamespace AND relkind = 'c')",
    "indexes": "SELECT pg_get_indexdef(indexrelid), indisunique, indisprimary, indisvalid FROM pg_index"
    " WHERE indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'convstore'::regnamespace)",
    # Since 18, NOT NULL is a constraint with a name.
    "constraints": "SELECT conrelid::regclass::text, conname, contype::text, pg_get_constraintdef(oid)"
    " FROM pg_constraint WHERE connamespace = 'convstore'::regnamespace AND contype <> 'n'",
    "functions": "SELECT proname, pg_get_function_arguments(oid), pg_get_function_result(oid), prosrc, proconfig,"
    " prosecdef, provolatile::text, proparallel::text, procost, prorows, pg_get_userbyid(proowner)"
    " FROM pg_proc WHERE pronamespace = 'convstore'::regnamespace",
    "policies": "SELECT tablename, policyname, permissive, roles::text, cmd, qual, with_check FROM pg_policies"
    " WHERE schemaname = 'convstore'",
    "sequences": "SELECT seqrelid::regclass::text, seqtypid::regtype::text, seqstart, seqincrement, seqmax, seqmin,"
    " seqcache, seqcycle FROM pg_sequence WHERE seqrelid IN (SELECT oid FROM pg_class WHERE relnamespace ="
    " 'convstore'::regnamespace)",
    "triggers": "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "grants on tables": "SELECT table_name, grantee, privilege_type FROM information_schema.role_table_grants"
    " WHERE table_schema = 'convstore' AND grantee <> 'convstore_owner' AND privilege_type <> 'MAINTAIN'",
    "grants on columns": "SELECT table_name, column_name, grantee, privilege_type FROM"
    " information_schema.role_column_grants WHERE table_schema = 'convstore' AND grantee <> 'convstore_owner'",
    "grants on functions": "SELECT routine_name, grantee FROM information_schema.role_routine_grants"
    " WHERE routine_schema = 'convstore' AND grantee <> 'convstore_owner'",
}


def catalogue(url: str) -> dict[str, list[str]]:
    """Everything in our schema, in an order that depends on nothing else."""
    with psycopg.connect(url, options="-c search_path=convstore") as conn:
        return {kind: sorted(map(str, conn.execute(query))) for kind, query in CATALOGUE.items()}  # type: ignore


@pytest.fixture(scope="module")
def other(server: embedded.Server) -> Iterator[embedded.Server]:
    """A cluster of its own, of another major version where one is installed."""
    folders = list(binaries.candidates())
    installed = {folder: binaries.version_of(folder / "postgres") for folder in all_folders() | set(folders)}
    others = [f for f, version in installed.items() if version and binaries.major_of(version) != server.major]
    home = Path(tempfile.mkdtemp(prefix="convstore-test-", dir="/tmp"))
    home.chmod(0o755)  # the server's user is another one where the tests run as root
    with pytest.MonkeyPatch.context() as patch:
        if others:
            patch.setattr(binaries, "candidates", lambda: iter(others))
        with embedded.start(home, durable=False, settings={"synchronous_commit": "on"}) as running:
            yield running
        embedded.down(home, force=True)
    shutil.rmtree(home, ignore_errors=True)


def all_folders() -> set[Path]:
    packaged = binaries.packaged_folder()
    found = {folder for pattern in binaries.SYSTEM_FOLDERS for folder in Path("/").glob(pattern)}
    return found | ({packaged} if packaged is not None else set())


@pytest.fixture
def make(other: embedded.Server) -> Callable[..., str]:
    """Make an empty database on the other server and return its URL."""

    def make(owner: str | None = None) -> str:
        name = f"other_{next(_number)}"
        with psycopg.connect(other.url_for("postgres"), autocommit=True) as conn:
            conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
            if owner is not None:
                conn.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(*map(sql.Identifier, (name, owner))))
        return other.url_for(name)

    return make


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement)  # type: ignore[call-overload]


def as_login(url: str, login: str) -> str:
    return f"postgresql://{login}@" + url.partition("@")[2]


# In this order: the first tests find a cluster without our roles.


def test_a_login_that_may_not_create_roles_migrates_its_own_database_and_is_told_what_is_left(
    other: embedded.Server, make: Any
) -> None:
    run(other.url_for("postgres"), "CREATE ROLE plain LOGIN")
    url = make("plain")
    mine = as_login(url, "plain")
    told: list[str] = []
    files = sql_files.load()
    migrate(mine, files, timeout=30, notice=told.append)
    statements = [text.partition("run: ")[2].partition(";")[0] for text in told if "CREATE ROLE" in text]
    assert statements == [
        f"CREATE ROLE convstore_{role} NOLOGIN" for role in ("owner", "writer", "reader", "projector", "auditor")
    ]
    assert all("migrate again" in text for text in told if "CREATE ROLE" in text)
    with EventStore.open(mine) as store:
        store.conversation("a").append([1, 2], key="k")
        assert [e.data for e in store.conversation("a").events()] == [1, 2]
        assert store.verify().ok
    # It does what it was told, and migrates again.
    run(url, *statements)
    told.clear()
    assert migrate(mine, files, timeout=30, notice=told.append) == ["roles.sql"]
    assert not [text for text in told if "CREATE ROLE" in text]
    assert migrate(mine, files, timeout=30) == []
    run(url, "CREATE ROLE svc LOGIN", "GRANT convstore_writer TO svc")
    run(mine, "SELECT convstore.bind_login('svc', 'default')")
    with EventStore.open(as_login(url, "svc")) as store:
        assert store.conversation("a").append([3]).first_version == 3
    with psycopg.connect(as_login(url, "svc")) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute("SELECT FROM convstore.events")
    run(
        url, "DROP OWNED BY convstore_owner, convstore_writer, convstore_reader, convstore_projector, convstore_auditor"
    )
    run(url, *(s.replace("CREATE", "DROP").replace(" NOLOGIN", "") for s in statements))


def test_databases_of_a_cluster_without_our_roles_migrate_at_once(make: Any) -> None:
    urls = [make() for _ in range(4)]
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda url: migrate(url, sql_files.load(), timeout=60), urls * 2))
    assert sorted(map(bool, results)) == [False] * 4 + [True] * 4
    for url in urls:
        with EventStore.open(url) as store:
            assert store.conversation("a").append([1]).first_version == 1


def test_a_login_that_may_create_roles_hands_everything_to_the_owner(other: embedded.Server, make: Any) -> None:
    run(other.url_for("postgres"), "CREATE ROLE maker LOGIN CREATEROLE")
    url = as_login(make("maker"), "maker")
    migrate(url, sql_files.load(), timeout=30)
    with EventStore.open(url) as store:
        store.conversation("a").append([1])
        assert store.verify().ok


def test_the_schema_is_the_same_on_the_other_version(
    server: embedded.Server, url: str, other: embedded.Server, make: Any
) -> None:
    if other.major == server.major:
        pytest.skip(f"only Postgres {server.major} is installed, so there is no other version to compare with")
    made = make()
    migrate(made, sql_files.load(), timeout=30)
    here, there = catalogue(url), catalogue(made)
    for kind in CATALOGUE:
        assert here[kind] or kind == "triggers", kind
        assert there[kind] == here[kind], kind


def test_the_schema_is_the_same_each_time(make: Any) -> None:
    made = [make(), make()]
    for url in made:
        migrate(url, sql_files.load(), timeout=30)
    assert catalogue(made[0]) == catalogue(made[1])


def test_appends_work_on_the_other_version(make: Any) -> None:
    url = make()
    with EventStore.open(url) as store:
        store.migrate()
        chat = store.conversation("a", context="ctx", tags={"x": "y"})
        chat.append([2**80, "\x00"], key="k")
        assert chat.append([2**80, "\x00"], key="k").deduplicated
        assert [e.data for e in chat.events()] == [2**80, "\x00"]
        assert store.verify().ok
