# Generated from applying_async.py by ops/generate_sync.py: edit that one.
"""Applying a batch to a build, cut down where it fails; and setting aside what can't be taken.

The order of a stream or context is kept: what comes behind an event that was parked waits with it. It stays in the log,
so only how many there are is noted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString

import psycopg
from psycopg import errors as pg

from eventstore.log.events import RecordedEvent, UndecodableEvent
from eventstore.projecting.builds import places
from eventstore.projecting.rows import Build, Failing, Outcome, Passing, Place, told
from eventstore.projecting.statements import carry_out, run
from projections.projection import Projection, place

_BEHIND: Final[dict[str, LiteralString]] = {
    column: f"""SELECT g.tenant, g.name FROM unnest($2::text[], $3::text[]) AS g (tenant, name)
        WHERE EXISTS (SELECT FROM convstore.parked p WHERE (p.build, p.tenant, p.{column}) = ($1, g.tenant, g.name))"""
    for column in ("stream", "context")
}
_PARK: Final[LiteralString] = """INSERT INTO convstore.parked
    (build, position, tenant, context, stream, version, event_id, type, error)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (build, position) DO UPDATE SET error = excluded.error, attempts = parked.attempts + 1"""
_HOLD: Final[dict[str, LiteralString]] = {
    column: f"""UPDATE convstore.parked SET held = held + $4 WHERE (build, position) = (
        SELECT p.build, p.position FROM convstore.parked p WHERE (p.build, p.tenant, p.{column}) = ($1, $2, $3)
         ORDER BY p.position DESC LIMIT 1)"""
    for column in ("stream", "context")
}


class Batch:
    """A batch of one build, in the worker's transaction."""

    def __init__(self, conn: psycopg.Connection[Any], projection: Projection, build: Build) -> None:
        self._conn = conn
        self._projection = projection
        self._build = build
        self._tables = places(projection.tables, build.build)
        self._blocked: set[Place] = set()
        self.outcome = Outcome()

    def apply(self, events: Sequence[RecordedEvent], *, last_try: bool) -> None:
        """Apply what can be read; an event that can't be is parked at once.

        What fails is raised as ``Failing``, with nothing done; at the ``last_try`` the batch is cut in halves down to
        the event that fails, and that is parked.
        """
        if self.outcome.stopped is not None:
            return
        waiting = [self._free(events)]
        while waiting:
            part = self._not_blocked(waiting.pop())
            if not part:
                continue
            bad = next((at for at, event in enumerate(part) if isinstance(event, UndecodableEvent)), None)
            if bad is not None and len(part) > 1:
                waiting += [part[bad + 1 :], part[bad : bad + 1], part[:bad]]
                continue
            error = part[0].error if isinstance(part[0], UndecodableEvent) else self._tried(part)
            if error is None:
                continue
            if bad is None and not last_try:
                raise Failing(error) from error
            if len(part) > 1:
                half = len(part) // 2
                waiting += [part[half:], part[:half]]
            elif self._projection.on_error == "stop":
                self.outcome.stopped = part[0], error
                return
            else:
                self._park(part[0], error)

    def _free(self, events: Sequence[RecordedEvent]) -> list[RecordedEvent]:
        """Leave out what has to wait behind parked events."""
        ordered = self._projection.ordered
        if ordered is not None and self._build.parked:
            given = list({place(self._projection, event): None for event in events})
            params = [self._build.build, [g and g[0] for g in given], [g and g[1] for g in given]]
            self._blocked |= set(run(self._conn, _BEHIND[ordered], params))
        return self._not_blocked(events)

    def _not_blocked(self, events: Sequence[RecordedEvent]) -> list[RecordedEvent]:
        if not self._blocked:
            return list(events)
        free = []
        for event in events:
            at = place(self._projection, event)
            if at in self._blocked:
                self.outcome.held[at] += 1
            else:
                free.append(event)
        return free

    def _park(self, event: RecordedEvent, error: Exception) -> None:
        self.outcome.parked.append((event, error))
        at = place(self._projection, event)
        if at is not None:
            self._blocked.add(at)

    def _tried(self, events: Sequence[RecordedEvent]) -> Exception | None:
        """Apply events together in a savepoint; return what the projection raised."""
        try:
            with self._conn.transaction():
                carry_out(self._conn, self._projection.apply(events), self._tables)
        except (psycopg.OperationalError, pg.InsufficientPrivilege, MemoryError) as e:
            raise Passing(told(e)) from e
        except Exception as e:
            if self._conn.closed:
                raise Passing(told(e)) from e
            return e
        self.outcome.applied += len(events)
        return None

    def note(self) -> None:
        """Write down what was parked and how much waits behind it."""
        for event, error in self.outcome.parked:
            columns = [event.tenant, event.context, event.stream, event.version, event.event_id, event.type]
            run(self._conn, _PARK, [self._build.build, event.position, *columns, told(error)])
        for (tenant, name), n in self.outcome.held.items():
            query = _HOLD[self._projection.ordered or "stream"]
            run(self._conn, query, [self._build.build, tenant, name, n])
