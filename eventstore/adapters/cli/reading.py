"""``ls``, ``replay`` and ``export``: what the log holds, in bounded memory however much that is."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain, islice
from typing import Final

import click
from rich.table import Table
from rich.text import Text

from eventstore import EventStore
from eventstore.adapters.cli import output
from eventstore.adapters.cli.options import Options, options
from eventstore.adapters.cli.rendering import fields, readable
from eventstore.errors import ConvstoreError, StreamNotFound
from eventstore.log.events import Json, RecordedEvent, UndecodableEvent
from eventstore.log.rows import StreamInfo

PAGE: Final = 1000
FOLDED_LINES: Final = 8
_AT: Final = re.compile(r"(.+)@([0-9]{1,18})", re.DOTALL)
# What an export says of an event: the rest is the same for all of its line.
_ONCE_A_LINE: Final = ("tenant", "context", "stream")


class BeyondHead(ConvstoreError):
    """A version that the stream does not have."""

    def __init__(self, stream: str, at: int, head: int) -> None:
        super().__init__(f"stream {stream!r} has versions 1 to {head}, so there is none at {at}")
        self.stream = stream
        self.at = at
        self.head = head


class NothingYet(ConvstoreError):
    """A moment before the stream's first event."""

    def __init__(self, stream: str, at: object) -> None:
        super().__init__(f"stream {stream!r} had no event yet at {at}")
        self.stream = stream
        self.at = at


class ContextNotFound(ConvstoreError):
    """No stream of that context in the tenant."""

    def __init__(self, context: str, tenant: str) -> None:
        super().__init__(f"no stream of context {context!r} in tenant {tenant!r}; convstore ls shows what there is")
        self.context = context
        self.tenant = tenant


def directory(store: EventStore, context: str | None, tags: dict[str, str] | None = None) -> Iterator[StreamInfo]:
    """Yield the tenant's streams in order of name, page by page."""
    after: str | None = None
    while True:
        page = store.conversations(context=context, tags=tags, after=after, limit=PAGE)
        yield from page.streams
        after = page.after
        if after is None:
            return


