"""What opening a store needs that differs between its two kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path
from typing import Any, Self

from eventstore import embedded


class Awaitable:
    """A store whose ``open()`` is awaited, or entered with ``async with``."""

    async def _opened(self) -> Self:
        raise AssertionError("unreachable: the store says how it opens")

    def __await__(self) -> Generator[Any, None, Self]:
        return self._opened().__await__()


async def start_embedded_async(home: Path | None, timeout: float) -> embedded.Server:
    """Start the embedded Postgres, or join it, while other tasks run."""
    return await asyncio.to_thread(embedded.start, home, timeout=timeout)


def start_embedded(home: Path | None, timeout: float) -> embedded.Server:
    """Start the embedded Postgres, or join it."""
    return embedded.start(home, timeout=timeout)
