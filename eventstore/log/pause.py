"""Waiting between two tries, for both kinds of client."""

from __future__ import annotations

import asyncio
import time


async def pause_async(seconds: float) -> None:
    """Let other tasks run for ``seconds``."""
    await asyncio.sleep(seconds)


def pause(seconds: float) -> None:
    """Sleep for ``seconds``."""
    time.sleep(seconds)
