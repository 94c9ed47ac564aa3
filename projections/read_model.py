"""A read model of one table that is a fold: an event looks at some rows and puts others in their place."""

from __future__ import annotations

import datetime as dt
import json
from abc import abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

from eventstore.log.events import Json, RecordedEvent
from projections.projection import Projection, Rows, Statement

Key: TypeAlias = tuple[Any, ...]
Row: TypeAlias = Mapping[str, Any]

MAX_BIGINT: Final = 2**63 - 1


class ReadModel(Projection):
    """One table, named as the projection; ``step`` is the fold."""

    key: ClassVar[Sequence[str]]
    """The columns of the primary key."""
    columns: ClassVar[Mapping[str, str]]
    """Each column, the key's included → its SQL type and constraint, such as ``bigint NOT NULL``."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        body = [f"{name} {kind}" for name, kind in cls.columns.items()]
        cls.tables = {cls.name: ", ".join([*body, f"PRIMARY KEY ({', '.join(cls.key)})"])}

    @abstractmethod
    def keys(self, event: RecordedEvent) -> Iterable[Key]:
        """Give the keys of the rows that an event looks at or changes."""

    @abstractmethod
    def step(self, rows: dict[Key, Row], event: RecordedEvent) -> None:
        """Fold an event into the rows: put a new mapping in the place of one, or take one out; never edit one."""

    def apply(self, batch: Sequence[RecordedEvent]) -> Generator[Statement, Rows, None]:
        """Fetch the rows, fold the batch, and write those that changed."""
        keys = list(dict.fromkeys(key for event in batch for key in self.keys(event)))
        if not keys:
            return
        width = len(self.key)
        before = {row[:width]: dict(zip(self.columns, row, strict=True)) for row in (yield self._fetch(keys))}
        rows: dict[Key, Row] = dict(before)
        for event in batch:
            self.step(rows, event)
        changed = [row for key, row in rows.items() if row is not before.get(key)]
        if changed:
            yield self._write(changed)
        gone = [key for key in before if key not in rows]
        if gone:
            yield self._remove(gone)

    def _fetch(self, keys: Sequence[Key]) -> Statement:
        # Row by row: no statistics, or wrong ones, can turn this into a scan of the table.
        columns = ", ".join(f"t.{name}" for name in self.columns)
        return Statement(
            f"SELECT r.* FROM {self._given(self.key)} k CROSS JOIN LATERAL (SELECT {columns} FROM {{{self.name}}} t"
            f" WHERE ({_list('t', self.key)}) = ({_list('k', self.key)}) LIMIT 1) r",
            [texts(column) for column in zip(*keys, strict=True)],
        )

    def _write(self, rows: Sequence[Row]) -> Statement:
        names = ", ".join(self.columns)
        rest = ", ".join(f"{name} = excluded.{name}" for name in self.columns if name not in self.key)
        action = f"UPDATE SET {rest}" if rest else "NOTHING"
        return Statement(
            f"INSERT INTO {{{self.name}}} ({names}) SELECT {names} FROM {self._given(self.columns)} k"
            f" ON CONFLICT ({', '.join(self.key)}) DO {action}",
            [texts([row[name] for row in rows]) for name in self.columns],
        )

    def _remove(self, keys: Sequence[Key]) -> Statement:
        return Statement(
            f"DELETE FROM {{{self.name}}} t USING {self._given(self.key)} k"
            f" WHERE ({_list('t', self.key)}) = ({_list('k', self.key)})",
            [texts(column) for column in zip(*keys, strict=True)],
        )

    def _given(self, names: Iterable[str]) -> str:
        """Write the parameters, an array of text each, as a relation of typed columns."""
        return given({name: self.columns[name] for name in names})


def given(columns: Mapping[str, str]) -> str:
    """Write ``$1``, ``$2`` …, arrays of text, as a relation with these columns: name → SQL type."""
    arrays = ", ".join(f"${n}::text[]" for n in range(1, len(columns) + 1))
    typed = ", ".join(f"u.{name}::{kind.split()[0]}" for name, kind in columns.items())
    return f"(SELECT {typed} FROM unnest({arrays}) AS u ({', '.join(columns)}))"


def texts(values: Iterable[Any]) -> list[str | None]:
    """Write a column's values as text that Postgres reads back as they are."""
    return [_text(value) for value in values]


def storable(text: str) -> str:
    """Give text that Postgres can hold: NUL and lone surrogates become U+FFFD."""
    if text.isascii():
        return text.replace("\x00", "\ufffd")
    return text.replace("\x00", "\ufffd").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def storable_json(value: Json) -> Json:
    """Give a JSON value that ``jsonb`` can hold."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {storable(key): storable_json(inner) for key, inner in value.items()}
    return [storable_json(inner) for inner in value] if isinstance(value, list) else value


def count(value: Json) -> int | None:
    """Give a number from 0 on that a ``bigint`` can hold; None where it is none."""
    return value if type(value) is int and 0 <= value <= MAX_BIGINT else None


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dt.datetime):
        return value.isoformat()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | bool) else str(value)


def _list(alias: str, names: Iterable[str]) -> str:
    return ", ".join(f"{alias}.{name}" for name in names)
