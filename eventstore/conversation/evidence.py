# Generated from evidence_async.py by ops/generate_sync.py: edit that one.
"""Evidence: what a decision rests on, checked to be there before anything is written."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from eventstore.conversation.stream import Stream
from eventstore.errors import InvalidItem, describe
from eventstore.log import names
from eventstore.log.decided import find_evidence
from eventstore.log.events import Json, RecordedEvent

Evidence: TypeAlias = RecordedEvent | uuid.UUID | str | int | tuple[str, int] | Mapping[str, Any]
"""A recorded event, its ``event_id``, a version of this stream, (stream, version), or ``{"uri", "version"}``."""

_FORMS: Final = "a recorded event, an event_id, a version, (stream, version), or {'uri', 'version'}"
_MAPPINGS: Final = ({"event_id"}, {"version"}, {"stream", "version"}, {"uri", "version"})


def check_evidence(stream: Stream, evidence: Iterable[Evidence], *, required: bool) -> list[dict[str, Json]]:
    """Return evidence as references, each of which names something in the stream's context.

    Raises ``InvalidItem`` where one does not, or where none is given and it is ``required``.
    """
    if isinstance(evidence, str | bytes | Mapping | RecordedEvent) or not isinstance(evidence, Iterable):
        raise InvalidItem("evidence", f"{describe(evidence)}; give a list of {_FORMS}")
    given = list(evidence)
    if required and not given:
        raise InvalidItem("evidence", f"none; a decision needs at least one: {_FORMS}. Without any, ask(text) instead")
    references = [_reference(stream, each, f"evidence[{index}]") for index, each in enumerate(given)]
    if not references:
        return []
    found = find_evidence(
        stream.route.caller,
        stream.tenant,
        stream.name,
        stream.context,
        [
            (
                None if ref.get("event_id") is None else uuid.UUID(ref["event_id"]),
                ref.get("stream"),
                ref.get("version"),
                names.storable("uri", ref.get("uri")),
            )
            for ref in references
        ],
    )
    for index, (ref, each) in enumerate(zip(references, given, strict=True)):
        hits = [hit for hit in found if hit.place == index]
        if ref.get("uri") is not None:
            hits = [hit for hit in hits if hit.data["uri"] == ref["uri"] and hit.data["version"] == ref["version"]]
        elif isinstance(each, RecordedEvent):
            hits = [hit for hit in hits if hit.event_id == each.event_id]
        if not hits:
            raise InvalidItem(f"evidence[{index}]", f"{_shown(ref)}: there is no such thing in this context")
    return references


def _reference(stream: Stream, given: object, path: str) -> dict[str, Json]:
    """Read one of the forms."""
    if isinstance(given, RecordedEvent):
        if given.tenant != stream.tenant:
            raise InvalidItem(path, f"an event of tenant {given.tenant!r}, not of {stream.tenant!r}")
        return {"stream": given.stream, "version": given.version}
    if isinstance(given, uuid.UUID):
        return {"event_id": str(given)}
    if isinstance(given, str):
        try:
            return {"event_id": str(uuid.UUID(given))}
        except ValueError:
            raise InvalidItem(path, f"{describe(given)} is no event id; give {_FORMS}") from None
    if type(given) is int:
        return {"version": _version(given, path)}
    if isinstance(given, tuple | list) and len(given) == 2 and type(given[1]) is int:
        return {"stream": names.check_name("stream", given[0]), "version": _version(given[1], path)}
    if isinstance(given, Mapping) and set(given) in _MAPPINGS:
        if "event_id" in given:
            return _reference(stream, given["event_id"], path)
        if type(given["version"]) is int:
            ref = dict(given) | {"version": _version(given["version"], path)}
            if "stream" in ref:
                names.check_name("stream", ref["stream"])
            if "uri" not in ref or (type(ref["uri"]) is str and ref["uri"]):
                return ref
    raise InvalidItem(path, f"{describe(given)}; give {_FORMS}")


def _version(value: int, path: str) -> int:
    if not 1 <= value < 2**63:
        raise InvalidItem(path, f"{value}; versions count from 1")
    return value


def _shown(reference: Mapping[str, Any]) -> str:
    if "event_id" in reference:
        return f"event {reference['event_id']}"
    if "uri" in reference:
        return f"version {reference['version']} of artifact {reference['uri']!r}"
    where = f"stream {reference['stream']!r}" if "stream" in reference else "this stream"
    return f"version {reference['version']} of {where}"
