"""The store: a pool of connections to one database, for one tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import psycopg
from prometheus_client import CollectorRegistry
from psycopg import errors

from eventstore.conversation.checkpoints_async import check_checkpoints_async
from eventstore.conversation.handle_async import AsyncConversation
from eventstore.conversation.stream_async import AsyncRoute
from eventstore.errors import InvalidItem, NotPermitted, SchemaOutOfDate, SequencesUnsafe, describe
from eventstore.log import cursors, faults, names, sql_files
from eventstore.log.appending import KnownStreams
from eventstore.log.audit import VerifyReport
from eventstore.log.connection_async import AsyncBound, AsyncPooled
from eventstore.log.feed_async import cursor_at_async, feed_async, feed_state_async
from eventstore.log.read_async import streams_async
from eventstore.log.repair_async import repair_async, sequence_faults_async
from eventstore.log.rows import FeedPage, FeedState, RepairReport, StreamPage
from eventstore.log.schema_async import migrate_async, status_async
from eventstore.log.sql_files import FileState, refuse_unfit
from eventstore.log.subscription_async import AsyncSubscription
from eventstore.log.verify_async import verify_async
from eventstore.opening import Awaitable, start_embedded_async
from eventstore.projecting.namespace_async import AsyncProjections
from eventstore.projecting.waiting_async import wait_async
from eventstore.settings import Settings
from eventstore.telemetry import Telemetry

if TYPE_CHECKING:
    from eventstore.embedded import Server


class AsyncScope:
    """Conversations of one tenant, by some route to the log: what a store, a transaction and ``using`` share."""

    def __init__(self, route: AsyncRoute, tenant: str) -> None:
        self._route = route
        self.tenant = names.check_name("tenant", tenant)

    def conversation(
        self, name: str, *, context: str | None = None, tags: Mapping[str, str] | None = None
    ) -> AsyncConversation:
        """Return the handle of a conversation, with no I/O; its first append creates it.

        ``context`` (default: the stream's own name) and ``tags`` are fixed then.
        """
        return AsyncConversation(self._route, self.tenant, name, context, tags)

    def for_tenant(self, tenant: str) -> AsyncScope:
        """Return the same for another tenant, sharing the connections."""
        return AsyncScope(self._route, tenant)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncScope]:
        """Give a scope whose appends commit together where the block ends well, or leave nothing.

        A lost connection is not made good in here: what the block did may have been more than appends. A COMMIT cut
        off raises ``StoreUnavailable`` with ``outcome="unknown"``; with keys, the whole block can be run again.
        """
        async with self._route.caller.transaction() as conn:
            yield self.using(conn)

    def using(self, conn: psycopg.AsyncConnection[Any]) -> AsyncScope:
        """Return a scope whose calls run on the caller's connection, in whatever transaction it is in.

        The caller's rollback leaves nothing of them, its commit everything. A refusal (``VersionConflict`` and its
        like) leaves the transaction alive; an error of the server aborts it, as any statement's would.
        """
        if not isinstance(conn, psycopg.AsyncConnection):
            raise InvalidItem("conn", f"{describe(conn)} is no psycopg.AsyncConnection")
        return AsyncScope(replace(self._route, caller=AsyncBound(conn)), self.tenant)

    async def conversations(
        self,
        *,
        context: str | None = None,
        tags: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> StreamPage:
        """Return a page of the tenant's streams in order of name; ``page.after`` continues it."""
        if type(limit) is not int or not 1 <= limit <= 10_000:
            raise InvalidItem("limit", f"{describe(limit)}; give 1 to 10,000")
        for what, value in (("context", context), ("after", after)):
            if value is not None:
                names.check_name(what, value)
        if tags is not None:
            names.check_tags(tags)
        return await streams_async(self._route.caller, self.tenant, context, tags, after, limit)

    async def feed(
        self,
        after: str | None = None,
        *,
        types: Sequence[str] | None = None,
        limit: int = 1000,
        all_tenants: bool = False,
    ) -> FeedPage:
        """Read a page of the log of all streams in order of position, in one round trip; none is ever skipped.

        Args:
            after: ``.cursor`` of a page or an event; None for the beginning.
            types: of these event types only; the cursor passes over the others.
            limit: events at most, 1 to 10,000; a page of large items ends sooner.
            all_tenants: everybody's events, for a login that is bound to all tenants.

        An event that can't be decoded is an ``UndecodableEvent`` among the others.

        Raises:
            CursorInvalid: it is no cursor, or the log was restored or set back since.
            IsolationLevelError: in a transaction that is not at READ COMMITTED.
        """
        _check_feed(types, limit)
        return await feed_async(self._route.caller, None if all_tenants else self.tenant, after, types, limit)

    async def feed_state(self, after: str | None = None, *, all_tenants: bool = False) -> FeedState:
        """Tell how far the feed is, how far a reader at the cursor ``after`` is behind, and who holds the feed back.

        One round trip; at most 10,000 events are counted. Raises what ``feed`` raises.
        """
        return await feed_state_async(self._route.caller, None if all_tenants else self.tenant, after)

    def subscribe(
        self,
        after: str | None = None,
        *,
        types: Sequence[str] | None = None,
        limit: int = 1000,
        idle: float | None = None,
        name: str | None = None,
        all_tenants: bool = False,
        hint: bool = False,
    ) -> AsyncSubscription:
        """Yield events as they are committed, for ever; at least once for who keeps ``event.cursor``.

        It ends by its ``close()`` or the store's, from any thread of a sync store, and waits for a store that can't be
        reached.

        Args:
            after: as of ``feed``; the iterator's ``.cursor`` is where to go on.
            types: of these event types only.
            limit: events of a page, which is all that is read ahead.
            idle: end after so many seconds without an event; 0: where no more is there now.
            name: who reads: its lag is among the store's metrics, labelled so; one of few names.
            all_tenants: everybody's events, for a login that is bound to all tenants.
            hint: also listen, on one more connection, for the hints of stores opened with ``CONVSTORE_HINT``, and ask
                less often while they come.

        Raises:
            CursorInvalid, TenantRequired: here or at the first event, as ``feed``.
        """
        _check_feed(types, limit)
        cursors.decode(after)
        if idle is not None and (type(idle) not in (int, float) or not 0 <= idle < float("inf")):
            raise InvalidItem("idle", f"{describe(idle)}; give seconds from 0, or None for no end")
        subscription = AsyncSubscription(
            self._route.caller,
            None if all_tenants else self.tenant,
            after,
            types,
            limit=limit,
            idle=idle,
            name=None if name is None else names.check_name("name", name),
            hint=hint,
        )
        if name is not None:
            self._route.telemetry.readers.add(subscription)
        return subscription

    async def cursor_at(self, position: int, *, all_tenants: bool = False) -> str | None:
        """Return the cursor of the last event at or below a position; None, the beginning, where there is none.

        For a reader whose cursor was refused after ``convstore repair sequence``, with the position of the last event
        that it dealt with: what was appended after the repair is far above it. docs/restore.md tells when it holds.
        """
        if type(position) is not int or not 0 <= position < 2**63:
            raise InvalidItem("position", f"{describe(position)}; give that of an event, or 0")
        return await cursor_at_async(self._route.caller, None if all_tenants else self.tenant, position)

    async def wait_for(self, projection: str, position: int, *, timeout: float = 10.0) -> None:
        """Wait until a projection's view holds everything up to a position, such as ``.position`` of an append.

        Raises:
            ProjectionBehind: not within ``timeout`` seconds, or it stopped before; a ``TimeoutError`` too.
        """
        names.check_name("projection", projection)
        if type(position) is not int or not 0 <= position < 2**63:
            raise InvalidItem("position", f"{describe(position)}; give that of an event, or 0")
        if type(timeout) not in (int, float) or not 0 <= timeout < float("inf"):
            raise InvalidItem("timeout", f"{describe(timeout)}; give seconds from 0 on")
        await wait_async(self._route.caller, self.tenant, projection, position, timeout)

    async def verify(
        self, stream: str | None = None, *, progress: Callable[[str, int], None] | None = None
    ) -> VerifyReport:
        """Check that no event of ``stream``, or of the whole tenant, was changed since it was appended.

        Also that the checkpoints, which transcripts are folded from, are what the events come to.
        Needs the role ``convstore_auditor``. ``progress`` is called with a stream's name and the events checked so far.
        """
        if stream is not None:
            names.check_name("stream", stream)
        report = await verify_async(self._route.caller, self.tenant, stream, progress)
        if report.ok:
            report = replace(report, first_bad=await check_checkpoints_async(self._route.caller, self.tenant, stream))
        return report


