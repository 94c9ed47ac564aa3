"""Stores that sessions share: opened by the first one that needs them, closed by the last one that goes."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary, WeakSet

from eventstore.errors import InvalidItem, describe
from eventstore.store import Scope
from eventstore.store_async import AsyncEventStore, AsyncScope


class Opening:
    """How one store came to be open, and which sessions use it."""

    def __init__(self) -> None:
        self.sessions: WeakSet[object] = WeakSet()
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ours = False

    async def ready(self, store: AsyncEventStore) -> None:
        """Open the store where nobody has; refuse it in another event loop than the one that it was opened in."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            async with self._lock:
                if self._loop is None:
                    ours = "_route" not in vars(store)
                    await store
                    self._loop, self._ours = loop, ours
        if self._loop is not loop:
            raise InvalidItem(
                "store",
                "it is used in another event loop than the one that it was opened in, and its connections belong to "
                "that one; open a store in each asyncio.run(), or run everything in one",
            )

    async def leave(self, store: AsyncEventStore, session: object) -> None:
        """Close the store after its last session, if a session opened it."""
        self.sessions.discard(session)
        if self._ours and not self.sessions:
            self._ours = False
            await store.close()


_known: WeakKeyDictionary[AsyncEventStore, Opening] = WeakKeyDictionary()


def opening_of(store: object) -> Opening | None:
    """Give what is known of a store; None for a scope of an open one.

    Raises:
        InvalidItem: it is no async store.
    """
    if isinstance(store, Scope):
        raise InvalidItem("store", f"{describe(store)} is a sync store; give an AsyncEventStore")
    if not isinstance(store, AsyncScope):
        raise InvalidItem("store", f"{describe(store)} should be an AsyncEventStore: store=AsyncEventStore.open(url)")
    if not isinstance(store, AsyncEventStore):
        return None
    return _known.setdefault(store, Opening())
