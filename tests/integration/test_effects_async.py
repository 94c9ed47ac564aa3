"""Effects whose calls are awaited, and tasks that are cancelled in the middle of one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from eventstore import AsyncEventStore, EventStore
from eventstore.errors import EffectIndeterminate, EffectRefused, InvalidItem


def test_the_async_store_awaits_what_the_call_gives(url: str) -> None:
    calls = []

    async def call() -> str:
        await asyncio.sleep(0)
        calls.append(1)
        return "ok"

    async def main() -> None:
        async with AsyncEventStore.open(url) as store:
            effects = store.conversation("s").effects
            for key in ("a", "a", "b"):
                assert await effects.run("t", call, key=key) == "ok"
            assert await effects.run("t", lambda: "plain", key="c") == "plain"
            assert await effects.run("t", lambda: call(), key="d") == "ok"
            assert [effect.state for effect in await effects.list()] == ["succeeded"] * 4

    asyncio.run(main())
    assert len(calls) == 3


def test_the_sync_store_takes_no_coroutine_function(store: EventStore) -> None:
    async def call() -> str:
        return "never"

    effects = store.conversation("s").effects
    with pytest.raises(InvalidItem, match="AsyncEventStore"):
        effects.run("t", call, key="a")
    assert effects.list() == []
    made: list[Any] = []
    with pytest.raises(TypeError, match="awaitable"):
        effects.run("t", lambda: made.append(call()) or made[0], key="a")
    made[0].close()
    assert effects.find("a").state == "indeterminate"


def test_cancelled_in_its_call_it_is_indeterminate_at_once(url: str) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def call() -> None:
            begun.set()
            await asyncio.Event().wait()

        async with AsyncEventStore.open(url) as store:
            effects = store.conversation("s").effects
            task = asyncio.create_task(effects.run("t", call, key="k"))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            effect = await effects.find("k")
            assert (effect.state, effect.happened) == ("indeterminate", None)
            assert effect.reason is not None
            assert effect.reason.startswith("CancelledError")

    asyncio.run(main())


def test_cancelled_while_its_outcome_is_written_it_is_known_to_have_happened(url: str, db: psycopg.Connection) -> None:
    async def main() -> None:
        with psycopg.connect(url, options="-c search_path=convstore") as blocker:

            async def waits(since: datetime) -> datetime:
                """Poll until a statement waits that began after ``since``; give when it began."""
                blocked = (
                    "SELECT query_start FROM pg_stat_activity WHERE datname = current_database()"
                    " AND wait_event_type = 'Lock' AND query_start > %s"
                )
                async with asyncio.timeout(20):
                    while (row := db.execute(blocked, [since]).fetchone()) is None:
                        await asyncio.sleep(0.005)
                began: datetime = row[0]
                return began

            def call() -> str:
                blocker.execute("SELECT FROM contexts FOR UPDATE")
                return "ok"

            async with AsyncEventStore.open(url) as store:
                effects = store.conversation("s").effects
                task = asyncio.create_task(effects.run("t", call, key="k"))
                outcome = await waits(datetime.fromtimestamp(0, UTC))
                task.cancel()
                await waits(outcome)  # the doubt, where the outcome was given up
                blocker.rollback()
                with pytest.raises(asyncio.CancelledError):
                    await task
                effect = await effects.find("k")
                assert (effect.state, effect.happened) == ("indeterminate", True)
                with pytest.raises(EffectRefused, match="it happened"):
                    await effects.resolve("k", succeeded=False)
                with pytest.raises(EffectIndeterminate, match="it happened"):
                    await effects.run("t", call, key="k")

    asyncio.run(main())
