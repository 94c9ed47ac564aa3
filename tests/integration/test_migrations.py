"""Migrating: whole or not at all, from many processes, beside what is in the way, killed at any point."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from migrating import Folder, Migrator
from psycopg import sql

from eventstore import EventStore
from eventstore.embedded import Server
from eventstore.errors import MigrationFailed, SchemaOutOfDate
from eventstore.log import sql_files
from eventstore.log.schema import migrate

Make = Callable[..., str]


def names() -> list[str]:
    files = sql_files.load()
    return [file.name for file in (*files.migrations, *files.functions)]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "sql")


def until(url: str, query: str, what: str) -> None:
    deadline = time.monotonic() + 30
    with psycopg.connect(url, autocommit=True) as conn:
        while conn.execute(query).fetchone() != (True,):  # type: ignore[call-overload]
            assert time.monotonic() < deadline, f"not within 30 s: {what}"
            time.sleep(0.01)


def relation(url: str, name: str) -> bool:
    with psycopg.connect(url) as conn:
        return conn.execute("SELECT to_regclass(%s) IS NOT NULL", [name]).fetchone() == (True,)


def test_an_empty_database_gets_everything_once(make_database: Make) -> None:
    url = make_database()
    with EventStore.open(url) as store:
        assert store.migrate() == names()
        assert store.migrate() == []
        assert {s.state for s in store.schema()} == {"applied"}
        store.conversation("a").append([1])
        assert store.verify().ok
    with EventStore.open(url) as store:
        assert store.migrate() == []
        assert store.conversation("a").head() == 1


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_of_another_encoding_is_refused(
    make_database: Make, admin: psycopg.Connection, server: Server, encoding: str
) -> None:
    name = make_database().rsplit("/", 1)[-1].split("?")[0]
    admin.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))
    admin.execute(
        sql.SQL("CREATE DATABASE {} ENCODING {} LOCALE 'C' TEMPLATE template0").format(sql.Identifier(name), encoding)
    )
    with pytest.raises(MigrationFailed, match=f"encoding is {encoding}.*UTF8"):
        migrate(server.url_for(name), sql_files.load(), timeout=30)
    assert not relation(server.url_for(name), "convstore.events")


def test_six_processes_at_once_apply_everything_once(make_database: Make) -> None:
    url = make_database()
    migrators = [Migrator(url, sql_files.folder()) for _ in range(6)]
    for migrator in migrators:
        migrator.go()
    results = [migrator.result() for migrator in migrators]
    assert [err for code, _, err in results if code] == []
    applied = sorted((json.loads(out) for _, out, _ in results), key=len)
    assert applied == [[]] * 5 + [names()]
    with EventStore.open(url) as store:
        store.conversation("a").append([1])
        assert store.verify().ok


def test_databases_of_one_cluster_migrate_at_once(make_database: Make) -> None:
    urls = [make_database() for _ in range(4)]
    migrators = [Migrator(url, sql_files.folder()) for url in urls for _ in range(2)]
    for migrator in migrators:
        migrator.go()
    results = [migrator.result() for migrator in migrators]
    assert [err for code, _, err in results if code] == []
    for url in urls:
        with EventStore.open(url) as store:
            assert store.conversation("a").append([1]).first_version == 1


def test_a_transaction_in_the_way_bounds_the_time_and_leaves_everything_as_it_was(url: str, folder: Folder) -> None:
    first = folder.add("CREATE TABLE convstore.first (n int);", "first")
    second = folder.add("ALTER TABLE convstore.events ADD COLUMN extra text;", "second")
    with psycopg.connect(url) as stalled, EventStore.open(url) as store:
        stalled.execute("SELECT count(*) FROM convstore.events")
        with pytest.raises(MigrationFailed, match=second) as caught:
            migrate(url, folder.files(), timeout=3)
        assert "nothing was applied" in str(caught.value)
        assert not relation(url, "convstore.first")
        store.conversation("a").append([1])
    assert migrate(url, folder.files(), timeout=30) == [first, second]


def test_a_transaction_in_the_way_is_waited_for(url: str, folder: Folder) -> None:
    name = folder.add("ALTER TABLE convstore.events ADD COLUMN extra text;")
    waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'convstore.events'::regclass)"
    with ThreadPoolExecutor(1) as threads:
        with psycopg.connect(url) as stalled:
            stalled.execute("SELECT count(*) FROM convstore.events")
            migrating = threads.submit(migrate, url, folder.files(), timeout=60)
            until(url, waits, "the migration waits for the table")
            with EventStore.open(url) as store:  # queued behind it, but not for long: it backs off
                assert store.conversation("a").append([1]).first_version == 1
            assert not migrating.done()
        assert migrating.result(60) == [name]
    with psycopg.connect(url) as conn:
        assert conn.execute("SELECT extra FROM convstore.events").fetchall() == [(None,)]


def test_a_migration_that_fails_leaves_nothing_of_itself_or_those_with_it(url: str, folder: Folder) -> None:
    folder.add("CREATE TABLE convstore.good (n int);", "good")
    bad = folder.add("CREATE TABLE convstore.half (n int); SELECT 1/0;", "bad")
    for _ in range(2):
        with pytest.raises(MigrationFailed, match=rf"{bad}: division by zero"):
            migrate(url, folder.files(), timeout=30)
        assert not relation(url, "convstore.good")
        assert not relation(url, "convstore.half")
    with EventStore.open(url) as store:
        assert {s.state for s in store.schema()} == {"applied"}
        store.conversation("a").append([1])


def test_an_edited_applied_migration_is_refused(url: str, folder: Folder) -> None:
    path = folder.root / "migrations" / "0001_log.sql"
    text = path.read_text()
    path.write_text(text.replace("\n", "\r\n"))  # a checkout with other line ends is no edit
    assert migrate(url, folder.files(), timeout=30) == []
    path.write_text(text + "\n-- edited\n")
    folder.add("CREATE TABLE convstore.more (n int);")
    with pytest.raises(MigrationFailed, match=r"0001_log\.sql"):
        migrate(url, folder.files(), timeout=30)
    assert not relation(url, "convstore.more")


def test_a_database_that_is_newer_is_refused_at_open(url: str, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO schema_migrations (name, checksum) VALUES ('0099_future.sql', 'x')")
    with pytest.raises(SchemaOutOfDate, match=r"0099_future\.sql.*upgrade"), EventStore.open(url):
        pass
    with pytest.raises(SchemaOutOfDate, match=r"0099_future\.sql"):
        migrate(url, sql_files.load(), timeout=30)


def test_a_database_that_is_older_is_refused_at_the_first_call_and_not_migrated_unasked(make_database: Make) -> None:
    url = make_database()
    with EventStore.open(url) as store:
        chat = store.conversation("a")
        for call in (
            chat.head,
            lambda: chat.append([1]),
            lambda: list(chat.events()),
            store.conversations,
            store.verify,
            lambda: store.transaction().__enter__(),
        ):
            with pytest.raises(SchemaOutOfDate, match="convstore migrate"):
                call()
        assert not relation(url, "convstore.events")
        store.migrate()
        assert chat.append([1]).first_version == 1


def test_a_dry_run_changes_nothing(make_database: Make, folder: Folder) -> None:
    url = make_database()
    assert migrate(url, sql_files.load(), timeout=30, dry_run=True) == names()
    with psycopg.connect(url) as conn:
        assert conn.execute("SELECT to_regnamespace('convstore')").fetchone() == (None,)
    migrate(url, sql_files.load(), timeout=30)
    name = folder.add("CREATE TABLE convstore.more (n int);")
    assert migrate(url, folder.files(), timeout=30, dry_run=True) == [name]
    assert not relation(url, "convstore.more")


INDEX = """-- no transaction
-- before: DROP INDEX CONCURRENTLY IF EXISTS convstore.events_agent
CREATE UNIQUE INDEX CONCURRENTLY events_agent ON convstore.events (agent);"""


def test_a_file_without_transaction_begins_by_undoing_what_a_failed_run_left(
    url: str, folder: Folder, store: EventStore, db: psycopg.Connection
) -> None:
    store.conversation("a").append([1, 2], agent="same")
    folder.add("CREATE TABLE convstore.good (n int);", "good")
    name = folder.add(INDEX, "index")
    last = folder.add("CREATE TABLE convstore.last (n int);", "last")
    state = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('convstore.events_agent')"
    for _ in range(2):
        with pytest.raises(MigrationFailed, match=name):
            migrate(url, folder.files(), timeout=30)
        assert db.execute(state).fetchall() == [(False,)]
        assert relation(url, "convstore.good")  # what came before it is whole
        assert not relation(url, "convstore.last")
    db.execute("UPDATE events SET agent = agent || version")
    assert migrate(url, folder.files(), timeout=30) == [name, last]
    assert db.execute(state).fetchall() == [(True,)]
    assert migrate(url, folder.files(), timeout=30) == []


def test_processes_that_wait_do_not_hold_up_an_index_built_concurrently(url: str, folder: Folder) -> None:
    folder.add(INDEX, "index")
    migrators = [Migrator(url, folder.root) for _ in range(4)]
    for migrator in migrators:
        migrator.go()
    results = [migrator.result() for migrator in migrators]
    assert [err for code, _, err in results if code] == []
    assert sorted(len(json.loads(out)) for _, out, _ in results) == [0, 0, 0, 1]


@pytest.mark.parametrize("transactional", [True, False], ids=["in a transaction", "without"])
def test_a_killed_migrator_leaves_nothing_half_and_the_next_one_goes_on(
    make_database: Make, template: str, folder: Folder, transactional: bool
) -> None:
    url = make_database(template)
    sleep = "SELECT pg_sleep(CASE WHEN current_setting('application_name') = 'killed' THEN 600 ELSE 0 END);"
    if transactional:
        name = folder.add("CREATE TABLE convstore.half (n int);\n" + sleep)
    else:
        name = folder.add("-- no transaction\n" + sleep)
    migrator = Migrator(url + "&application_name=killed", folder.root)
    migrator.go()
    sleeping = (
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database())"
    )
    until(url, sleeping, "the migration sleeps")
    migrator.process.kill()
    migrator.result()
    assert not relation(url, "convstore.half")
    assert migrate(url, folder.files(), timeout=60) == [name]
    assert relation(url, "convstore.half") is transactional


def test_a_changed_function_is_applied_again_and_keeps_its_rights(url: str, folder: Folder, store: EventStore) -> None:
    path = folder.root / "functions" / "stream_head.sql"
    path.write_text(path.read_text().replace("RETURN coalesce(", "RETURN 1000 + coalesce("))
    assert migrate(url, folder.files(), timeout=30) == ["stream_head.sql"]
    store.conversation("a").append([1])
    assert store.conversation("a").head() == 1001
    with psycopg.connect(url) as conn:
        signature = "convstore.stream_head(text, text)"
        for role, may in (("convstore_reader", True), ("public", False)):
            row = conn.execute("SELECT has_function_privilege(%s, %s, 'EXECUTE')", [role, signature]).fetchone()
            assert row == (may,)
    assert migrate(url, sql_files.load(), timeout=30) == ["stream_head.sql"]
    assert store.conversation("a").head() == 1


@pytest.mark.parametrize("bad", ["3_short.sql", "0099_gap.sql", "0001_twice.sql"])
def test_a_migration_whose_name_or_number_is_off_is_refused(folder: Folder, bad: str) -> None:
    (folder.root / "migrations" / bad).write_text("SELECT 1")
    with pytest.raises(ValueError, match=bad[:5]):
        folder.files()


def test_migrating_works_through_a_pooler(make_database: Make, pooler: Any) -> None:
    url = pooler.url_for(make_database())
    with EventStore.open(url) as store:
        assert store.migrate() == names()
        store.conversation("a").append([1])
