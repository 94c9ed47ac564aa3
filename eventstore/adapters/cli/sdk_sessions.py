"""Sessions that the OpenAI Agents SDK stored, in a SQLite file or behind a SQLAlchemy URL, read to be imported.

The SDK's own tables are read, in the order of their ids and never of their clocks; the SDK is not needed.
"""

from __future__ import annotations

import importlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from eventstore.adapters.cli.lines import decode
from eventstore.errors import InvalidItem, describe
from eventstore.log.events import Json

SOURCES: Final = ("openai-sqlite", "openai-sqlalchemy")
SESSIONS, MESSAGES, BRANCHES, MAIN = "agent_sessions", "agent_messages", "message_structure", "main"
_PAGE: Final = 1_000
# The drivers that the SDK is used with are async; these read the same databases.
_DRIVERS: Final = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}

Query = Callable[[str, dict[str, Any]], Sequence[Sequence[Any]]]
"""Runs a statement with ``:named`` values."""


class Message(NamedTuple):
    """A message's place and item; ``item`` is None where the SDK's own reading would skip it, being no JSON."""

    row: int
    item: Json
    readable: bool


@dataclass(frozen=True, slots=True)
class Stored:
    """A session that was stored, or a branch of one; ``name`` is what it is imported as."""

    name: str
    session_id: str
    branch: str | None


class Source:
    """The SDK's tables in one database."""

    def __init__(self, query: Query, messages: str, *, branched: bool) -> None:
        self._query = query
        self._messages = messages
        self._branched = branched

    def sessions(self) -> list[Stored]:
        """List the sessions in order of name; a branch, where there are any, is named ``session/branch``."""
        rows = self._query(f'SELECT DISTINCT session_id FROM "{self._messages}" ORDER BY session_id', {})  # noqa: S608
        branches: dict[str, list[Stored]] = {}
        if self._branched:
            ask = f'SELECT DISTINCT session_id, branch_id FROM "{BRANCHES}" ORDER BY session_id, branch_id'  # noqa: S608
            for session_id, branch in self._query(ask, {}):
                name = session_id if branch == MAIN else f"{session_id}/{branch}"
                branches.setdefault(session_id, []).append(Stored(name, session_id, branch))
        return [one for (name,) in rows for one in branches.get(name, [Stored(name, name, None)])]

    def pages(self, stored: Stored) -> Iterator[list[Message]]:
        """Yield the messages of a session in order, some at a time.

        Raises:
            InvalidItem: one is JSON that the log can't hold exactly; names the row.
        """
        after = -1
        while True:
            rows = self._query(*self._page(stored, after))
            if rows:
                yield [_message(self._messages, row, text) for _, row, text in rows]
                after = rows[-1][0]
            if len(rows) < _PAGE:
                return

    def _page(self, stored: Stored, after: int) -> tuple[str, dict[str, Any]]:
        given = {"session": stored.session_id, "after": after, "page": _PAGE}
        if stored.branch is None:
            return (
                f'SELECT id, id, message_data FROM "{self._messages}" '  # noqa: S608
                "WHERE session_id = :session AND id > :after ORDER BY id LIMIT :page",
                given,
            )
        return (
            f'SELECT s.id, s.id, m.message_data FROM "{BRANCHES}" s JOIN "{self._messages}" m ON m.id = s.message_id '  # noqa: S608
            "WHERE s.session_id = :session AND s.branch_id = :branch AND s.id > :after ORDER BY s.id LIMIT :page",
            given | {"branch": stored.branch},
        )


def _message(table: str, row: int, text: Any) -> Message:
    try:
        raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)
    except TypeError:
        return Message(row, None, readable=False)
    try:
        return Message(row, decode(raw), readable=True)
    except InvalidItem as e:
        if e.path == "line" and "not JSON" in e.reason:
            return Message(row, None, readable=False)
        raise InvalidItem(f"{table}, row {row}", str(e)) from e


@contextmanager
def opened(kind: str, where: str, messages: str = MESSAGES) -> Iterator[Source]:
    """Open a source to read.

    Raises:
        InvalidItem: there is no such file, no such table, or no way to connect.
    """
    if not messages or '"' in messages:
        raise InvalidItem("--messages-table", f"{describe(messages)} can't be a table's name")
    with (_sqlite if kind == SOURCES[0] else _sqlalchemy)(where) as query:
        try:
            query(f'SELECT session_id, id, message_data FROM "{messages}" LIMIT 1', {})  # noqa: S608
        except Exception as e:
            reason = f"has no table {messages!r} as the SDK makes it ({e}); --messages-table names another"
            raise InvalidItem(where if kind == SOURCES[0] else "the database", reason) from e
        yield Source(query, messages, branched=kind == SOURCES[0] and _branched(query))


def _branched(query: Query) -> bool:
    return bool(query("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name", {"name": BRANCHES}))


@contextmanager
def _sqlite(where: str) -> Iterator[Query]:
    path = Path(where)
    if not path.is_file():
        raise InvalidItem(where, "there is no such file; --from openai-sqlite takes the file of a SQLiteSession")
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as conn:
        conn.execute("BEGIN")  # one moment of the file for all pages
        yield lambda statement, given: conn.execute(statement, given).fetchall()


@contextmanager
def _sqlalchemy(where: str) -> Iterator[Query]:
    try:
        alchemy: Any = importlib.import_module("sqlalchemy")
    except ModuleNotFoundError as e:
        raise InvalidItem("--from openai-sqlalchemy", "needs SQLAlchemy: pip install sqlalchemy") from e
    try:
        url = alchemy.make_url(where)
        driver = _DRIVERS.get(url.get_backend_name())
        engine = alchemy.create_engine(url if driver is None else url.set(drivername=driver))
    except (alchemy.exc.ArgumentError, alchemy.exc.NoSuchModuleError, ModuleNotFoundError) as e:
        raise InvalidItem("the URL", f"{e}; give one as postgresql+asyncpg://user@host/database") from e
    try:
        with engine.connect().execution_options(isolation_level=_isolation(url)) as conn:
            yield lambda statement, given: conn.execute(alchemy.text(_quoted(url, statement)), given).fetchall()
    except alchemy.exc.OperationalError as e:
        raise InvalidItem("the URL", f"no connection: {e.orig}") from e
    finally:
        engine.dispose()


def _isolation(url: Any) -> str:
    return "SERIALIZABLE" if url.get_backend_name() == "sqlite" else "REPEATABLE READ"


def _quoted(url: Any, statement: str) -> str:
    return statement.replace('"', "`") if url.get_backend_name() in ("mysql", "mariadb") else statement
