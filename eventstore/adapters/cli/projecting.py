"""``project``: running the projections, how far they are, building one anew, and what was parked."""

from __future__ import annotations

import dataclasses
import signal
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import FrameType
from typing import Any

import click

from eventstore.adapters.cli import exits, hints, output
from eventstore.adapters.cli.options import Options, options
from eventstore.projecting.known import known, pick
from eventstore.projecting.rows import Build
from eventstore.projecting.runner import Runner
from eventstore.store import EventStore
from projections.projection import Projection

_also = click.option(
    "--also",
    multiple=True,
    metavar="MODULE:NAME",
    help="A projection of your own, such as mypkg.views:refunds; can be repeated.",
)


@click.group()
def project() -> None:
    """Run projections: read models that follow the log.

    They are views in the schema convstore_views: docs/projections.md lists them.
    """


@project.command()
@_also
@click.option("--only", multiple=True, metavar="NAME", help="Only this one; can be repeated.")
@click.option("--until-caught-up", is_flag=True, help="End once all that the log holds now is dealt with.")
@click.option(
    "--batch", type=click.IntRange(1, 10_000), default=1000, show_default=True, help="Events of a batch at most."
)
@options
def run(to: Options, also: Sequence[str], only: Sequence[str], until_caught_up: bool, batch: int) -> int:
    """Follow the log until SIGTERM.

    Any number of workers may run at once; they share the projections. What a version of the code has not built yet is
    built beside what is shown, and shown when it has caught up. Exits 1 where a projection has stopped, or can't be
    shown.
    """
    projections = known(also)
    projections = [pick(projections, name) for name in only] if only else projections
    with to.open() as store:
        runner = store.projections.runner(projections, limit=batch)
        output.note(f"running {', '.join(p.name for p in projections)}; {'' if until_caught_up else 'SIGTERM ends it'}")
        with _stopped_by_signals(runner) as interrupted:
            builds = runner.run(until_caught_up=until_caught_up)
        states = [
            state for state in store.projections.status(projections) if state.name in {p.name for p in projections}
        ]
    if to.json:
        output.say_json({"projections": [_json(state) for state in states]})
    for build in builds:
        if build.parked:
            output.note(f"{build.name}: {output.events(build.parked)} parked; see: {_again('project parked')}")
        if build.error is not None and (build.stopped or build.state == "building"):
            output.note(f"{build.name}: {build.error}")
    if interrupted():
        return exits.INTERRUPTED
    return exits.NO if any(b.stopped or (until_caught_up and b.state != "live") for b in builds) else 0


@contextmanager
def _stopped_by_signals(runner: Runner) -> Iterator[Callable[[], bool]]:
    """Let SIGTERM and SIGINT end the runner after the batch in hand; gives whether it was an interrupt."""
    seen: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        seen.append(number)
        runner.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: signal.SIGINT in seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@project.command()
@_also
@options
def status(to: Options, also: Sequence[str]) -> int:
    """Show how far each projection is.

    The lag is how many events are behind its position, and the age of the oldest. Exits 1 where one has stopped.
    """
    with to.open() as store:
        states = store.projections.status(known(also))
    if to.json:
        output.say_json({"projections": [_json(state) for state in states]})
    else:
        for state in states:
            lag = "its cursor is refused"
            if state.lag is not None:
                lag = f"{output.events(state.lag)}{' or more' if state.lag_capped else ''} behind"
                lag += f", the oldest {state.lag_seconds:.0f} s old" if state.lag else ""
            name = f"{state.name} {state.version}"
            at = f"{state.state}{', stopped' if state.stopped else ''}, at position {state.position}, {lag}"
            output.say((name, "bold"), f": {at}{f', {state.parked:,} parked' if state.parked else ''}")
            if state.error is not None:
                output.say(f"  {output.line(state.error)}")
    return exits.NO if any(state.stopped for state in states) else 0


