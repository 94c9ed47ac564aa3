"""Sessions of the OpenAI Agents SDK, ours and its own, driven by its runner with a scripted model and no network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from agents import SQLiteSession, set_tracing_disabled
from scripts import Make, Play

from eventstore import AsyncEventStore
from eventstore.adapters.openai_agents import ConvstoreSession

T = TypeVar("T")


@pytest.fixture(autouse=True, scope="session")
def _no_traces() -> None:
    set_tracing_disabled(True)


def play_ours(url: str, story: Callable[[Make], Awaitable[T]]) -> T:
    """Run a story with sessions of a store."""

    async def whole() -> T:
        async with AsyncEventStore.open(url) as store:
            return await story(lambda name="s", **options: ConvstoreSession(name, store=store, **options))

    return asyncio.run(whole())


@pytest.fixture
def ours(url: str) -> Play[Any]:
    """Plays a story on the store."""
    return lambda story: play_ours(url, story)


@asynccontextmanager
async def sqlite_sessions(file: Path) -> AsyncIterator[Make]:
    """Make the SDK's own sessions, in one file."""
    made: list[SQLiteSession] = []

    def make(name: str = "s", **options: Any) -> SQLiteSession:
        made.append(SQLiteSession(name, file, **options))
        return made[-1]

    try:
        yield make
    finally:
        for session in made:
            session.close()


@pytest.fixture(params=["convstore", "sqlite"])
def each(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Play[Any]]:
    """Plays a story on the store, and on the SDK's ``SQLiteSession``."""
    if request.param == "convstore":
        url = request.getfixturevalue("url")
        yield lambda story: play_ours(url, story)
        return

    def play(story: Callable[[Make], Awaitable[T]]) -> T:
        async def whole() -> T:
            async with sqlite_sessions(tmp_path / "sessions.sqlite") as make:
                return await story(make)

        return asyncio.run(whole())

    yield play
