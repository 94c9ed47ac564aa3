# Generated from runner_async.py by ops/generate_sync.py: edit that one.
"""The worker: follows the feed for each of its projections, batch by batch, beside any number of other workers.

A step is one transaction: it claims the build's row, reads a page after the build's cursor, applies it and moves the
cursor. Who dies in it leaves nothing, and the claim ends with its transaction.
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, LiteralString

import psycopg

from eventstore.errors import ConvstoreError, CursorInvalid, ProjectionRefused, StoreUnavailable
from eventstore.log import cursors, faults
from eventstore.log.connection import Bound, Pooled
from eventstore.log.feed import feed, feed_state
from eventstore.log.pause import pause
from eventstore.log.rows import FeedPage
from eventstore.projecting.applying import Batch
from eventstore.projecting.builds import (
    STUCK,
    claim,
    claim_live,
    look_every,
    read_builds,
    register,
    sweep,
    switch,
)
from eventstore.projecting.lag import Lag
from eventstore.projecting.rows import Build, Failing, Outcome, Passing, Step, told
from eventstore.projecting.statements import connection, run
from eventstore.telemetry import Telemetry, logger
from projections.projection import Projection, check

SHORTEST: Final = 0.002
LONGEST: Final = 0.25
LOOK_EVERY: Final = 5.0
"""Seconds between two looks at which builds there are, while there is work; and at how far one is behind."""
_MOVE: Final[LiteralString] = """UPDATE convstore.projections SET cursor = $2, position = $3, applied = applied + $4,
    parked = (SELECT count(*) FROM convstore.parked WHERE build = $1), failures = 0, retry_at = '-infinity',
    stopped = $5, error = $6, worker = $7, updated_at = clock_timestamp() WHERE build = $1"""
_FAILED: Final[LiteralString] = """UPDATE convstore.projections SET failures = failures + 1, stopped = $5, error = $3,
    retry_at = clock_timestamp() + make_interval(secs => $4), worker = $6, updated_at = clock_timestamp()
    WHERE build = $1 AND position = $2"""
_ERROR: Final[LiteralString] = "UPDATE convstore.projections SET error = $2 WHERE build = $1"
_START: Final[
    LiteralString
] = """UPDATE convstore.projections SET stopped = false, failures = 0, retry_at = '-infinity',
    error = NULL WHERE (name, version) = ($1, $2) AND (stopped OR failures > 0 OR error IS NOT NULL)"""


class Runner:
    """A worker of some projections; for one task or thread. ``run`` ends by ``stop``, or once it has caught up."""

    def __init__(
        self,
        pooled: Pooled,
        projections: Sequence[Projection],
        telemetry: Telemetry,
        *,
        limit: int,
        attempts: int,
        backoff: float,
    ) -> None:
        self._pooled = pooled
        self._projections = {check(p).name: p for p in projections}
        if len(self._projections) < len(projections):
            names = [p.name for p in projections]
            raise ProjectionRefused(next(n for n in names if names.count(n) > 1), "is there twice; name another")
        self._limit = limit
        self._attempts = attempts
        self._backoff = backoff
        self._telemetry = telemetry
        self._lags = {name: Lag(f"projection:{name}") for name in self._projections}
        self._near: set[int] = set()
        self._stopping = False
        self._look_every = "0"
        self._worker = f"{socket.gethostname()}:{os.getpid()}"

    def stop(self) -> None:
        """End ``run`` after the batch in hand, for good; from any thread or signal handler."""
        self._stopping = True

    def close(self) -> None:
        """The same, by the store that closes."""
        self.stop()

    def run(
        self, *, until_caught_up: bool = False, progress: Callable[[Build, int], None] | None = None
    ) -> list[Build]:
        """Work until ``stop``; return the builds as they were last.

        Args:
            until_caught_up: end once every projection is live and has dealt with what the log held at the start, or has
                stopped; then also raises ``StoreUnavailable`` instead of waiting for the server.
            progress: called after each batch with its build, and the position that the log was at.
        """
        self._pooled.subscriptions.add(self)
        self._telemetry.readers.update(self._lags.values())
        started = False
        wait = SHORTEST
        while True:
            try:
                with connection(self._pooled) as conn:
                    if not started:
                        self._start(conn)
                        started = True
                    return self._follow(conn, until_caught_up=until_caught_up, progress=progress)
            except (psycopg.OperationalError, StoreUnavailable) as e:
                if until_caught_up or self._stopping or not started:
                    raise
                logger().warning("the projections wait for the store", error=told(e))
                wait = min(wait * 2, 1.0)
                pause(wait)
            except psycopg.Error as e:
                known = faults.translate(
                    e, tenant=None, login=self._pooled.login, action="run projections", role="convstore_projector"
                )
                if known is None:
                    raise
                raise known from e

    def _start(self, conn: psycopg.Connection[Any]) -> None:
        for projection in self._projections.values():
            if register(conn, projection) is None:
                logger(projection=projection.name).warning(
                    "a newer version is there: this worker leaves it alone", version=projection.version
                )
            run(conn, _START, [projection.name, projection.version])

    def _follow(
        self,
        conn: psycopg.Connection[Any],
        *,
        until_caught_up: bool,
        progress: Callable[[Build, int], None] | None,
    ) -> list[Build]:
        self._look_every = look_every(conn)
        end = (feed_state(Bound(conn), None, None)).position
        looked, builds = float("-inf"), read_builds(conn)
        wait = SHORTEST
        idle: set[int] = set()
        while True:
            steps = []
            for build in random.sample(builds, len(builds)):  # so that workers don't go behind each other
                if self._stopping:
                    break
                if not self._takes(build):
                    continue
                projection = self._projections[build.name]
                if build.build in idle and build.state == "live" and not _news(conn, projection, build):
                    continue
                step, now = self._step(conn, projection, build)
                steps.append(step)
                idle = idle | {build.build} if step is Step.IDLE else idle - {build.build}
                if progress is not None and now is not None:
                    progress(now, max(end, now.position))
            busy = Step.MORE in steps
            if not busy or until_caught_up or time.monotonic() - looked > LOOK_EVERY:
                looked, builds = time.monotonic(), read_builds(conn)
                if any(build.state == "retired" for build in builds):
                    sweep(conn)
            mine = [b for b in builds if self._takes(b)]
            if self._stopping or (until_caught_up and all(_done(b, end) for b in mine)):
                return mine
            wait = SHORTEST if busy else min(wait * 2, LONGEST)
            if not busy:
                pause(wait)

    def _takes(self, build: Build) -> bool:
        projection = self._projections.get(build.name)
        return projection is not None and projection.version == build.version and build.state != "retired"

    def _step(self, conn: psycopg.Connection[Any], projection: Projection, build: Build) -> tuple[Step, Build | None]:
        """Deal with a page of one build, in one transaction."""
        position, failures = build.position, 0
        try:
            with conn.transaction():
                claimed = claim(conn, build.build, self._look_every)
                if claimed is None:
                    return Step.NOTHING, None
                position, failures = claimed.position, claimed.failures
                return self._batch(conn, projection, claimed)
        except (Passing, Failing, ConvstoreError) as e:
            if conn.closed:
                raise StoreUnavailable(told(e)) from e
            # A cursor of another life stays one, however often it is tried.
            self._failed(conn, build, position, failures, e, stop=isinstance(e, CursorInvalid))
        return Step.NOTHING, None

    def _failed(
        self,
        conn: psycopg.Connection[Any],
        build: Build,
        position: int,
        failures: int,
        error: Exception,
        *,
        stop: bool,
    ) -> None:
        text = told(error)
        if stop:
            text += f"; to build it anew beside what is shown now, run: convstore project rebuild {build.name}"
        pause = min(self._backoff * 4 ** min(failures, 10), 60.0)
        logger(projection=build.name).warning("a batch failed", after=position, error=text, failures=failures + 1)
        run(conn, _FAILED, [build.build, position, text, pause, stop, self._worker])

    def _batch(self, conn: psycopg.Connection[Any], projection: Projection, build: Build) -> tuple[Step, Build | None]:
        live = claim_live(conn, build.name) if build.state == "building" and build.build in self._near else None
        page = feed(Bound(conn), None, build.cursor, projection.types, self._limit)
        batch = Batch(conn, projection, build)
        if page.events:
            batch.apply(page.events, last_try=build.failures + 1 >= self._attempts)
            batch.note()
        now = self._moved(conn, build, page, batch.outcome)
        if build.state == "live":
            self._measure(conn, build.name, page)
        if now.stopped:
            return Step.NOTHING, now
        if build.state == "building" and not page.more:
            if build.build not in self._near:
                self._near.add(build.build)  # the next step takes the live one along
                return Step.MORE, now
            if live is None or live.stopped or now.position >= live.position:
                error = switch(conn, projection, now, live)
                if error is None:
                    logger(projection=build.name).info("switched", version=build.version, position=now.position)
                elif error != build.error:
                    run(conn, _ERROR, [build.build, error])
        return (Step.MORE if page.more or page.events else Step.IDLE), now

    def _moved(self, conn: psycopg.Connection[Any], build: Build, page: FeedPage, outcome: Outcome) -> Build:
        cursor, error = page.cursor, None
        if outcome.stopped is not None:
            event, cause = outcome.stopped
            before = [e.cursor for e in page.events if e.position < event.position]
            cursor = before[-1] if before else build.cursor
            error = (
                f"stopped before position {event.position}, version {event.version} of stream {event.stream!r} in"
                f" tenant {event.tenant!r}: {told(cause)}; mend it and start the worker again"
            )
            logger(projection=build.name).error("a projection stopped", error=error)
        for event, cause in outcome.parked:
            logger(projection=build.name).warning("an event was parked", position=event.position, error=told(cause))
        if cursor == build.cursor and not build.failures and error is None:
            return build
        position = cursors.decode(cursor).position
        params = [build.build, cursor, position, outcome.applied, error is not None, error, self._worker]
        run(conn, _MOVE, params)
        applied = build.applied + outcome.applied
        return replace(
            build, cursor=cursor, position=position, applied=applied, failures=0, stopped=error is not None, error=error
        )

    def _measure(self, conn: psycopg.Connection[Any], name: str, page: FeedPage) -> None:
        """See how far it is behind, for the metrics, where it is."""
        lag = self._lags[name]
        if not page.more and page.blocked_by is None:
            lag.behind = (0, 0.0)
        elif time.monotonic() - lag.looked >= LOOK_EVERY:
            lag.looked = time.monotonic()
            state = feed_state(Bound(conn), None, page.cursor)
            lag.behind = (state.lag_events, state.lag_seconds)


def _news(conn: psycopg.Connection[Any], projection: Projection, build: Build) -> bool:
    """Tell whether there is something behind a build's cursor; unlike a claim that writes nothing."""
    try:
        page = feed(Bound(conn), None, build.cursor, projection.types, 1)
    except CursorInvalid:
        return True
    return bool(page.events) or page.cursor != build.cursor


def _done(build: Build, end: int) -> bool:
    """Tell whether a build has nothing to do with what the log held, or can't go on by itself."""
    stuck = build.error is not None and build.error.startswith(STUCK)
    return build.stopped or (build.position >= end and (build.state == "live" or stuck))
