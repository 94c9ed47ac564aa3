"""``tail``: the log as it grows, event by event."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

import click

from eventstore.adapters.cli import hints, output
from eventstore.adapters.cli.options import Options, options
from eventstore.adapters.cli.reading import FOLDED_LINES, show_one
from eventstore.adapters.cli.rendering import fields
from eventstore.errors import ConvstoreError
from eventstore.log.events import RecordedEvent


@click.command()
@click.option("--after", metavar="CURSOR", help="Go on where another reader was; else from the beginning.")
@click.option("--from-now", is_flag=True, help="Only what comes from now on.")
@click.option("--type", "types", multiple=True, metavar="T", help="Only events of this type; can be repeated.")
@click.option("--all-tenants", is_flag=True, help="Everybody's, for a login that is bound to all tenants.")
@click.option("--no-follow", is_flag=True, help="End where there is no more.")
@click.option("--full", is_flag=True, help="Don't fold long content on a terminal.")
@options
def tail(
    to: Options,
    after: str | None,
    from_now: bool,
    types: Sequence[str],
    all_tenants: bool,
    no_follow: bool,
    full: bool,
) -> None:
    """Follow the log of all conversations.

    Events as they are committed, in order, none left out, until it is interrupted: then it tells how to go on.
    """
    if from_now and after is not None:
        raise click.UsageError("give --after or --from-now, one of them")
    given = after
    with to.open() as store:
        if from_now:
            after = store.feed_state(all_tenants=all_tenants).cursor
        events = store.subscribe(after, types=types or None, idle=0 if no_follow else None, all_tenants=all_tenants)
        shown = True
        try:
            for event in events:
                shown = False
                _show(to, event, full=full, all_tenants=all_tenants)
                after, shown = events.cursor, True
        except (KeyboardInterrupt, ConvstoreError) as e:
            last = events.cursor if shown else after
            if last is not None and (isinstance(e, KeyboardInterrupt) or last != given):
                output.note(f"go on with: {_again(to, last, types, all_tenants=all_tenants)}")
            raise
        if events.cursor is not None:
            output.note(f"go on with: {_again(to, events.cursor, types, all_tenants=all_tenants)}")


def _show(to: Options, event: RecordedEvent, *, full: bool, all_tenants: bool) -> None:
    place = [event.tenant, event.stream] if all_tenants else [event.stream]
    name = f"{' '.join(map(output.line, place))} {event.version}"
    try:
        if to.json:
            output.say_json(fields(event) | {"cursor": event.cursor})
        else:
            lines = None if full or not output.on_terminal() else FOLDED_LINES
            show_one(event, name, lines=lines, width=max(20, output.console().width - 6))
    except RecursionError:  # written past the client, which refuses it
        output.note(f"{name}, at position {event.position}, is nested too deep to be shown")
    sys.stdout.flush()


def _again(to: Options, after: str, types: Sequence[str], *, all_tenants: bool) -> str:
    """Give the call that goes on here."""
    words = [hints.again(click.get_current_context(), "tail"), "--after", shlex.quote(after)]
    for kind in types:
        words += ["--type", shlex.quote(kind)]
    words += ["--all-tenants"] if all_tenants else []
    words += ["--json"] if to.json else []
    return " ".join(words)
