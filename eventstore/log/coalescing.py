"""Appends of an async store that wait at the same moment go together: one call, one commit.

An append that finds a free place takes the direct call at once. Where enough calls are in flight the next ones wait,
and what waits when one ends goes as a set, each with an answer of its own. Nothing is timed to make sets larger.

* A set is of one tenant, and of a stream it has one append: the next one to the same stream waits for the first, so a
  store writes a stream's appends in the order in which they were made.
* The server waits for no stream that somebody holds: it leaves that append out, which then takes the direct call.
* A set that fails is repeated append by append, so what is wrong with one does not show in another's answer.
* A task that is cancelled while its append waits takes it back; one that is on its way is written whole, or not at all.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, LiteralString, TypeAlias

import psycopg

from eventstore.errors import StoreUnavailable
from eventstore.log.appending import Known, Target, several
from eventstore.log.batch import Batch
from eventstore.telemetry import logger

if TYPE_CHECKING:
    from eventstore.log.connection_async import AsyncPooled, Row

CALLS: Final = 2
"""Calls in flight behind which appends wait: one for the server to work on while the client makes the next."""

MAX_APPENDS: Final = 64
MAX_EVENTS: Final = 500
MAX_BYTES: Final = 512 * 1024
"""Where a set ends: beyond, its streams stay locked longer and nothing is gained."""

LARGE_EVENTS: Final = 50
LARGE_BYTES: Final = 128 * 1024
"""An append larger than this gains nothing in a set, and would make its neighbours wait."""

PATIENCE: Final = 0.02
"""Seconds after which a call is taken for one that waits for somebody else, and nobody waits behind it any more."""

_ALONE: Final = frozenset(
    (
        "history.compacted",
        "items.retracted",
        "history.cleared",
        "stream.closed",
        "stream.forked",
        "task.opened",
        "task.changed",
    )
)
_SET: Final[LiteralString] = """SELECT * FROM convstore.append_set(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)"""

Direct: TypeAlias = "Callable[[bool], Awaitable[Row]]"
"""Sends an append by itself; told whether it may have been sent before."""


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    """The right to go by itself: as a call that others wait behind, or beside those."""

    again: bool = False
    call: object = None


@dataclass(slots=True, eq=False)
class _Waiting:
    """An append that waits; its task is told the server's answer, or that it is its turn."""

    stream: tuple[str, str]
    known: Known | None
    batch: Batch
    expected: int | None
    size: int | None
    told: asyncio.Future[Row | _Turn]


