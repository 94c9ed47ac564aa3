# Generated from namespace_async.py by ops/generate_sync.py: edit that one.
"""``store.projections``: running them, seeing how far they are, building one anew, and what was parked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from eventstore.errors import CursorInvalid, InvalidItem, ProjectionUnknown, describe
from eventstore.log import faults
from eventstore.log.connection import Bound, Pooled
from eventstore.log.feed import feed_state
from eventstore.projecting.builds import read_builds, register
from eventstore.projecting.known import known, pick
from eventstore.projecting.replaying import parked, replay
from eventstore.projecting.rows import Build, Parked, ProjectionState, Replayed
from eventstore.projecting.runner import Runner
from eventstore.projecting.statements import connection
from eventstore.telemetry import Telemetry
from projections.projection import Projection, check


class Projections:
    """Of a store; needs the role ``convstore_projector``, and a login that is bound to all tenants."""

    def __init__(self, pooled: Pooled, telemetry: Telemetry) -> None:
        self._pooled = pooled
        self._telemetry = telemetry

    def runner(
        self,
        projections: Sequence[Projection] | None = None,
        *,
        limit: int = 1000,
        attempts: int = 3,
        backoff: float = 0.1,
    ) -> Runner:
        """Make a worker. Any number may run at once, in any number of processes.

        Args:
            projections: which; None: those that ship with the store, and those of installed packages.
            limit: events of a batch at most, 1 to 10,000; one of large items ends sooner.
            attempts: how often a batch that fails is tried, before the event that causes it is looked for and parked.
            backoff: seconds before the second try; before each later one four times as long, at most a minute.
        """
        if type(limit) is not int or not 1 <= limit <= 10_000:
            raise InvalidItem("limit", f"{describe(limit)}; give 1 to 10,000")
        if type(attempts) is not int or attempts < 1:
            raise InvalidItem("attempts", f"{describe(attempts)}; give a number from 1 on")
        if type(backoff) not in (int, float) or not 0 <= backoff < float("inf"):
            raise InvalidItem("backoff", f"{describe(backoff)}; give seconds from 0 on")
        return Runner(
            self._pooled,
            known() if projections is None else projections,
            self._telemetry,
            limit=limit,
            attempts=attempts,
            backoff=backoff,
        )

    def status(self, projections: Sequence[Projection] | None = None) -> list[ProjectionState]:
        """Tell how far each build is, and which projections nobody has run yet."""
        found = known() if projections is None else projections
        with self._connection() as conn:
            builds = [build for build in read_builds(conn) if build.state != "retired"]
            states = [_state(conn, build) for build in builds]
            names = {build.name for build in builds}
            for projection in found:
                if projection.name not in names:
                    behind = feed_state(Bound(conn), None, None)
                    lag = (behind.lag_events, behind.lag_seconds, behind.lag_capped)
                    states.append(
                        ProjectionState(
                            projection.name, projection.version, "new", None, 0, *lag, 0, 0, False, None, None, None
                        )
                    )
        return sorted(states, key=lambda state: (state.name, state.build or 0))

    def rebuild(self, projection: Projection, *, accept_parked: bool = False) -> Build:
        """Begin a build beside the one that is live; workers fill it, and show it when it has caught up.

        ``accept_parked``: also where it had to park events that the live one holds.

        Raises:
            ProjectionRefused: its tables can't be made.
            ProjectionUnknown: a newer version of it is there.
        """
        with self._connection() as conn:
            build = register(conn, check(projection), again=True, accept_parked=accept_parked)
        if build is None:
            reason = f"a newer version than {projection.version} is there"
            raise ProjectionUnknown(projection.name, reason=reason)
        return build

    def parked(self, name: str | None = None) -> list[Parked]:
        """Return the events that a projection, or any, could not take, in order of position."""
        with self._connection() as conn:
            return parked(conn, name)

    def replay_parked(
        self, name: str, position: int | None = None, *, projections: Sequence[Projection] | None = None
    ) -> list[Replayed]:
        """Apply what was parked, or the one event at ``position``, with what waited behind it; each in a transaction.

        Raises:
            ProjectionUnknown: this code has no projection of the name.
        """
        projection = pick(known() if projections is None else projections, name)
        replayed = []
        with self._connection() as conn:
            for each in parked(conn, name, position):
                if each.projection_version == projection.version:
                    done = replay(conn, projection, each, 1000)
                    replayed += [done] if done is not None else []
        return replayed

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
        try:
            with connection(self._pooled) as conn:
                yield conn
        except psycopg.Error as e:
            known_error = faults.translate(
                e, tenant=None, login=self._pooled.login, action="run projections", role="convstore_projector"
            )
            if known_error is not None:
                raise known_error from e
            if isinstance(e, psycopg.OperationalError):
                raise faults.unavailable(e, "unknown") from e
            raise


def _state(conn: psycopg.Connection[Any], build: Build) -> ProjectionState:
    lag: tuple[int | None, float | None, bool] = (None, None, False)
    error = build.error
    try:
        behind = feed_state(Bound(conn), None, build.cursor)
        lag = (behind.lag_events, behind.lag_seconds, behind.lag_capped)
    except CursorInvalid as e:
        error = error or str(e)
    return ProjectionState(
        build.name,
        build.version,
        build.state,
        build.build,
        build.position,
        *lag,
        build.applied,
        build.parked,
        build.stopped,
        error,
        build.worker,
        build.updated_at,
    )
