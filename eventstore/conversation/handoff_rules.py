"""What forbids a handoff: each rule names the field that is wrong. Pure; what it judges by is read beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from eventstore.errors import HandoffRefused, describe
from eventstore.log.catalogue.envelope import Envelope
from eventstore.log.events import RecordedEvent
from projections.facts import Facts
from projections.handoffs import Handoff
from projections.surroundings import TERMINAL, artifacts_of, tasks_of


def check_complete(envelope: Envelope) -> None:
    """Refuse an envelope from which the receiver can't go on by itself."""
    why = {
        "success": "the receiver can't tell when it is done",
        "constraints": "the receiver can't tell what it must not do",
        "artifacts": "the receiver can't tell which artifact it continues",
    }
    missing = envelope.check()
    if missing:
        more = f" (also missing: {', '.join(missing[1:])})" if missing[1:] else ""
        raise HandoffRefused(missing[0], f"missing: {why[missing[0]]}; give it, or allow_incomplete=True{more}")


def check_context(envelope: Envelope, context: str) -> None:
    """Refuse an envelope of another context."""
    if envelope.context_id != context:
        raise HandoffRefused("context_id", f"{describe(envelope.context_id)}; this conversation's is {context!r}")


def check_facts(envelope: Envelope, facts: Facts) -> None:
    """Refuse a decision or constraint that is not held true here."""
    for text in sorted(set(envelope.decisions) - set(facts.texts("decision"))):
        raise HandoffRefused(
            "decisions", f"{describe(text)} is no confirmed decision here; facts.confirm(text, evidence=[…]), or ask"
        )
    for text in sorted(set(envelope.constraints) - set(facts.texts("constraint"))):
        raise HandoffRefused("constraints", f"{describe(text)} is no constraint here; facts.constrain(text) first")


def check_artifacts(envelope: Envelope, about: Iterable[RecordedEvent]) -> None:
    """Refuse a version of an artifact that was not published in the context, or has another digest."""
    published = artifacts_of(about)
    for artifact in envelope.artifacts:
        found = published.get((artifact.uri, artifact.version))
        if found is None:
            there = sorted(version for uri, version in published if uri == artifact.uri)
            known = f"published are versions {there[0]} to {there[-1]}" if there else "none of it was published"
            raise HandoffRefused("artifacts", f"{artifact.uri!r} has no version {artifact.version} here; {known}")
        if artifact.digest is not None and found.get("digest") not in (None, artifact.digest):
            raise HandoffRefused(
                "artifacts",
                f"{artifact.uri!r} version {artifact.version} has the digest {found['digest']}, not {artifact.digest}",
            )


def check_task(task_id: str, about: Iterable[RecordedEvent], *, known: bool) -> None:
    """Refuse a task in a terminal state and, where it has to be ``known``, one that was never opened."""
    status = tasks_of(about).get(task_id)
    if status in TERMINAL:
        raise HandoffRefused("task_id", f"task {task_id!r} is {status}; open one that follows it")
    if status is None and known:
        raise HandoffRefused("task_id", f"{task_id!r}: no such task in this context; open it first")


def check_acceptance(envelope: Envelope, by: str, last: RecordedEvent | None) -> None:
    """Refuse what the envelope itself and the last acceptance in the lineage forbid."""
    if by != envelope.owner:
        raise HandoffRefused("owner", f"it is offered to {envelope.owner!r}, not to {describe(by)}")
    if envelope.status != "ready":
        raise HandoffRefused("status", f"{describe(envelope.status)} should be 'ready'")
    newest = None if last is None else last.data.get("context_version")
    if newest is not None and last is not None and (envelope.context_version or 0) <= newest:
        raise HandoffRefused(
            "context_version",
            f"{envelope.context_version} is not newer than {newest}, that of {last.data['handoff_id']!r}, accepted at "
            f"version {last.version}; draft it anew",
        )


def check_open(handoff: Handoff | None, handoff_id: str, stream: str) -> Handoff:
    """Return a handoff that can be answered in this stream; refuse any other."""
    found = check_here(handoff, handoff_id, stream)
    if found.status != "offered":
        raise HandoffRefused("handoff_id", f"{handoff_id!r} is not open: {told(found)}")
    return found


def check_here(handoff: Handoff | None, handoff_id: str, stream: str) -> Handoff:
    """Return a handoff of this stream; refuse any other."""
    if handoff is None:
        raise HandoffRefused("handoff_id", f"{describe(handoff_id)}: no such handoff in this context")
    if handoff.stream != stream:
        raise HandoffRefused(
            "handoff_id",
            f"{handoff_id!r} was offered in stream {handoff.stream!r} and is answered there; in {stream!r}, which does "
            "not inherit it, offer anew under a new id",
        )
    return handoff


def told(handoff: Handoff) -> str:
    """Say where a handoff stands."""
    reason = f" ({handoff.reason})" if handoff.reason else ""
    return f"{handoff.status.replace('_', ' ')} at version {handoff.version}{reason}"


def notes(effects: Iterable[Mapping[str, Any] | str]) -> list[Any]:
    """Give effects as an event holds them; refuse what is neither a key nor an object with one."""
    given = list(effects)
    for index, each in enumerate(given):
        if not (isinstance(each, str) and each) and not (isinstance(each, Mapping) and each.get("key")):
            raise HandoffRefused("effects", f"[{index}]: {describe(each)}; give an effect's key, or an object with one")
    return [each if isinstance(each, str) else dict(each) for each in given]