class CoalescingWriter:
    """The appends of one store, on one event loop; at most ``width`` calls in flight behind which others wait."""

    def __init__(self, pooled: AsyncPooled, width: int) -> None:
        self._pooled = pooled
        self._width = min(width, CALLS)
        self._calls: dict[object, float] = {}
        """The calls in flight and when they began, the oldest first."""
        self._held: dict[tuple[str, str], deque[_Waiting]] = {}
        """The streams that an append has or waits to be sent to, and what waits behind it."""
        self._ready: dict[str, deque[_Waiting]] = {}
        """By tenant, what holds its stream and waits for a call to end. Empty, or ``width`` calls are in flight."""
        self._sets: set[asyncio.Task[None]] = set()
        self._watch: asyncio.TimerHandle | None = None

    async def append(
        self, target: Target, known: Known | None, batch: Batch, expected: int | None, direct: Direct
    ) -> Row:
        """Send an append by ``direct``, or in a set, and return the server's answer."""
        stream = (target.tenant, target.stream)
        size = _size(batch) if known is not None else None
        # These can wait for others than who has their stream; so nobody waits behind them.
        passing = known is None or (size is None and any(row.unique_key is not None for row in batch.rows))
        if stream not in self._held and (size is None or (len(self._calls) < self._width and not self._ready)):
            turn = _Turn() if size is None else self._begin()
            if not passing:
                self._held[stream] = deque()
        else:
            told = await self._wait(_Waiting(stream, known, batch, expected, size, _future()))
            if isinstance(told, tuple):
                return told
            turn = told
            if passing:
                self._end(stream, None)
        try:
            return await direct(turn.again)
        finally:
            if not passing:
                self._end(stream, turn.call)

    def close(self) -> None:
        """Refuse what waits; what is on its way gets its answer."""
        for queue in [*self._held.values(), *self._ready.values()]:
            for waiting in queue:
                if not waiting.told.done():
                    waiting.told.set_exception(StoreUnavailable("the store is closed"))

    async def _wait(self, waiting: _Waiting) -> Row | _Turn:
        self._pooled.check_process()
        expiry = None
        queue = self._held.get(waiting.stream)
        if queue is None:
            self._held[waiting.stream] = deque()
            self._ready.setdefault(waiting.stream[0], deque()).append(waiting)
            self._look_after()
        else:
            queue.append(waiting)
            expiry = waiting.told.get_loop().call_later(self._pooled.timeout, self._expire, waiting)
        try:
            return await waiting.told
        except asyncio.CancelledError:
            told = waiting.told
            if not told.cancelled() and told.exception() is None and isinstance(turn := told.result(), _Turn):
                self._end(waiting.stream, turn.call)  # it came too late
            raise
        finally:
            if expiry is not None:
                expiry.cancel()

    def _expire(self, waiting: _Waiting) -> None:
        if not waiting.told.done() and waiting in self._held.get(waiting.stream, ()):
            seconds = f"{self._pooled.timeout:g} s"
            error = StoreUnavailable(f"earlier appends to stream {waiting.stream[1]!r} did not end within {seconds}")
            waiting.told.set_exception(error)

    def _begin(self) -> _Turn:
        call = object()
        self._calls[call] = time.monotonic()
        return _Turn(call=call)

    def _end(self, stream: tuple[str, str], call: object) -> None:
        """A call ended, or a stream's turn: whoever is next goes."""
        self._calls.pop(call, None)
        self._pass_on(stream)
        if self._ready:
            self._dispatch()

    def _pass_on(self, stream: tuple[str, str]) -> None:
        """Let the next append to a stream go on."""
        queue = self._held[stream]
        while queue:
            waiting = queue.popleft()
            if waiting.told.done():  # cancelled, or expired
                continue
            if waiting.size is None:
                waiting.told.set_result(_Turn())
            else:
                self._ready.setdefault(stream[0], deque()).append(waiting)
            return
        del self._held[stream]

    def _dispatch(self) -> None:
        """Send what waits, as far as there is room."""
        while self._ready and len(self._calls) < self._width:
            members = self._take()
            if not members:
                continue
            turn = self._begin()
            if len(members) == 1:
                members[0].told.set_result(turn)
                continue
            task = asyncio.get_running_loop().create_task(self._send(members, turn.call))
            self._sets.add(task)
            task.add_done_callback(self._sets.discard)
        self._look_after()

    def _take(self) -> list[_Waiting]:
        """Take a set of the tenant that waits longest; who is left over goes behind the other tenants."""
        tenant, queue = next(iter(self._ready.items()))
        members: list[_Waiting] = []
        events = size = 0
        while queue and len(members) < MAX_APPENDS:
            waiting = queue[0]
            if waiting.told.done():  # cancelled
                self._pass_on(queue.popleft().stream)
                continue
            events += len(waiting.batch.rows)
            size += waiting.size or 0
            if members and (events > MAX_EVENTS or size > MAX_BYTES):
                break
            members.append(queue.popleft())
        del self._ready[tenant]
        if queue:
            self._ready[tenant] = queue
        return members

    def _look_after(self) -> None:
        if self._ready and self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(PATIENCE, self._look)

    def _look(self) -> None:
        """Count calls out that take long: they may wait for a stream that somebody holds, or for a connection."""
        self._watch = None
        late = time.monotonic() - PATIENCE
        for call, began in list(self._calls.items()):
            if began > late:
                break
            del self._calls[call]
        self._dispatch()

    async def _send(self, members: list[_Waiting], call: object) -> None:
        members.sort(key=lambda m: (m.known.context_id, m.known.stream_id) if m.known is not None else (0, 0))
        try:
            answers = await self._ask(members)
        except asyncio.CancelledError:  # the loop ends
            for waiting in members:
                waiting.told.cancel()
            raise
        for waiting, answer in zip(members, answers, strict=True):
            late = waiting.told.done()  # cancelled
            if not late and isinstance(answer, StoreUnavailable):
                waiting.told.set_exception(answer)
            elif not late and not isinstance(answer, StoreUnavailable):
                waiting.told.set_result(answer)
            if late or not isinstance(answer, _Turn):
                self._pass_on(waiting.stream)
        # One step later: who was told goes on first, and what it appends next is in the next set.
        asyncio.get_running_loop().call_soon(self._ended, call)

    def _ended(self, call: object) -> None:
        self._calls.pop(call, None)
        self._dispatch()

    async def _ask(self, members: list[_Waiting]) -> list[Row | _Turn | StoreUnavailable]:
        pooled = self._pooled
        tenant = members[0].stream[0]
        pooled.telemetry.append_set_appends.observe(len(members))
        try:
            first, again = several([(m.known, m.batch, m.expected) for m in members if m.known is not None])
            rows = await pooled.call(
                _SET,
                [tenant, *first],
                again=[tenant, *again],
                tenant=tenant,
                action="append events",
                role="convstore_writer",
            )
            return [_Turn(again=True) if row[0] == "skipped" else row for _, row in zip(members, rows, strict=True)]
        except StoreUnavailable as e:
            refused = e.outcome == "not_done" and isinstance(e.__cause__, psycopg.Error) and e.__cause__.sqlstate
            if not refused:  # nobody answered: one by one would wait as long again
                return [StoreUnavailable(e.reason, e.outcome) for _ in members]
        except Exception as e:  # noqa: BLE001
            # Whatever is wrong with one of them shows again where that one is sent.
            logger().debug("set of appends failed, sending one by one", appends=len(members), error=str(e))
        return [_Turn(again=True) for _ in members]


def _future() -> asyncio.Future[Row | _Turn]:
    return asyncio.get_running_loop().create_future()


def _size(batch: Batch) -> int | None:
    """Return the bytes of an append that may go in a set; None of one that goes by itself."""
    rows = batch.rows
    if len(rows) > LARGE_EVENTS:
        return None
    size = 0
    for row in rows:
        if row.unique_key is not None or row.task_id is not None or row.type in _ALONE:
            return None
        size += len(row.data) + len(row.metadata or b"")
    return size if size <= LARGE_BYTES else None
