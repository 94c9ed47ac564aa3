# Generated from caller_async.py by ops/generate_sync.py: edit that one.
"""What runs statements, as those see it who have something to run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, LiteralString, Protocol, TypeAlias
from weakref import WeakSet

import psycopg

from eventstore.log.hints import Hints

Params: TypeAlias = Sequence[Any]
Row: TypeAlias = tuple[Any, ...]


class Closes(Protocol):
    """What ends with the connections that it uses."""

    def close(self) -> None:
        """End it."""
        ...


class Caller(Protocol):
    """What runs a statement: the store's pool, or a connection of the caller."""

    commits: bool
    """Whether a call is committed when it returns."""
    subscriptions: WeakSet[Closes]
    """Those that end when this is closed."""

    @property
    def hints(self) -> Hints | None:
        """How it hears of appends; None where it can't."""
        ...

    @property
    def closed(self) -> bool:
        """Whether no call can succeed any more."""
        ...

    def call(
        self,
        query: LiteralString,
        params: Params,
        *,
        tenant: str | None,
        action: str,
        role: str,
        again: Params | None = None,
    ) -> list[Row]:
        """Run a statement and return its rows; ``action`` and ``role`` are for the error where it may not run."""
        ...

    def transaction(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        """Give a connection for one transaction; a savepoint where the caller's is in one."""
        ...
