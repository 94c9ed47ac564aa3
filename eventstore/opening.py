"""What opening a store needs that differs between its two kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from eventstore.errors import StoreUnavailable

if TYPE_CHECKING:
    from eventstore.embedded import Server


class Awaitable:
    """A store whose ``open()`` is awaited, or entered with ``async with``."""

    async def _opened(self) -> Self:
        raise AssertionError("unreachable: the store says how it opens")

    def __getattr__(self, name: str) -> Any:
        if name == "_route":
            raise StoreUnavailable("the store is not open yet: await AsyncEventStore.open(), or use async with")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __await__(self) -> Generator[Any, None, Self]:
        return self._opened().__await__()


async def start_embedded_async(home: Path | None, timeout: float) -> Server:
    """Start the embedded Postgres, or join it, while other tasks run."""
    return await asyncio.to_thread(start_embedded, home, timeout)


def start_embedded(home: Path | None, timeout: float) -> Server:
    """Start the embedded Postgres, or join it."""
    from eventstore import embedded  # not at the top: on Windows, where a URL serves, it can't be imported

    return embedded.start(home, timeout=timeout)