def _tags(_ctx: click.Context, _param: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    tags = dict(each.partition("=")[::2] for each in given)
    for each in given:
        if "=" not in each or each.startswith("="):
            raise click.BadParameter(f"{each!r} should be key=value")
    return tags


@click.command()
@click.option("--context", metavar="C", help="Only streams of this context.")
@click.option("--tag", "tags", multiple=True, callback=_tags, metavar="K=V", help="Only streams with this tag.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many; else all.")
@options
def ls(to: Options, context: str | None, tags: dict[str, str], limit: int | None) -> None:
    """List conversations by name.

    With context, tags, number of events, last activity and, of a branch, where it branches off.
    """
    with to.open() as store:
        found: Iterator[StreamInfo] = islice(directory(store, context, tags or None), limit)
        first = next(found, None)
        if first is None:
            which = f" of context {context!r}" if context is not None else ""
            which += " with these tags" if tags else ""
            output.note(f"no streams{which} in tenant {store.tenant!r}")
            return
        found = chain([first], found)
        if to.json:
            for stream in found:
                output.say_json(
                    {
                        "name": stream.name,
                        "context": stream.context,
                        "tags": stream.tags,
                        "events": stream.head,
                        "closed": stream.closed,
                        "created_at": stream.created_at.isoformat(),
                        "last_activity": stream.recorded_at.isoformat(),
                        "parent": stream.parent,
                        "fork_at": stream.fork_at,
                    }
                )
        elif output.on_terminal():
            heads = True
            while page := list(islice(found, PAGE)):
                _print_table(page, heads=heads)
                heads = False
        else:
            for stream in found:
                output.say("\t".join(_cells(stream)))


def _cells(stream: StreamInfo) -> list[str]:
    tags = " ".join(f"{output.line(key)}={output.line(value)}" for key, value in stream.tags.items())
    time = output.utc(stream.recorded_at)
    parent = "" if stream.parent is None else f"{output.line(stream.parent)}@{stream.fork_at}"
    return [output.line(stream.name), output.line(stream.context), tags, f"{stream.head}", time, parent]


def _print_table(page: Sequence[StreamInfo], *, heads: bool) -> None:
    table = Table(box=None, show_header=heads, pad_edge=False)
    for head in ("name", "context", "tags", "events", "last activity", "branch of"):
        narrow = head in ("events", "last activity")
        table.add_column(head, overflow="fold", no_wrap=narrow, justify="right" if head == "events" else "left")
    for stream in page:
        table.add_row(*map(Text, _cells(stream)))
    output.console().print(table)


class At(click.ParamType[int | datetime]):
    """A version, or a moment in ISO 8601 with its zone."""

    name = "N|TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | datetime:
        """Read one of both."""
        if isinstance(value, int | datetime):
            return value
        text = str(value)
        if text.isascii() and text.isdigit():
            return int(text)
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{text!r} is no version and no time, such as 2026-01-31T12:00:00Z", param, ctx)
        if time.tzinfo is None:
            self.fail(f"{text!r} has no zone; for UTC write {time.isoformat()}Z", param, ctx)
        return time


def find(store: EventStore, name: str, at: int | datetime | None) -> tuple[str, int]:
    """Resolve ``STREAM``, ``STREAM@N`` and ``--at`` to a stream and the last version to show.

    A stream whose whole name looks like ``STREAM@N`` goes first.
    """
    stream = name
    last = at
    head = store.conversation(name).head()
    split = _AT.fullmatch(name)
    if not head and split is not None:
        if at is not None:
            raise click.UsageError(f"give the version once: in {name!r} or by --at")
        stream, last = split[1], int(split[2])
        head = store.conversation(stream).head()
    if not head:
        raise StreamNotFound(stream, store.tenant)
    if isinstance(last, datetime):
        last = store.conversation(stream).version_at(last)
        if not last:
            raise NothingYet(stream, at)
    if last is not None and not 1 <= last <= head:
        raise BeyondHead(stream, last, head)
    return stream, head if last is None else last


def show(events: Iterator[RecordedEvent], *, lines: int | None) -> None:
    """Print events for the eye, each content folded to ``lines`` lines of the terminal; None is unfolded."""
    width = max(20, output.console().width - 6)
    for event in events:
        show_one(event, f"{event.version:>4}", lines=lines, width=width)


def show_one(event: RecordedEvent, place: str, *, lines: int | None, width: int) -> None:
    """Print one event for the eye, headed by its place."""
    agent = f"  {output.line(event.agent)}" if event.agent is not None else ""
    output.say(
        (place, "bold"),
        (f"  {output.utc(event.recorded_at)}", "dim"),
        (f"  {output.line(event.type)}", "cyan"),
        (agent, "magenta"),
    )
    text = readable(event)
    for row in text.split("\n") if lines is None else output.fold(text, width=width, lines=lines):
        output.say(f"      {row}")


@click.command()
@click.argument("stream", required=False)
@click.option("--context", metavar="C", help="All streams of this context.")
@options
def export(to: Options, stream: str | None, context: str | None) -> None:
    """Print conversations for import to read.

    One JSON line each, with all there is of each event. A branch comes after the streams that it descends from.
    """
    if (stream is None) == (context is None):
        raise click.UsageError("give a STREAM or --context, one of them")
    with to.open() as store:
        if stream is not None:
            family = {each.name: each for each in store.conversation(stream).family()}
            found = family.get(stream)
            if found is None:
                raise StreamNotFound(stream, store.tenant)
            line = [found]
            while line[-1].parent is not None:
                line.append(family[line[-1].parent])
            for each in reversed(line):
                _export(store, each)
            return
        streams = list(directory(store, context))
        if not streams:
            raise ContextNotFound(context or "", store.tenant)
        for each in parents_first(streams):
            _export(store, each)


def parents_first(streams: Sequence[StreamInfo]) -> Iterator[StreamInfo]:
    """Yield a context's streams in the order given, but no branch before its parent."""
    by_name = {stream.name: stream for stream in streams}
    done: set[str] = set()
    for stream in streams:
        line: list[StreamInfo] = []
        at: StreamInfo | None = stream
        while at is not None and at.name not in done:
            line.append(at)
            at = by_name.get(at.parent) if at.parent is not None else None
        for each in reversed(line):
            done.add(each.name)
            yield each


def _export(store: EventStore, stream: StreamInfo) -> None:
    """Write one line, an event at a time."""
    write = sys.stdout.write
    head: dict[str, Json] = {"conversation": stream.name, "context": stream.context, "tags": stream.tags}
    if stream.parent is not None:
        head["fork"] = {"parent": stream.parent, "at": stream.fork_at}
    write(output.dump(head)[:-1] + ',"events":[')
    for index, event in enumerate(store.conversation(stream.name).events((stream.fork_at or 0) + 1, stream.head)):
        if isinstance(event, UndecodableEvent):
            raise event.error
        shown = {key: value for key, value in fields(event).items() if key not in _ONCE_A_LINE}
        write(("," if index else "") + output.dump(shown))
    write("]}\n")
