"""Artifacts as a stream's lineage tells of them, folded from ``artifact.published``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from eventstore.log.artifacts import Artifact
from eventstore.log.catalogue.tasks import PUBLISHED
from eventstore.log.events import RecordedEvent


@dataclass(frozen=True, slots=True)
class PublishedArtifact:
    """A version of an artifact, as the event at ``stream_version`` of ``stream`` published it.

    ``regression``: the lineage had a higher version then. ``latest``: it has none now. ``deduplicated``: this call
    repeated an earlier one.
    """

    uri: str
    version: int
    name: str
    digest: str | None
    summary: str | None
    derived_from: list[Any]
    stream: str
    stream_version: int
    position: int
    event_id: UUID
    agent: str | None
    task_id: str | None
    recorded_at: datetime
    regression: bool = False
    latest: bool = True
    deduplicated: bool = False

    @property
    def artifact(self) -> Artifact:
        """The artifact itself."""
        return Artifact(self.uri, self.version, self.name, self.digest, self.summary, self.derived_from)


def published(event: RecordedEvent) -> PublishedArtifact:
    """Read an event, without what a lineage tells about it."""
    data = event.data
    return PublishedArtifact(
        data["uri"],
        data["version"],
        data["name"],
        data.get("digest"),
        data.get("summary"),
        list(data.get("derived_from", ())),
        event.stream,
        event.version,
        event.position,
        event.event_id,
        event.agent,
        event.task_id,
        event.recorded_at,
    )


def fold_artifacts(events: Iterable[RecordedEvent]) -> list[PublishedArtifact]:
    """Fold the events of a lineage, in order of version, to what was published, in that order."""
    found: list[PublishedArtifact] = []
    highest: dict[str, int] = {}
    for event in events:
        if event.type != PUBLISHED:
            continue
        each = published(event)
        before = highest.get(each.uri, 0)
        found.append(replace(each, regression=each.version < before))
        highest[each.uri] = max(before, each.version)
    return [replace(each, latest=each.version == highest[each.uri]) for each in found]


def difference(stored: Mapping[str, Any], given: Artifact) -> tuple[str, Any, Any] | None:
    """Tell in which field an artifact is not the recorded one: (field, stored, given); the digest goes first."""
    for field in ("digest", "name", "summary", "derived_from"):
        known, new = stored.get(field) or None, getattr(given, field) or None
        if known != new:
            return field, known, new
    return None
