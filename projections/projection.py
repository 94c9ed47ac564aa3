"""What a projection is: which events it takes, which tables it keeps, and what a batch changes in them.

It does no I/O. ``apply`` gives statements, and where it has to know what a table holds it yields one and is sent its
rows; so the same projection runs in a thread, in a task, and in a test without a server.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from eventstore.errors import InvalidItem, InvalidName, describe
from eventstore.log.events import RecordedEvent

Rows: TypeAlias = list[tuple[Any, ...]]
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")


class Statement(NamedTuple):
    """SQL with ``$1``, ``$2`` … for the parameters, and ``{table}`` for a table of the projection."""

    sql: str
    params: Sequence[Any] = ()


Work: TypeAlias = Iterable[Statement] | Generator[Statement, Rows, None]
"""A list of statements, or a generator that is sent the rows of each that it yields."""


class Projection:
    """A read model and how events change it; subclass it.

    All that it writes commits together with how far it has come, so each event counts once. A table has a column
    ``tenant``, by which people see the rows of their own.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    """A higher one is built beside the one that is there and takes its place: raise it with each change of the
    tables or of what ``apply`` does."""
    types: ClassVar[Sequence[str] | None] = None
    """Event types that it is given; None: all."""
    tables: ClassVar[Mapping[str, str]]
    """Name of each table → its columns and constraints, as between the parentheses of CREATE TABLE."""
    indexes: ClassVar[Sequence[str]] = ()
    """Statements such as ``CREATE INDEX ON {refunds} (tenant, made_at)``."""
    views: ClassVar[Mapping[str, str] | None] = None
    """Name of each view in ``convstore_views`` → its SELECT from ``{table}``; None: each table under its name."""
    ordered: ClassVar[Literal["stream", "context"] | None] = "stream"
    """Where the order of events counts: those behind a parked one in its stream, or in its context, wait with it.
    None: any order gives the same rows, so nothing waits."""
    on_error: ClassVar[Literal["park", "stop"]] = "park"
    """What follows on an event that it can't take: the event is set aside, or the projection stops before it."""

    def apply(self, batch: Sequence[RecordedEvent]) -> Work:
        """Give what a batch of events, in order of position, changes. The same batch always gives the same.

        How the log is cut into batches is not to matter. An exception is taken for the batch's fault: it is tried
        again, then cut down to the event that causes it.
        """
        raise NotImplementedError

    def shown(self) -> Mapping[str, str]:
        """Give the views: name → SELECT."""
        return {table: f"SELECT * FROM {{{table}}}" for table in self.tables} if self.views is None else self.views


def check(projection: object) -> Projection:
    """Return a projection that can be run; raise ``InvalidItem`` or ``InvalidName`` that names what is wrong."""
    if not isinstance(projection, Projection):
        raise InvalidItem("projection", f"{describe(projection)} is no instance of a subclass of Projection")
    path = type(projection).__name__
    for what in ("name", "tables"):
        if not hasattr(projection, what):
            raise InvalidItem(f"{path}.{what}", "is missing")
    tables, views = projection.tables, projection.shown()
    for what, name in [("projection", projection.name), *(("table", t) for t in tables), *(("view", v) for v in views)]:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidName(what, name, "1 to 40 of a-z, 0-9 and _, beginning with a letter")
    if type(projection.version) is not int or projection.version < 1:
        raise InvalidItem(f"{path}.version", f"{describe(projection.version)}; give 1, 2, 3 …")
    if not tables:
        raise InvalidItem(f"{path}.tables", "is empty; a projection keeps one table at least")
    if isinstance(projection.types, str):
        raise InvalidItem(f"{path}.types", f"{describe(projection.types)}; give a list of event types, or None for all")
    for what, value, choices in (
        ("ordered", projection.ordered, ("stream", "context", None)),
        ("on_error", projection.on_error, ("park", "stop")),
    ):
        if value not in choices:
            raise InvalidItem(f"{path}.{what}", f"{describe(value)}; give one of {', '.join(map(repr, choices))}")
    return projection


def place(projection: Projection, event: RecordedEvent) -> tuple[str | None, str | None] | None:
    """Say within what the order of an event counts; None: it doesn't."""
    if projection.ordered is None:
        return None
    return event.tenant, event.stream if projection.ordered == "stream" else event.context
