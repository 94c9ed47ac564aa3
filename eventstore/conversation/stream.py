# Generated from stream_async.py by ops/generate_sync.py: edit that one.
"""A stream by its name: appending to it, reading and forking it. No I/O by itself; its first append creates it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from eventstore.errors import InvalidItem, describe
from eventstore.log import batch as batches
from eventstore.log import names
from eventstore.log.append import append
from eventstore.log.appending import KnownStreams, Target
from eventstore.log.batch import Batch
from eventstore.log.connection import Caller
from eventstore.log.events import ANY, AppendResult, Event, Expected, Json, RecordedEvent
from eventstore.log.fork import ForkPoint, fork
from eventstore.log.read import events, family, head, lineage
from eventstore.log.rows import Part, StreamInfo
from eventstore.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Route:
    """How a handle's calls reach the log: through the store's pool, or on a connection of the caller."""

    caller: Caller
    known: KnownStreams
    telemetry: Telemetry


class Stream:
    """One thread of events."""

    def __init__(
        self,
        route: Route,
        tenant: str,
        name: str,
        context: str | None,
        tags: Mapping[str, str] | None,
    ) -> None:
        self._route = route
        self.tenant = tenant
        self.name = names.check_name("stream", name)
        self._target = Target(
            tenant,
            self.name,
            None if context is None else names.check_name("context", context),
            None if tags is None else names.check_tags(tags),
        )

    @property
    def route(self) -> Route:
        """How its calls reach the log."""
        return self._route

    @property
    def target(self) -> Target:
        """The stream that appends go to, as the caller named it."""
        return self._target

    @property
    def context(self) -> str | None:
        """The context that this handle names; None: the stream's, or where it is new its own name."""
        return self._target.context

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of tenant {self.tenant!r}>"

    def append(
        self,
        items: Sequence[Json] | Mapping[str, Json],
        *,
        expected: int | Expected = ANY,
        key: str | None = None,
        ids: Sequence[uuid.UUID | str] | None = None,
        agent: str | None = None,
        task_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Json] | None = None,
    ) -> AppendResult:
        """Append items, all or none, in one durable round trip.

        Args:
            items: JSON values, kept verbatim; a single mapping is one item. At most 10,000, 16 MiB each, 64 MiB in all.
            expected: the version that the stream must be at: ``ANY``, ``NO_STREAM``, ``EXISTS`` or a number.
            key: any string; the same call with the same key again is the same append and returns the first result.
            ids: one UUID an item, instead of ids derived from ``key``.
            agent: who made the items.
            task_id: the task that they belong to.
            run_id: the run that they were made in.
            metadata: a mapping kept beside each item; not compared on a repeat.

        Raises:
            VersionConflict: the stream is at another version.
            IdempotencyConflict: the key or ids stand for another append.
            InvalidItem: a value that JSON can't hold exactly, or over a limit; names the place.
            ContextMismatch: the stream belongs to another context than this handle names.
            StreamClosed: the stream was closed.
            StoreUnavailable: no connection; ``outcome`` tells whether it may have been written.
        """
        batch = batches.of_items(
            self.tenant,
            self.name,
            items,
            key=key,
            ids=ids,
            agent=agent,
            task_id=task_id,
            run_id=run_id,
            metadata=metadata,
        )
        return self._append(batch, expected)

    def append_events(
        self, events: Sequence[Event], *, expected: int | Expected = ANY, key: str | None = None
    ) -> AppendResult:
        """Append events of the catalogue, or of one's own types ``x.…``; all or none.

        Raises what ``append`` raises, ``InvalidEvent`` where data does not fit its type, and ``UniqueKeyConflict``
        where another event of the context holds the same ``unique_key``.
        """
        if isinstance(events, Event):
            events = [events]
        batch = batches.build(self.tenant, self.name, list(events), key=key)
        return self._append(batch, expected)

    def _append(self, batch: Batch, expected: object) -> AppendResult:
        route = self._route
        return append(route.caller, route.known, route.telemetry, self._target, batch, expected)

    def head(self) -> int:
        """Return the version of the last event; 0 where the stream does not exist."""
        return head(self._route.caller, self.tenant, self.name)

    def events(
        self, first: int = 1, last: int | None = None, *, types: Sequence[str] | None = None
    ) -> Iterator[RecordedEvent]:
        """Yield recorded events from version ``first`` to ``last``, both inclusive; of some ``types`` only if given.

        ``first`` below 0 counts from the head: ``events(-20)`` are the last 20. A branch has its parents' events up to
        where it branches off, then its own. A stream that does not exist has none. Pages are fetched as the iterator
        gets there.
        """
        if type(first) is not int or first == 0 or not -(2**63) < first < 2**63:
            raise InvalidItem("first", f"{describe(first)}; versions count from 1, from the head back from -1")
        if last is not None and (type(last) is not int or not 0 <= last < 2**63):
            raise InvalidItem("last", f"{describe(last)}; give a version, or None for the head")
        if isinstance(types, str):
            raise InvalidItem("types", f"{describe(types)}; give a list of event types")
        for kind in types or ():
            names.check_name("event type", kind)
        return events(self._route.caller, self.tenant, self.name, first, last, types)

    def fork(
        self,
        name: str,
        *,
        at: int | None = None,
        after_items: int | None = None,
        at_item: str | uuid.UUID | None = None,
        tags: Mapping[str, str] | None = None,
        key: str | None = None,
        event_id: uuid.UUID | str | None = None,
        agent: str | None = None,
        metadata: Mapping[str, Json] | None = None,
    ) -> Self:
        """Branch off: a new stream that shares this one's events up to a point, and goes on by itself.

        Nothing is copied. The branch's own first event, ``stream.forked``, has the version after the fork point. The
        same fork again (name, parent and point, or ``key``) returns the branch.

        Args:
            name: of the branch; not used in the tenant yet. It belongs to this stream's context.
            at: the last version that it shares; 0 for none. Default: the head.
            after_items: the same, counted in items as they were appended.
            at_item: the same, by the id of an item or summary (its first occurrence) or of an event.
            tags: of the branch.
            key: any string; makes a retry with the default point safe.
            event_id: of ``stream.forked``, instead of one derived from ``key``.
            agent: who forks.
            metadata: a mapping kept with ``stream.forked``.

        Raises:
            StreamNotFound: there is no such stream to branch off.
            StreamExists: the name is used, for something else than this branch.
            ForkPointBeyondHead: it has no such version, or not so many items.
            InvalidItem: no such item; or more than one way to say where.
        """
        route, point = self._route, ForkPoint(at, after_items, at_item)
        fork(
            route.caller,
            route.known,
            route.telemetry,
            self.tenant,
            self.name,
            name,
            point,
            tags=tags,
            key=key,
            event_id=event_id,
            agent=agent,
            metadata=metadata,
        )
        return type(self)(route, self.tenant, name, None, None)

    def lineage(self) -> list[Part]:
        """Return which streams own which versions of this one, the root's first; empty where it does not exist."""
        return lineage(self._route.caller, self.tenant, self.name)

    def family(self) -> list[StreamInfo]:
        """Return the stream that this one descends from and every branch of that, parents before their branches."""
        return family(self._route.caller, self.tenant, self.name)
