"""``convstore import --from``: the SDK's stored sessions, in order, once, and further where they have grown."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession, SQLAlchemySession
from click.testing import CliRunner, Result
from scripts import said, user
from sqlalchemy.ext.asyncio import create_async_engine

from eventstore import EventStore
from eventstore.adapters.cli import main


def run(url: str, *args: str) -> Result:
    return CliRunner().invoke(main, args, env={"CONVSTORE_URL": url, "CONVSTORE_TENANT": None})


def counts(result: Result) -> tuple[int, int, int]:
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    return found["streams"], found["events_written"], found["events_already_there"]


def write(file: Path, name: str, items: list[Any]) -> None:
    async def story() -> None:
        session = SQLiteSession(name, file)
        await session.add_items(items)
        session.close()

    asyncio.run(story())


def sqlite(url: str, file: Path, *args: str) -> tuple[int, int, int]:
    return counts(run(url, "import", "--from", "openai-sqlite", str(file), "--json", *args))


HISTORY = [user("\ud800\x00\u2028"), said("b"), {"type": "never_heard_of", "n": 2**80}]


def test_a_file_imports_in_order_once_and_goes_on_where_it_ended(url: str, store: EventStore, tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite"
    write(file, "one", HISTORY)
    write(file, "two", [user(str(number)) for number in range(2_500)])
    write(file, "one", [user("later")])
    with sqlite3.connect(file) as conn:
        conn.execute("UPDATE agent_messages SET created_at = '2020-01-01'")
    assert sqlite(url, file) == (2, 2504, 0)
    one = store.conversation("one")
    assert one.transcript() == [*HISTORY, user("later")]
    assert store.conversation("two").transcript() == [user(str(number)) for number in range(2_500)]
    assert sqlite(url, file) == (2, 0, 2504)
    # Both sides go on: what is new there comes, what is new here stays.
    one.append([user("here")])
    write(file, "one", [said("there")])
    write(file, "two", [user("2500")])
    assert sqlite(url, file) == (2, 2, 2504)
    assert one.transcript()[4:] == [user("here"), said("there")]
    assert store.verify().ok


def test_an_import_cut_off_in_the_middle_is_made_whole(url: str, store: EventStore, tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite"
    write(file, "one", [user(str(number)) for number in range(10)])
    with sqlite3.connect(file) as conn:
        kept = conn.execute("SELECT * FROM agent_messages WHERE id > 7").fetchall()
        conn.execute("DELETE FROM agent_messages WHERE id > 7")
    assert sqlite(url, file) == (1, 7, 0)
    with sqlite3.connect(file) as conn:
        conn.executemany("INSERT INTO agent_messages VALUES (?, ?, ?, ?)", kept)
    assert sqlite(url, file) == (1, 3, 7)
    assert store.conversation("one").transcript() == [user(str(number)) for number in range(10)]


def test_rows_that_are_no_json_are_left_out_and_named(url: str, store: EventStore, tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite"
    write(file, "one", [user("a"), user("b")])
    with sqlite3.connect(file) as conn:
        conn.execute("UPDATE agent_messages SET message_data = '{' WHERE id = 1")
    result = run(url, "import", "--from", "openai-sqlite", str(file))
    assert result.exit_code == 0
    assert "no JSON: one, row 1" in result.stderr
    assert store.conversation("one").transcript() == [user("b")]


def test_what_json_can_not_hold_is_refused_by_its_row(url: str, tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite"
    write(file, "one", [user("a"), {"role": "user", "content": float("nan")}])
    result = run(url, "import", "--from", "openai-sqlite", str(file))
    assert result.exit_code == 2
    assert "agent_messages, row 2: content: NaN" in result.stderr
    assert "in session 'one'" in result.stderr


def test_branches_of_an_advanced_session_are_conversations_of_one_context(
    url: str, store: EventStore, tmp_path: Path
) -> None:
    file = tmp_path / "s.sqlite"

    async def story() -> None:
        session = AdvancedSQLiteSession(session_id="one", db_path=file, create_tables=True)
        await session.add_items([user("q1"), said("a1"), user("q2"), said("a2")])
        await session.create_branch_from_turn(2, "other")
        await session.add_items([user("q2, again")])
        session.close()

    asyncio.run(story())
    assert sqlite(url, file) == (2, 7, 0)
    assert store.conversation("one").transcript() == [user("q1"), said("a1"), user("q2"), said("a2")]
    assert store.conversation("one/other").transcript() == [user("q1"), said("a1"), user("q2, again")]
    assert [stream.name for stream in store.conversations(context="one").streams] == ["one", "one/other"]
    assert sqlite(url, file) == (2, 0, 7)


def test_an_async_url_of_sqlalchemy_imports_the_same(url: str, store: EventStore, tmp_path: Path) -> None:
    where = f"sqlite+aiosqlite:///{tmp_path / 'a.sqlite'}"

    async def story() -> None:
        engine = create_async_engine(where)
        session = SQLAlchemySession("one", engine=engine, create_tables=True, messages_table="msgs")
        await session.add_items(HISTORY)
        await engine.dispose()

    asyncio.run(story())
    args = ("import", "--from", "openai-sqlalchemy", where, "--messages-table", "msgs", "--json")
    assert counts(run(url, *args)) == (1, 3, 0)
    assert store.conversation("one").transcript() == HISTORY
    assert counts(run(url, *args)) == (1, 0, 3)


def test_sessions_of_the_sdk_in_postgres_import(url: str, store: EventStore) -> None:
    store.conversation("there already").append([user("x")])
    with __import__("psycopg").connect(url, autocommit=True) as conn:
        conn.execute("CREATE TABLE agent_messages (id serial, session_id text, message_data text)")
        conn.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('one', '{\"a\": 1}')")
    host = __import__("psycopg").conninfo.conninfo_to_dict(url)
    where = f"postgresql+asyncpg://{host['user']}@/{host['dbname']}?host={host['host']}&port={host['port']}"
    assert counts(run(url, "import", "--from", "openai-sqlalchemy", where, "--json")) == (1, 1, 0)
    assert store.conversation("one").transcript() == [{"a": 1}]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("openai-sqlite", "/nowhere.sqlite"), "there is no such file"),
        (("openai-sqlite", __file__), "has no table 'agent_messages'"),
        (("openai-sqlalchemy", "nonsense"), "the URL"),
        (("openai-sqlalchemy", "sqlite:////nowhere/x"), "no connection"),
        (("openai-sqlite", __file__, "--messages-table", 'a"b'), "can't be a table's name"),
    ],
)
def test_a_source_that_is_none_is_refused(url: str, args: tuple[str, ...], told: str) -> None:
    result = run(url, "import", "--from", *args)
    assert result.exit_code == 2, result.output
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_without_sqlalchemy_it_says_what_to_install(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    result = run(url, "import", "--from", "openai-sqlalchemy", "sqlite:///x")
    assert result.exit_code == 2
    assert "pip install sqlalchemy" in result.stderr
