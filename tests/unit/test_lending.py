"""A connection comes back to its pool however often the task that has it is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

from eventstore.log.lending import give_async, lend_async


class Slow:
    """A pool whose hand-over ends when it is told to."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.out = 0

    async def getconn(self) -> str:
        self.out += 1  # as psycopg-pool's, lost where the hand-over itself is cancelled
        await self.go.wait()
        return "connection"

    async def putconn(self, _conn: object) -> None:
        await self.go.wait()
        self.out -= 1


async def cancelled_twice(task: asyncio.Task[Any]) -> None:
    await settle()  # it waits inside the hand-over now
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([task])
    assert task.cancelled()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_connection_that_comes_after_its_taker_was_cancelled_goes_back() -> None:
    async def story() -> None:
        pool: Any = Slow()
        await cancelled_twice(asyncio.create_task(lend_async(pool)))
        pool.go.set()
        await settle()
        assert pool.out == 0

    asyncio.run(story())


def test_a_connection_is_given_back_though_the_giver_was_cancelled() -> None:
    async def story() -> None:
        pool: Any = Slow()
        pool.out = 1
        await cancelled_twice(asyncio.create_task(give_async(pool, object())))
        pool.go.set()
        await settle()
        assert pool.out == 0

    asyncio.run(story())