def _check_feed(types: Sequence[str] | None, limit: int) -> None:
    if type(limit) is not int or not 1 <= limit <= 10_000:
        raise InvalidItem("limit", f"{describe(limit)}; give 1 to 10,000")
    if isinstance(types, str):
        raise InvalidItem("types", f"{describe(types)}; give a list of event types")
    for kind in types or ():
        names.check_name("event type", kind)


# sync: class EventStore(Scope):
class AsyncEventStore(AsyncScope, Awaitable):  # async only
    """The store behind a URL. Many threads or tasks may use one; close it, or use it as a context manager."""

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        tenant: str | None = None,
        timeout: float = 30.0,
        registry: CollectorRegistry | None = None,
    ) -> AsyncEventStore:
        """Connect to a store.

        Args:
            url: a libpq URL; None: ``CONVSTORE_URL``, else the embedded Postgres, started and migrated.
            tenant: whose data; None: ``CONVSTORE_TENANT``, else ``"default"``.
            timeout: seconds that a call may take, waiting for a connection and retries included.
            registry: where the store's own Prometheus metrics go; None: one of its own, ``store.telemetry.registry``.

        Raises:
            StoreUnavailable: nobody answers there; says so in libpq's words.
            SchemaOutOfDate: the database is newer than this code. One that is not migrated raises it at the first call,
                as ``SequencesUnsafe`` is raised where the log was restored or set back and would draw positions again.
            EmbeddedUnavailable: the embedded Postgres can't start; the text says why.
        """
        return cls(url, tenant=tenant, timeout=timeout, registry=registry)  # async only
        # sync: return cls(url, tenant=tenant, timeout=timeout, registry=registry)._opened()

    def __init__(
        self,
        url: str | None,
        *,
        tenant: str | None,
        timeout: float,
        registry: CollectorRegistry | None,
    ) -> None:
        if not isinstance(timeout, int | float) or not timeout > 0:
            raise InvalidItem("timeout", f"{describe(timeout)}; give seconds above 0")
        self._settings = Settings()
        self._url = url if url is not None else self._settings.url
        self._timeout = timeout
        self._server: Server | None = None
        self._pooled: AsyncPooled | None = None
        self.telemetry = Telemetry.of(registry)
        self.tenant = names.check_name("tenant", self._settings.tenant if tenant is None else tenant)

    async def _opened(self) -> AsyncEventStore:
        if self._pooled is not None:
            return self
        settings = self._settings
        if self._url is None:
            self._server = await start_embedded_async(settings.home, self._timeout)
        pooled = AsyncPooled(
            self._server.url if self._server is not None else self._url or "",
            timeout=self._timeout,
            size=settings.pool_size,
            prepare=settings.prepare or self._server is not None,
            telemetry=self.telemetry,
            hint=settings.hint,
        )
        try:
            await pooled.open()
            self._pooled = pooled
            self._route = AsyncRoute(pooled, KnownStreams(), self.telemetry)
            await self._look_at_schema(pooled)
            if self._server is not None and isinstance(pooled.refusal, SchemaOutOfDate):
                await self.migrate()
        except BaseException:
            await self.close()
            raise
        return self

    async def _look_at_schema(self, pooled: AsyncPooled) -> None:
        """Refuse a database that is newer than this code; let one that is older be migrated, and nothing else.

        One whose sequences are not safe can be repaired, and nothing else.
        """
        async with pooled.beside() as conn:
            states = await self._states(conn)
            unsafe = await sequence_faults_async(conn)
        if any(s.state == "unknown" for s in states):
            refuse_unfit(states)
        pending = [s.name for s in states if s.state in ("pending", "edited") and s.name[:4].isdigit()]
        pooled.refusal = SequencesUnsafe(unsafe) if unsafe else None
        if pending or (self._server is not None and any(s.state != "applied" for s in states)):
            pooled.refusal = SchemaOutOfDate(
                f"the database is not migrated for this code: {', '.join(pending)} missing; run: convstore migrate"
            )

    async def schema(self) -> list[FileState]:
        """Compare the migrations and functions of this code with what the database has."""
        async with self._store().beside() as conn:
            return await self._states(conn)

    async def _states(self, conn: psycopg.AsyncConnection[Any]) -> list[FileState]:
        try:
            return await status_async(conn, sql_files.load())
        except errors.InsufficientPrivilege as e:
            raise NotPermitted(conn.info.user, "use the store", "convstore_reader") from e

    async def sequence_faults(self) -> list[str]:
        """Tell what is wrong with the sequences, a line each; the way out is ``repair_sequence``."""
        async with self._store().beside() as conn:
            return await sequence_faults_async(conn)

    async def migrate(self) -> list[str]:
        """Apply what the database lacks and return the names; safe from many processes at once."""
        pooled = self._store()
        applied = await migrate_async(pooled.conninfo, sql_files.load(), timeout=max(self._timeout, 30.0))
        await self._look_at_schema(pooled)
        return applied

    async def repair_sequence(self, *, dry_run: bool = False) -> RepairReport:
        """Make the log safe to write to after a restore or a lossy failover; run it before the first writer.

        Positions jump ahead by 1,000,000,000, so that no cursor handed out earlier can hide a new event, and a new
        incarnation begins: each of those cursors is refused (``CursorInvalid``). Waits for open transactions and holds
        off new ones; ``dry_run`` does the same and undoes it. Docs: docs/restore.md.

        Raises:
            NotPermitted: the login is no member of the owner's role.
            SequencesUnsafe: there is no room for a jump.
            StoreUnavailable: a transaction was in the way for the whole time-out, or the server only reads.
        """
        pooled = self._store()
        report = await repair_async(pooled.conninfo, timeout=self._timeout, dry_run=dry_run)
        await self._look_at_schema(pooled)
        return report

    @property
    def projections(self) -> AsyncProjections:
        """Running projections, and how far they are: see docs/projections.md."""
        return AsyncProjections(self._store(), self.telemetry)

    @property
    def connections(self) -> AsyncPooled:
        """The store's connections, for what stands beside it in this package."""
        return self._store()

    def _store(self) -> AsyncPooled:
        if self._pooled is None:
            raise faults.unavailable(RuntimeError("the store is not open"))
        return self._pooled

    async def close(self) -> None:
        """Return the connections, and the embedded server if nobody else uses it. Again is no error."""
        if self._pooled is not None:
            await self._pooled.close()
        if self._server is not None:
            self._server.close()

    async def __aenter__(self) -> AsyncEventStore:
        return await self._opened()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
