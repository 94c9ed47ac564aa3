"""Proving that nothing was changed: reads what is stored, page by page, and checks it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, LiteralString

from eventstore.errors import StreamNotFound
from eventstore.log import hashing
from eventstore.log.audit import AuditedStream, Bad, Mark, StoredRow, StreamCheck, VerifyReport
from eventstore.log.connection_async import AsyncCaller
from eventstore.log.task_audit import StoredTask, TaskCheck

PAGE: Final = 1000
_STREAMS: Final[LiteralString] = "SELECT * FROM convstore.audit_streams($1, $2, $3, $4)"
_EVENTS: Final[LiteralString] = "SELECT * FROM convstore.audit_events($1, $2, $3, $4, $5)"
_TASKS: Final[LiteralString] = "SELECT * FROM convstore.audit_tasks($1, $2, $3, $4)"
_ORPHANS: Final[LiteralString] = "SELECT * FROM convstore.audit_orphans($1)"


async def verify_async(
    caller: AsyncCaller,
    tenant: str,
    stream: str | None,
    progress: Callable[[str, int], None] | None,
) -> VerifyReport:
    """Check one stream with its ancestry, or all of the tenant; stop at the first bad place.

    ``progress`` is called with the stream's name and the number of events checked so far, after each page.
    """
    audit = _AsyncAudit(caller, tenant, progress)
    bad = await audit.all() if stream is None else await audit.one(stream)
    return VerifyReport(audit.checked, audit.streams, bad)


class _AsyncAudit:
    """One run of a verification. Its methods return the first bad place, None where there is none."""

    def __init__(self, caller: AsyncCaller, tenant: str, progress: Callable[[str, int], None] | None) -> None:
        self.checked = 0
        self.streams = 0
        self._caller = caller
        self._tenant = tenant
        self._progress = progress
        self._tasks = TaskCheck()
        # Where branches still to come start from, and how many start there.
        self._marks: dict[tuple[int, int, int], Mark] = {}
        self._open: Counter[tuple[int, int, int]] = Counter()

    async def all(self) -> Bad | None:
        """Check every stream of the tenant, in order of id, so parents before their branches; each event once."""
        after: int | None = None
        while True:
            page = await self._page(None, after)
            for found in page:
                after = found.stream_id
                start: Mark | Bad | None = self._take(found)
                if start is None:  # it was forked after its parent was checked
                    counts = self.checked, self.streams
                    start = await self._start_of(found)
                    self.checked, self.streams = counts
                if isinstance(start, Bad):
                    return start
                check = await self._stream(found, start, None, found.forks or [])
                if isinstance(check, Bad):
                    return check
                self._keep(found, check)
            if len(page) < PAGE:
                break
        for _, stream_id, version, position in await self._rows(_ORPHANS, [self._tenant]):
            reason = f"the event at position {position} belongs to no stream of the directory"
            return Bad(f"#{stream_id}", version, reason)
        return await self._task_rows(0, None)

    async def one(self, name: str) -> Bad | None:
        """Check a stream, after those that it descends from up to where it branches off."""
        page = await self._page(name, None)
        if not page:
            raise StreamNotFound(name, self._tenant)
        start = await self._start_of(page[0])
        check = start if isinstance(start, Bad) else await self._stream(page[0], start, None, [])
        if isinstance(check, Bad) or self._tasks.empty:
            return check if isinstance(check, Bad) else None
        return await self._task_rows(page[0].context_id, page[0].context_id)

    async def _task_rows(self, first: int, last: int | None) -> Bad | None:
        """Check the tasks of contexts from one to another against the events that were met."""
        place: tuple[int, str | None] = (first, None)
        while True:
            params = [self._tenant, *place, PAGE]
            page = [StoredTask(*row) for row in await self._rows(_TASKS, params)]
            for row in page:
                if last is not None and row.context_id > last:
                    return self._tasks.end()
                wrong = self._tasks.row(row)
                if wrong is not None:
                    return wrong
                place = (row.context_id, row.task_id)
            if len(page) < PAGE:
                return self._tasks.end()

    def _keep(self, found: AuditedStream, check: StreamCheck) -> None:
        for at, count in Counter(found.forks or ()).items():
            if at in check.marks:
                place = (found.context_id, found.stream_id, at)
                self._marks[place] = check.marks[at]
                self._open[place] = count

    def _take(self, branch: AuditedStream) -> Mark | None:
        if branch.parent_id is None or branch.fork_at == 0:
            return Mark()
        place = (branch.context_id, branch.parent_id, branch.fork_at or 0)
        mark = self._marks.get(place)
        self._open[place] -= 1
        if self._open[place] <= 0:
            del self._open[place]
            self._marks.pop(place, None)
        return mark

    async def _start_of(self, branch: AuditedStream) -> Mark | Bad:
        """Check what a branch descends from, and tell what it starts with."""
        line = [branch]
        while line[-1].parent_id is not None and line[-1].fork_at != 0:
            child = line[-1]
            page = [] if child.parent is None else await self._page(child.parent, None)
            if not page or child.fork_at is None or (page[0].fork_at or 0) >= child.fork_at:
                return Bad(
                    child.stream, 0, f"it branches off {child.parent} at {child.fork_at}, which that does not own"
                )
            line.append(page[0])
        mark = Mark()
        for child, parent in zip(line[-2::-1], line[:0:-1], strict=True):
            check = await self._stream(parent, mark, child.fork_at, [])
            if isinstance(check, Bad):
                return check
            mark = check.mark()
        return mark

    async def _stream(
        self, found: AuditedStream, start: Mark, upto: int | None, wanted: Sequence[int]
    ) -> StreamCheck | Bad:
        """Check a stream's own events: all, or those up to a version that another branches off at."""
        name = found.stream
        origin = hashing.names_hash(self._tenant, found.context or "", name)
        if found.secret is None or found.origin is None:
            return Bad(name, 0, "the row of its context or stream is missing, or their secrets differ")
        if found.origin != origin or found.own_name != name:
            return Bad(name, 0, "it goes by other names than when it was created")
        fork = None if found.parent_id is None else (found.parent, found.fork_at or 0)
        if fork is not None and (found.fork_control or 0) != start.control:
            reason = (
                f"its row says that version {found.fork_control} changed the transcript last; it was {start.control}"
            )
            return Bad(name, 0, f"{reason} where it branches off")
        check = StreamCheck(found.secret, origin, fork, start, wanted)
        self.streams += 1
        while True:
            after = check.version if check.version > start.version else None
            params = [self._tenant, found.context_id, found.stream_id, after, PAGE]
            rows = [StoredRow(*row) for row in await self._rows(_EVENTS, params)]
            for row in rows:
                if row.version is None:
                    break
                wrong = check.row(row)
                if wrong is not None:
                    return Bad(name, row.version, wrong)
                self._tasks.see(found.context_id, name, row)
                self.checked += 1
                if row.version == upto:
                    return check
            if self._progress is not None:
                self._progress(name, self.checked)
            if (
                not rows or rows[-1].version is None
            ):  # asked once more where the head was reached: a row beyond it would come
                wrong = check.end(rows[0]) if rows else "the stream is gone"
                if wrong is None and upto is not None:
                    wrong = f"the log ends here, but another stream branches off at {upto}"
                return check if wrong is None else Bad(name, check.version, wrong)

    async def _page(self, stream: str | None, after: int | None) -> list[AuditedStream]:
        return [AuditedStream(*row) for row in await self._rows(_STREAMS, [self._tenant, stream, after, PAGE])]

    async def _rows(self, query: LiteralString, params: list[Any]) -> list[tuple[Any, ...]]:
        return await self._caller.call(query, params, tenant=self._tenant, action="verify", role="convstore_auditor")
