"""``handoffs`` and ``schema``: who handed what to whom, what came of it, and what an envelope has to look like."""

from __future__ import annotations

from typing import Any, Final

import click

from eventstore import Envelope
from eventstore.adapters.cli import output
from eventstore.adapters.cli.options import Options, options
from eventstore.adapters.cli.reading import find
from eventstore.log.catalogue.envelope import MAX_BYTES
from projections.handoffs import Handoff

_STYLES: Final = {
    "accepted": "green",
    "committed": "green",
    "failed": "red",
    "rejected": "red",
    "rolled_back": "yellow",
}


@click.command()
@click.argument("stream")
@options
def handoffs(to: Options, stream: str) -> None:
    """Show a conversation's handoffs.

    In the order in which they were first offered, with giver and receiver, where each stands, and the version to which
    work returns where it failed.
    """
    with to.open() as store:
        name, _ = find(store, stream, None)
        found = store.conversation(name).handoffs.list()
    if to.json:
        output.say_json([document(each) for each in found])
        return
    if not found:
        output.note(f"no handoffs in stream {name!r}")
    for each in found:
        output.say(
            (f"{each.first_offered:>4}", "bold"),
            f"  {output.line(each.handoff_id)}  ",
            (f"{output.line(each.from_agent or '?')} → {output.line(each.owner)}", "magenta"),
            (f"  {each.status.replace('_', ' ')}", _STYLES.get(each.status, "cyan")),
            f" at {each.version}" + (f", attempt {each.attempt}" if each.attempt > 1 else ""),
        )
        output.say(f"      {output.line(str(each.envelope['goal']))}")
        if each.missing:
            output.say(f"      offered without {', '.join(each.missing)}")
        if each.reason is not None:
            output.say(f"      {output.line(each.reason)}{_return(each)}")


def document(handoff: Handoff) -> dict[str, Any]:
    """Give a handoff as JSON."""
    return {
        "handoff_id": handoff.handoff_id,
        "status": handoff.status,
        "attempt": handoff.attempt,
        "stream": handoff.stream,
        "from_agent": handoff.from_agent,
        "owner": handoff.owner,
        "task_id": handoff.task_id,
        "first_offered": handoff.first_offered,
        "offered": handoff.offered,
        "accepted": handoff.accepted,
        "version": handoff.version,
        "ack_id": handoff.ack_id,
        "by": handoff.by,
        "reason": handoff.reason,
        "return_to": handoff.return_to,
        "missing": list(handoff.missing),
        "envelope": handoff.envelope,
    }


def _return(handoff: Handoff) -> str:
    place = handoff.return_to
    if place is None or place.get("version") is None:
        return ""
    which = f", handoff {output.line(place['handoff_id'])}" if place.get("handoff_id") else ""
    return f"; return to version {place['version']}{which}"


@click.command()
@click.argument("what", type=click.Choice(["envelope"]))
@options
def schema(to: Options, what: str) -> None:  # noqa: ARG001
    """Print the JSON Schema of an envelope."""
    document = Envelope.model_json_schema()
    output.say_json(
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$comment": f"at most {MAX_BYTES:,} bytes"}
        | document
    )
