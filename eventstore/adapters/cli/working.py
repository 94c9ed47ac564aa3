"""``tasks`` and ``artifacts``: what there is to do in a conversation's context, how far it is, and what came of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from eventstore.adapters.cli import output
from eventstore.adapters.cli.options import Options, options
from eventstore.adapters.cli.reading import At, find
from projections.artifacts import PublishedArtifact
from projections.tasks import Task, TaskChange

_COLORS = {"completed": "green", "working": "cyan", "failed": "red", "rejected": "red", "canceled": "red"}


@click.command()
@click.argument("stream")
@click.option("--at", type=At(), help="As of this version or moment; STREAM@N says the same.")
@options
def tasks(to: Options, stream: str, at: int | datetime | None) -> None:
    """Show the tasks of a conversation's context.

    A task belongs to the context: all of its conversations and branches share it. As of a version is as of the moment
    when that was recorded.
    """
    with to.open() as store:
        name, last = find(store, stream, at)
        given = "@" in stream and name != stream
        chat = store.conversation(name)
        found = chat.tasks.list(at=at if isinstance(at, datetime) else last if at is not None or given else None)
    if to.json:
        output.say_json({"stream": name, "tasks": [_task(task) for task in found]})
        return
    for task in found:
        about = f"  owner {output.line(task.owner)}" if task.owner is not None else ""
        about += f"  follows {output.line(task.follows)}" if task.follows is not None else ""
        about += f"  compensates {', '.join(map(output.line, task.compensates))}" if task.compensates else ""
        output.say(
            (f"{task.status:<14}", _COLORS.get(task.status, "yellow")),
            (f"  {output.line(task.task_id)}", "bold"),
            f"  {output.line(task.goal)}",
            (about, "magenta"),
        )
        for change in task.changes:
            who = f"  {output.line(change.agent)}" if change.agent is not None else ""
            why = f"  {output.line(change.reason)}" if change.reason is not None else ""
            place = f"  {output.line(change.stream)}@{change.version}"
            output.say((f"    {output.utc(change.recorded_at)}", "dim"), f"  {change.status}{place}{who}{why}")
    if not found:
        output.note("no tasks")


def _task(task: Task) -> dict[str, Any]:
    return {
        "task_id": task.task_id,
        "status": task.status,
        "goal": task.goal,
        "owner": task.owner,
        "follows": task.follows,
        "compensates": task.compensates,
        "history": [_change(change) for change in task.changes],
    }


def _change(change: TaskChange) -> dict[str, Any]:
    return {
        "status": change.status,
        "stream": change.stream,
        "version": change.version,
        "position": change.position,
        "event_id": str(change.event_id),
        "agent": change.agent,
        "recorded_at": change.recorded_at.isoformat(),
        "reason": change.reason,
    }


@click.command()
@click.argument("stream")
@click.option("--at", type=At(), help="As of this version or moment; STREAM@N says the same.")
@options
def artifacts(to: Options, stream: str, at: int | datetime | None) -> None:
    """Show the artifacts that a conversation has published.

    Those that it inherited from the conversations that it branches off from are among them.

    The latest version of each is marked; one that came after a higher one is a regression.
    """
    with to.open() as store:
        name, last = find(store, stream, at)
        found = store.conversation(name).artifacts.list(at=last)
    if to.json:
        output.say_json({"stream": name, "artifacts": [_artifact(each) for each in found]})
        return
    for each in found:
        marks = "  latest" if each.latest else ""
        marks += "  regression" if each.regression else ""
        digest = f"  {output.line(each.digest)}" if each.digest is not None else ""
        output.say(
            (f"{output.line(each.uri)}", "bold"),
            f" v{each.version}  {output.line(each.name)}{digest}",
            (marks, "red" if each.regression else "green"),
        )
        who = f"  {output.line(each.agent)}" if each.agent is not None else ""
        task = f"  task {output.line(each.task_id)}" if each.task_id is not None else ""
        place = f"  {output.line(each.stream)}@{each.stream_version}"
        output.say((f"    {output.utc(each.recorded_at)}", "dim"), f"{place}{who}{task}")
        for source in each.derived_from:
            output.say(f"    from {output.line(_source(source))}")
        if each.summary is not None:
            output.say(f"    {output.line(each.summary)}")
    if not found:
        output.note("no artifacts")


def _source(source: Any) -> str:
    if isinstance(source, dict) and "uri" in source:
        return f"{source['uri']} v{source['version']}"
    return source if isinstance(source, str) else output.compact(source)


def _artifact(each: PublishedArtifact) -> dict[str, Any]:
    return {
        "uri": each.uri,
        "version": each.version,
        "name": each.name,
        "digest": each.digest,
        "summary": each.summary,
        "derived_from": each.derived_from,
        "latest": each.latest,
        "regression": each.regression,
        "stream": each.stream,
        "stream_version": each.stream_version,
        "position": each.position,
        "event_id": str(each.event_id),
        "agent": each.agent,
        "task_id": each.task_id,
        "recorded_at": each.recorded_at.isoformat(),
    }
