"""``effects``: what tools did in the world for the conversations of a context, and what became of it."""

from __future__ import annotations

import json
from typing import Any

import click

from eventstore.adapters.cli import output
from eventstore.adapters.cli.options import Options, options
from eventstore.errors import StreamNotFound
from projections.effects import Effect

_STYLES = {"pending": "yellow", "indeterminate": "red", "failed": "dim", "compensated": "dim"}
_WIDTH = 200


@click.command()
@click.argument("stream")
@click.option("--resolve", "key", metavar="KEY", help="Say what became of an indeterminate one, after looking.")
@click.option("--succeeded/--failed", "succeeded", default=None, help="It happened; or it did not, and may run again.")
@click.option("--result", metavar="JSON", help="What the tool returned, with --succeeded.")
@click.option("--reason", metavar="TEXT", help="How that is known.")
@click.option("--agent", metavar="NAME", help="Who says so.")
@options
def effects(
    to: Options,
    stream: str,
    key: str | None,
    succeeded: bool | None,
    result: str | None,
    reason: str | None,
    agent: str | None,
) -> None:
    """Show the effects in the world of a conversation.

    Of its whole context, all branches included: key, state, tool, attempts, who ran it, when, and its result. With
    --resolve, settle one of them.
    """
    if (key is None) != (succeeded is None):
        raise click.UsageError("--resolve KEY goes with --succeeded or --failed")
    if key is None and (result, reason, agent) != (None, None, None):
        raise click.UsageError("--result, --reason and --agent go with --resolve KEY")
    value = _value(result)
    with to.open() as store:
        chat = store.conversation(stream)
        if not chat.head():
            raise StreamNotFound(stream, store.tenant)
        if key is not None and succeeded is not None:
            shown = [chat.effects.resolve(key, succeeded, value, reason=reason, agent=agent)]
        else:
            shown = chat.effects.list()
    if to.json:
        output.say_json({"effects": [_fields(effect) for effect in shown]})
        return
    for effect in shown:
        _show(effect)


def _value(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as e:
        raise click.UsageError(f"--result is no JSON: {e}; text stands in quotes, as '\"re_1\"'") from None


def _show(effect: Effect) -> None:
    output.say(
        (output.line(effect.key), "bold"),
        "  ",
        (effect.state, _STYLES.get(effect.state, "green")),
        f"  {output.line(effect.tool)}  attempt {effect.attempt}, by {output.line(effect.by)}",
        f", {output.utc(effect.begun_at)}",
    )
    said: list[tuple[str, str]] = [("arguments", output.compact(effect.arguments))]
    if effect.state in ("succeeded", "compensated"):
        said.append(("result", output.compact(effect.result)))
    if effect.state == "failed" and not effect.resolved:
        said.append(("error", output.compact(effect.error)))
    if effect.state == "pending":
        said.append(("for", f"{effect.age:.1f} s of its lease of {effect.lease:g} s"))
    if effect.state == "indeterminate":
        known = "it happened, its result is unknown" if effect.happened else "it may have happened"
        said.append((known, f"{effect.reason}; look, then --resolve it"))
    if effect.resolved:
        said.append(("resolved", f"by {effect.settled_by}" + (f": {effect.reason}" if effect.reason else "")))
    if effect.state == "compensated":
        said.append(("undone", f"by {effect.settled_by}: {output.compact(effect.compensation)}"))
    for name, text in said:
        shown = text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
        output.say(f"    {name}: {output.line(shown)}")


def _fields(effect: Effect) -> dict[str, Any]:
    return {
        "key": effect.key,
        "state": effect.state,
        "tool": effect.tool,
        "arguments": effect.arguments,
        "attempt": effect.attempt,
        "by": effect.by,
        "begun_at": effect.begun_at.isoformat(),
        "age": effect.age,
        "lease": effect.lease,
        "result": effect.result,
        "error": effect.error,
        "reason": effect.reason,
        "happened": effect.happened,
        "resolved": effect.resolved,
        "settled_by": effect.settled_by,
        "settled_at": None if effect.settled_at is None else effect.settled_at.isoformat(),
        "compensation": effect.compensation,
        "task_id": effect.task_id,
        "run_id": effect.run_id,
        "events": [{"stream": stream, "version": version} for stream, version in effect.versions],
    }
