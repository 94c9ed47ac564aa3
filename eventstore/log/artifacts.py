"""An artifact: a deliverable by reference. Its body is kept elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eventstore.errors import InvalidEvent, InvalidItem, describe
from eventstore.log import catalogue
from eventstore.log.catalogue.tasks import PUBLISHED
from eventstore.log.events import Json


@dataclass(frozen=True, slots=True)
class Artifact:
    """One version of a deliverable, checked when it is made.

    Args:
        uri: where the body is, at most 2,048 bytes; no ``data:`` URI, which would be the body itself.
        version: from 1 on.
        name: for people, at most 512 bytes.
        digest: of the body, such as ``"sha256:…"``, at most 256 bytes.
        summary: at most 4,096 bytes.
        derived_from: what it was made from. Another artifact's version, as an ``Artifact``, ``(uri, version)`` or
            ``{"uri", "version"}``, has to be published in the context; an event's reference or any other text is
            kept as it is.

    Raises:
        InvalidItem: a field that does not fit; names it.
    """

    uri: str
    version: int
    name: str
    digest: str | None = None
    summary: str | None = None
    derived_from: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not isinstance(self.derived_from, list | tuple):
            raise InvalidItem("artifact.derived_from", f"{describe(self.derived_from)} should be a list")
        object.__setattr__(self, "derived_from", [_source(source) for source in self.derived_from])
        try:
            catalogue.check(PUBLISHED, self.as_json())
        except InvalidEvent as e:
            raise InvalidItem(e.path.replace("data", "artifact", 1), e.reason) from None

    @classmethod
    def of(cls, data: Mapping[str, Json]) -> Artifact:
        """Read it as it is recorded."""
        return cls(**data)

    def as_json(self) -> dict[str, Json]:
        """Give it as it is recorded."""
        about = {"digest": self.digest, "summary": self.summary, "derived_from": self.derived_from or None}
        return {
            "name": self.name,
            "uri": self.uri,
            "version": self.version,
            **{name: value for name, value in about.items() if value is not None},
        }

    def sources(self) -> list[tuple[int, str, int]]:
        """Give the artifacts that it is derived from: (place in ``derived_from``, uri, version)."""
        return [
            (index, source["uri"], source["version"])
            for index, source in enumerate(self.derived_from)
            if isinstance(source, dict) and "uri" in source
        ]


def unique_key(uri: str, version: int) -> str:
    """Give what makes a version of an artifact unique within its context."""
    return f"artifact {version} {uri}"


def _source(source: object) -> Json:
    if isinstance(source, Artifact):
        return {"uri": source.uri, "version": source.version}
    if isinstance(source, tuple) and len(source) == 2:
        return {"uri": source[0], "version": source[1]}
    return dict(source) if isinstance(source, Mapping) else source
