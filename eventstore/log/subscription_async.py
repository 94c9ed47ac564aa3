"""Following the feed: events one by one as they are committed, asked for often under load and rarely when idle."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from eventstore.errors import StoreUnavailable
from eventstore.log.connection_async import AsyncCaller
from eventstore.log.events import RecordedEvent
from eventstore.log.feed_async import feed_async, feed_state_async
from eventstore.log.hints_async import AsyncHints
from eventstore.log.pause import AsyncBell
from eventstore.log.rows import FeedPage
from eventstore.telemetry import logger

SHORTEST: Final = 0.002
LONGEST: Final = 0.25
RARELY: Final = 2.0
"""The longest pause while hints come."""
LATE: Final = 0.1
"""A hint would have ended a pause as long as this, if one had come."""
LOOK_EVERY: Final = 5.0
"""Seconds between two looks at how far a named subscription is behind; none where it isn't."""


class AsyncSubscription(AsyncIterator[RecordedEvent]):
    """Events of the feed in order, at least once for who keeps ``event.cursor``; for one task or thread.

    It holds one page: the next is read when the last event of this one was taken. A call that is cancelled, or timed
    out from outside, loses nothing and can be made again.
    """

    def __init__(
        self,
        caller: AsyncCaller,
        tenant: str | None,
        after: str | None,
        types: Sequence[str] | None,
        *,
        limit: int,
        idle: float | None,
        name: str | None,
        hint: bool,
    ) -> None:
        self.name = name
        self._caller = caller
        self._tenant = tenant
        self._types = types
        self._limit = limit
        self._idle = idle
        self._page: deque[RecordedEvent] = deque()
        self._given: RecordedEvent | None = None
        self._after = after
        self._cursor = after
        self._wait = SHORTEST / 2
        self._due = 0.0
        self._last = time.monotonic()
        self._beyond = (0, 0.0)
        self._looked = float("-inf")
        self._bell = AsyncBell()
        self._hints = caller.hints if hint else None
        self._heard = 0
        self._longest = LONGEST
        self._reading = False
        self._closed = False
        caller.subscriptions.add(self)

    @property
    def cursor(self) -> str | None:
        """Where to go on once the event given last is dealt with; past what a filter by type left out."""
        return self._cursor

    def close(self) -> None:
        """End the iteration, also for who waits in it."""
        self._closed = True
        self._bell.ring()

    def lag(self) -> tuple[int, float]:
        """Return how many events are waiting, the one in hand included, and the age of the oldest in seconds.

        Those beyond the page in hand are as ``feed_state`` told, at most some seconds ago, of any type.
        """
        beyond, seconds = self._beyond
        try:
            oldest = self._given or self._page[0]
            seconds = max((datetime.now(UTC) - oldest.recorded_at).total_seconds(), 0.0)
        except IndexError:
            pass
        return len(self._page) + (self._given is not None) + beyond, seconds

    async def __anext__(self) -> RecordedEvent:
        """Return the next event as soon as there is one."""
        if self._reading:
            raise RuntimeError("somebody else waits for this subscription's next event; subscribe once for each")
        self._given = None
        self._reading = True
        try:
            while not (self._page or self._closed):
                await self._fill()
        finally:
            self._reading = False
        if self._closed:
            raise StopAsyncIteration
        event = self._given = self._page.popleft()
        self._cursor = event.cursor if self._page else self._after
        self._last = time.monotonic()
        return event

    async def _fill(self) -> None:
        """Read a page when it is due."""
        due, self._due = self._due, 0.0  # who is cancelled here does not wait again
        if self._hints is not None:
            self._hints.listen(self._bell)
        if due:
            rung = await self._bell.wait(due)
            if self._closed:
                return
            if rung:
                due, self._wait = 0.0, SHORTEST
        idle = self._idle is not None and time.monotonic() - self._last >= self._idle
        try:
            page = await feed_async(self._caller, self._tenant, self._after, self._types, self._limit)
        except StoreUnavailable as e:
            if self._closed:
                return
            if self._caller.closed or idle:
                raise
            logger(tenant=self._tenant).warning("the feed waits for the store", error=str(e))
            self._due = LONGEST
            return
        if self._hints is not None:
            self._trust(self._hints, late=bool(page.events) and due > LATE)
        self._page.extend(page.events)
        self._after = page.cursor
        if page.events:
            self._wait = SHORTEST
            self._due = 0.0 if page.more else SHORTEST
        else:
            self._cursor = page.cursor
            self._wait = self._due = min(self._wait * 2, self._longest)
            if idle:
                self.close()
            elif self._idle is not None:
                self._due = min(self._due, max(self._last + self._idle - time.monotonic(), 0.0))
        if self.name is not None:
            await self._look(page)

    def _trust(self, hints: AsyncHints, *, late: bool) -> None:
        """Make longer pauses while hints are heard, and no more once events came without one."""
        if late:
            self._longest = LONGEST
        elif hints.heard != self._heard:
            self._longest = RARELY
        self._heard = hints.heard

    async def _look(self, page: FeedPage) -> None:
        """See how much there is beyond the page, where there is something."""
        if not page.more and page.blocked_by is None:
            self._beyond = (0, 0.0)
        elif time.monotonic() - self._looked >= LOOK_EVERY:
            self._looked = time.monotonic()
            with suppress(StoreUnavailable):
                state = await feed_state_async(self._caller, self._tenant, page.cursor)
                self._beyond = (state.lag_events, state.lag_seconds)
