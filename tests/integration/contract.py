"""What drives the contract: the sync store, the async store awaited for us, and the sync store behind a pooler."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from eventstore import AsyncConversation, AsyncEventStore, EventStore
from eventstore.conversation.artifacts_async import AsyncArtifacts
from eventstore.conversation.effects_async import AsyncEffects
from eventstore.conversation.guarding_async import AsyncGuard
from eventstore.conversation.model_input_async import AsyncResponses
from eventstore.conversation.tasks_async import AsyncTasks
from eventstore.store_async import AsyncScope

Wrapped = (
    AsyncScope,
    AsyncConversation,
    AsyncResponses,
    AsyncTasks,
    AsyncArtifacts,
    AsyncEffects,
    AsyncGuard,
    psycopg.AsyncConnection,
    psycopg.AsyncCursor,
)


class Driver:
    """One way to use the product: opens stores and connections that the same test code can use."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store = self.open()

    def open(self, **kwargs: Any) -> Any:
        return EventStore.open(self.url, **kwargs)

    def connect(self, **kwargs: Any) -> Any:
        return psycopg.connect(self.url, prepare_threshold=None, **kwargs)

    def close(self) -> None:
        self.store.close()


class AsyncDriver(Driver):
    """The async store and async connections, on an event loop in a thread."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="contract-loop")
        self._thread.start()
        super().__init__(url)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def open(self, **kwargs: Any) -> Any:
        async def opened() -> AsyncEventStore:
            return await AsyncEventStore.open(self.url, **kwargs)

        return Awaited(self, self.run(opened()))

    @contextmanager
    def connect(self, **kwargs: Any) -> Iterator[Any]:
        """Commit where the block ends well, as psycopg's own context manager does."""
        conn = self.run(psycopg.AsyncConnection.connect(self.url, prepare_threshold=None, **kwargs))
        try:
            yield Awaited(self, conn)
            self.run(conn.commit())
        finally:
            self.run(conn.close())

    def close(self) -> None:
        super().close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Awaited:
    """An async object as if it were sync: coroutines are run, async iterators and context managers become plain."""

    def __init__(self, driver: AsyncDriver, wrapped: Any) -> None:
        self._driver = driver
        self._wrapped = wrapped

    def __repr__(self) -> str:
        return repr(self._wrapped)

    def __enter__(self) -> Awaited:
        self._driver.run(self._wrapped.__aenter__())
        return self

    def __exit__(self, *caught: object) -> None:
        self._driver.run(self._wrapped.__aexit__(*caught))

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._wrapped, name)
        if not inspect.isroutine(value):
            return Awaited(self._driver, value) if _namespace(value) else value
        return lambda *args, **kwargs: self._settled(value(*map(_unwrapped, args), **kwargs))

    def _settled(self, value: Any) -> Any:
        if inspect.iscoroutine(value):
            value = self._driver.run(value)
        if isinstance(value, Wrapped):
            return Awaited(self._driver, value)
        if isinstance(value, AsyncIterator):
            return self._iterated(value)
        if hasattr(value, "__aenter__"):
            return self._entered(value)
        return value

    def _iterated(self, iterator: AsyncIterator[Any]) -> Iterator[Any]:
        end = object()

        async def step() -> Any:
            return await anext(iterator, end)

        while (value := self._driver.run(step())) is not end:
            yield value

    @contextmanager
    def _entered(self, manager: Any) -> Iterator[Any]:
        entered = self._driver.run(manager.__aenter__())
        try:
            yield self._settled(entered)
        except BaseException as e:
            if not self._driver.run(manager.__aexit__(type(e), e, e.__traceback__)):
                raise
        else:
            self._driver.run(manager.__aexit__(None, None, None))


def _namespace(value: Any) -> bool:
    """Tell whether a value is one of a handle's namespaces, such as ``chat.facts``."""
    kind = type(value)
    return kind.__module__.startswith("eventstore.conversation.") and kind.__name__.startswith("Async")


def _unwrapped(value: Any) -> Any:
    return value._wrapped if isinstance(value, Awaited) else value


class Untouched:
    """Within the block no row is written and no position drawn."""

    def __init__(self, db: psycopg.Connection) -> None:
        self._db = db

    def _state(self) -> Any:
        return self._db.execute("""
            SELECT (SELECT md5(string_agg(t::text, '' ORDER BY tenant_id)) FROM convstore.tenants t),
                   (SELECT md5(string_agg(c::text, '' ORDER BY context_id)) FROM convstore.contexts c),
                   (SELECT md5(string_agg(d::text, '' ORDER BY stream_id)) FROM convstore.directory d),
                   (SELECT md5(string_agg(s::text, '' ORDER BY stream_id)) FROM convstore.streams s),
                   (SELECT md5(string_agg(ctid::text || xmin, '' ORDER BY position)) FROM convstore.events),
                   pg_sequence_last_value('convstore.position')
        """).fetchone()

    def __enter__(self) -> None:
        self._before = self._state()

    def __exit__(self, *caught: object) -> None:
        assert self._state() == self._before
