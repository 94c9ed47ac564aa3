"""Waiting between two tries, waiting for a bell, and what goes on beside, for both kinds of client."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine


async def pause_async(seconds: float) -> None:
    """Let other tasks run for ``seconds``."""
    await asyncio.sleep(seconds)


def pause(seconds: float) -> None:
    """Sleep for ``seconds``."""
    time.sleep(seconds)


class AsyncBell:
    """Ends a pause early. To be rung in the loop of who waits at it."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """End the pause that is on, or the next one."""
        if not self._rung.is_set():
            self._rung.set()

    async def wait(self, seconds: float) -> bool:
        """Wait for ``seconds`` at most; tell whether it was rung since the last wait."""
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True


class Bell:
    """Ends a pause early; to be rung from any thread."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    def ring(self) -> None:
        """End the pause that is on, or the next one."""
        if not self._rung.is_set():
            self._rung.set()

    def wait(self, seconds: float) -> bool:
        """Wait for ``seconds`` at most; tell whether it was rung since the last wait."""
        rung = self._rung.wait(seconds)
        if rung:
            self._rung.clear()
        return rung


class AsyncBackground:
    """A task that ends with what it belongs to."""

    def __init__(self, work: Callable[[], Coroutine[None, None, None]], name: str) -> None:
        self._task = asyncio.create_task(work(), name=name)

    async def stop(self) -> None:
        """Cancel it."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


class Background:
    """A thread that ends by itself soon after it should."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._thread = threading.Thread(target=work, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait for it, but not for a server that does not answer."""
        self._thread.join(2.0)
