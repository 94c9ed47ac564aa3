"""What runs statements, as those see it who have something to run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, LiteralString, Protocol, TypeAlias
from weakref import WeakSet

import psycopg

from eventstore.log.coalescing import CoalescingWriter  # async only
from eventstore.log.hints_async import AsyncHints

Params: TypeAlias = Sequence[Any]
Row: TypeAlias = tuple[Any, ...]


class Closes(Protocol):
    """What ends with the connections that it uses."""

    def close(self) -> None:
        """End it."""
        ...


class AsyncCaller(Protocol):
    """What runs a statement: the store's pool, or a connection of the caller."""

    commits: bool
    """Whether a call is committed when it returns."""
    writer: CoalescingWriter | None  # async only
    """What sends appends that wait at the same moment together; None on a connection of the caller."""  # async only
    subscriptions: WeakSet[Closes]
    """Those that end when this is closed."""

    @property
    def hints(self) -> AsyncHints | None:
        """How it hears of appends; None where it can't."""
        ...

    @property
    def closed(self) -> bool:
        """Whether no call can succeed any more."""
        ...

    async def call(
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

    def transaction(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """Give a connection for one transaction; a savepoint where the caller's is in one."""
        ...