@project.command()
@click.argument("name")
@_also
@click.option("--no-wait", is_flag=True, help="Only begin: workers that run do the rest.")
@click.option("--accept-parked", is_flag=True, help="Show it even where it parked events that are shown now.")
@options
def rebuild(to: Options, name: str, also: Sequence[str], no_wait: bool, accept_parked: bool) -> int:
    """Build a projection anew from the first event on.

    It grows beside the one that is shown, and takes its place at once when it has caught up. An interrupt leaves it to
    the workers. Exits 1 where it can't be shown.
    """
    projection = pick(known(also), name)
    with to.open() as store:
        begun = store.projections.rebuild(projection, accept_parked=accept_parked)
        if no_wait:
            _tell(to, dataclasses.asdict(begun), f"{name}: begun; see: {_again('project status')}")
            return 0
        done = _built(store, projection, begun)
    shown = done is not None and done.state == "live"
    _tell(
        to,
        dataclasses.asdict(done or begun),
        f"{name}: built from {output.events(done.applied)}, and shown"
        if shown and done is not None
        else f"{name}: not shown: {done.error if done else 'another build has taken its place'}",
    )
    return 0 if shown else exits.NO


def _built(store: EventStore, projection: Projection, begun: Build) -> Build | None:
    runner = store.projections.runner([projection])
    with output.bar(f"building {projection.name}", total=1.0) as bar, _stopped_by_signals(runner) as interrupted:

        def progress(build: Build, end: int) -> None:
            if build.build == begun.build:
                bar.at(build.position / end if end else 1.0, f"{build.applied:,} events, at {build.position} of {end}")

        builds = runner.run(until_caught_up=True, progress=progress)
    if interrupted():
        raise KeyboardInterrupt
    return next((build for build in builds if build.build == begun.build), None)


@project.command()
@click.argument("name", required=False)
@options
def parked(to: Options, name: str | None) -> None:
    """Show the events that a projection could not take, and why.

    Those that wait behind one, since the order counts, are counted with it.
    """
    with to.open() as store:
        found = store.projections.parked(name)
    if to.json:
        output.say_json({"parked": [_json(each) for each in found]})
        return
    for each in found:
        place = f"{each.tenant} {each.stream} {each.version} ({each.type}), position {each.position}"
        behind = f", {output.events(each.held)} behind it" if each.held else ""
        output.say((f"{each.projection} {each.projection_version}", "bold"), f": {output.line(place)}{behind}")
        output.say(f"  tried {each.attempts} times: {output.line(each.error)}")
    if not found:
        output.say("nothing is parked")


@project.command("replay-parked")
@click.argument("name")
@_also
@click.option("--position", type=int, metavar="N", help="Only the event there.")
@options
def replay_parked(to: Options, name: str, also: Sequence[str], position: int | None) -> int:
    """Apply what was parked, once its cause is mended.

    What waited behind it follows. Exits 1 where one of them fails again.
    """
    with to.open() as store:
        done = store.projections.replay_parked(name, position, projections=known(also))
    if to.json:
        rows = [{**_json(each.parked), "applied": each.applied, "error": each.error} for each in done]
        output.say_json({"replayed": rows})
    else:
        for each in done:
            what = f"applied {output.events(each.applied)}" + (f"; parked: {each.error}" if each.error else "")
            output.say(f"position {each.parked.position}: {output.line(what)}")
        if not done:
            output.say("nothing is parked")
    return exits.NO if any(each.error is not None for each in done) else 0


def _tell(to: Options, row: dict[str, Any], text: str) -> None:
    if to.json:
        output.say_json({key: _plain(value) for key, value in row.items()})
    else:
        output.say(output.line(text))


def _json(row: Any) -> dict[str, Any]:
    return {key: _plain(value) for key, value in dataclasses.asdict(row).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, uuid.UUID) else value


def _again(command: str) -> str:
    return hints.again(click.get_current_context(), command)
