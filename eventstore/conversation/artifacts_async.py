"""The artifacts of a conversation: references to deliverables, never their bodies.

A version of a ``uri`` is published once in the context and never changes. Which is the latest, and whether one came
after a higher one, is judged along the lineage: by what a branch has inherited and published itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from psycopg import errors as pg

from eventstore.conversation.stream_async import AsyncStream
from eventstore.conversation.transcripts_async import check_at, read_basis_async
from eventstore.errors import ArtifactConflict, InvalidItem, UniqueKeyConflict, describe
from eventstore.log.artifacts import Artifact, unique_key
from eventstore.log.catalogue.tasks import PUBLISHED
from eventstore.log.context_async import find_claims_async, read_types_async
from eventstore.log.events import Event, Json, RecordedEvent
from projections.artifacts import PublishedArtifact, difference, fold_artifacts


class AsyncArtifacts:
    """What came of the work in a conversation."""

    def __init__(self, stream: AsyncStream) -> None:
        self._stream = stream

    async def publish(
        self,
        artifact: Artifact,
        *,
        agent: str | None = None,
        task_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Json] | None = None,
        key: str | None = None,
    ) -> PublishedArtifact:
        """Publish a version of an artifact. The same again, from whatever branch, returns what was published first.

        A version below the lineage's latest is recorded, with ``.regression`` set.

        Args:
            artifact: the reference, and what it was derived from.
            agent: who made it.
            task_id: the task that it belongs to.
            run_id: the run that it was made in.
            metadata: a mapping kept beside the event.
            key: any string; the same call with it again is the same append.

        Raises:
            ArtifactConflict: this version exists in the context with another digest, name, summary or origin.
            InvalidItem: it is derived from a version that was not published in the context.
            TaskClosed: the task is in a terminal state.
        """
        if not isinstance(artifact, Artifact):
            raise InvalidItem("artifact", f"{describe(artifact)}; give an Artifact(uri=…, version=…, name=…)")
        await self._check_sources(artifact)
        event = Event(
            type=PUBLISHED, data=artifact.as_json(), agent=agent, task_id=task_id, run_id=run_id, metadata=metadata
        )
        try:
            done = await self._stream.append_events([event], key=key)
        except UniqueKeyConflict as e:
            if isinstance(e.__cause__, pg.Error):  # the caller's transaction has failed: it can't be asked
                raise
            found = await self._find(artifact.uri, artifact.version)
            if found is None:
                raise
            other = difference(found.data, artifact)
            if other is not None:
                raise ArtifactConflict(artifact.uri, artifact.version, *other, found.context) from e
            self._stream.route.telemetry.repeats.inc()
            return replace(
                await _judged_async(self._stream, found.stream, found.data["uri"], found.event_id), deduplicated=True
            )
        mine = await _judged_async(self._stream, self._stream.name, artifact.uri, done.event_ids[0])
        return replace(mine, deduplicated=done.deduplicated)

    async def get(self, uri: str, version: int) -> PublishedArtifact | None:
        """Return a version that was published in the context, by whatever branch; None where there is none.

        ``regression`` and ``latest`` are judged along the lineage of the stream that published it.
        """
        found = await self._find(uri, version)
        return (
            None
            if found is None
            else await _judged_async(self._stream, found.stream, found.data["uri"], found.event_id)
        )

    async def list(self, *, at: int | datetime | None = None) -> list[PublishedArtifact]:
        """Return what the stream's lineage has published, in order.

        Args:
            at: as of this version, or this moment (an aware datetime); None for now.

        Raises:
            InvalidItem: ``at`` is no version of the stream, or a moment without a time zone.
        """
        check_at(at)
        if at is not None:
            basis = await read_basis_async(self._stream.route.caller, self._stream.tenant, self._stream.name, at, 0)
            if basis is None:
                return []
            at = basis.version
        return await _lineage_async(self._stream, self._stream.name, None, at)

    async def latest(self, uri: str) -> PublishedArtifact | None:
        """Return the highest version of an artifact that the lineage has; None where it has none."""
        lineage = await _lineage_async(self._stream, self._stream.name, uri, None)
        return next((each for each in lineage if each.latest), None)

    async def _find(self, uri: str, version: int) -> RecordedEvent | None:
        found = await find_claims_async(self._stream.route.caller, self._stream.target, [unique_key(uri, version)])
        return found[0] if found else None

    async def _check_sources(self, artifact: Artifact) -> None:
        """Refuse sources that were never published; what was published stays, so it may be looked up before."""
        wanted = artifact.sources()
        if not wanted:
            return
        keys = [unique_key(uri, version) for _, uri, version in wanted]
        found = await find_claims_async(self._stream.route.caller, self._stream.target, keys)
        there = {(event.data["uri"], event.data["version"]) for event in found if event.type == PUBLISHED}
        for index, uri, version in wanted:
            if (uri, version) not in there:
                raise InvalidItem(
                    f"artifact.derived_from[{index}]",
                    f"version {version} of {describe(uri)} was not published in this context; publish it first",
                )


async def _lineage_async(stream: AsyncStream, name: str, uri: str | None, at: int | None) -> list[PublishedArtifact]:
    """Give what the lineage of a stream of the same tenant has published up to a version, perhaps of one artifact."""
    caller = stream.route.caller
    return fold_artifacts(await read_types_async(caller, stream.tenant, name, [PUBLISHED], subject=uri, at=at))


async def _judged_async(stream: AsyncStream, name: str, uri: str, event_id: UUID) -> PublishedArtifact:
    """Give what an event published, with what the lineage of the stream that owns it tells about it."""
    return next(each for each in await _lineage_async(stream, name, uri, None) if each.event_id == event_id)
