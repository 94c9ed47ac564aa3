"""``import``: conversations as JSON lines into the log, each whole or not at all.

What a line becomes, its keys and its parts follow from the line alone, so the same file again writes nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import click

from eventstore import EventStore
from eventstore.adapters.cli import output, sdk_sessions
from eventstore.adapters.cli.lines import BadLine, Files, Read
from eventstore.adapters.cli.options import Options, options
from eventstore.adapters.cli.sdk_importing import Count, add_sessions
from eventstore.errors import (
    ContextMismatch,
    ConvstoreError,
    ForkPointBeyondHead,
    IdempotencyConflict,
    InvalidItem,
    InvalidName,
    StreamClosed,
    StreamExists,
    StreamNotFound,
    TaskClosed,
    TaskExists,
    TaskNotFound,
    UniqueKeyConflict,
)
from eventstore.formats import import_lines
from eventstore.formats.import_lines import Fork
from eventstore.log import codec
from eventstore.log.batch import MAX_BATCH_BYTES, MAX_EVENTS
from eventstore.log.events import ITEM, Event
from eventstore.store import Scope

_FAULTS_OF_A_LINE: Final = (
    ContextMismatch,
    ForkPointBeyondHead,
    InvalidItem,
    InvalidName,
    StreamClosed,
    StreamExists,
    StreamNotFound,
    TaskClosed,
    TaskExists,
    TaskNotFound,
    UniqueKeyConflict,
)
_NAMED: Final = 20
_INDEX: Final = re.compile(r"^\[(\d+)\]")


@dataclass(slots=True)
class Tally(Count):
    """What an import has done so far."""

    ignored: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        if self.present and not self.written:
            counts = f"nothing new, {output.events(self.present)} already there"
        else:
            counts = f"{output.events(self.written)} written, {self.present:,} already there"
        return f"{output.streams(self.streams)}: {counts}"


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--from",
    "source",
    type=click.Choice(sdk_sessions.SOURCES),
    help="FILE is no file of lines, but the SQLite file of the OpenAI Agents SDK's sessions, or a SQLAlchemy URL.",
)
@click.option(
    "--messages-table",
    default=sdk_sessions.MESSAGES,
    show_default=True,
    help="With --from: where the SDK was told to keep its messages.",
)
@click.option(
    "--format",
    type=click.Choice(import_lines.FORMATS),
    help='What "items" and "messages" hold, whatever the key says: responses, items taken as they are; chat, messages; '
    'nested, what the key says, with handoff histories expanded. "steps" and "events" are not concerned.',
)
@options
def import_files(
    to: Options, files: tuple[str, ...], format: str | None, source: str | None, messages_table: str
) -> None:
    """Import conversations, one JSON object a line.

    A line is {"conversation": name, "context"?, "tags"?} with "items", "messages", "steps" or "events" (what export
    prints). Other keys are ignored, and named at the end. FILE is plain or gzip; - is standard input. The same file
    again changes nothing.
    """
    started = time.monotonic()
    tally = Tally()
    try:
        with to.open() as store:
            if source is None:
                run(store, Files(files, format), tally)
            else:
                for where in files:
                    with sdk_sessions.opened(source, where, messages_table) as found:
                        add_sessions(store, found, tally)
    except (ConvstoreError, OSError) as e:
        before = f"before it: {tally}; they stay, and the import can be run again"
        e.add_note(before if tally.streams else "nothing was imported before it")
        if to.json:
            output.say_json(_document(tally, started, str(e)))
        raise
    except KeyboardInterrupt:
        output.note(f"interrupted after {tally}; run it again to go on")
        raise
    if to.json:
        output.say_json(_document(tally, started, None))
    else:
        output.say(f"{tally} ({time.monotonic() - started:.1f} s)")
        if tally.ignored:
            output.note(f"ignored keys: {_names(sorted(tally.ignored))}")
        if tally.left_out:
            output.note(f"left out, as the SDK does, for they are no JSON: {_names(tally.left_out)}")


def _names(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _NAMED:,} more" if len(keys) > _NAMED else ""
    return ", ".join(map(output.line, keys[:_NAMED])) + more


def _document(tally: Tally, started: float, error: str | None) -> dict[str, object]:
    return {
        "streams": tally.streams,
        "events_written": tally.written,
        "events_already_there": tally.present,
        "ignored": [*sorted(tally.ignored)],
        "left_out": tally.left_out,
        "seconds": round(time.monotonic() - started, 3),
        "error": error,
    }


def run(store: EventStore, files: Files, tally: Tally) -> Read | None:
    """Import all of the files and return their first conversation."""
    first = None
    with output.bar("importing", files.total) as bar:
        for read in files.read():
            first = first or read
            add(store, read, tally)
            tally.ignored.update(read.conversation.ignored)
            bar.at(files.done if files.total is not None else None, f"{tally.streams:,} {read.place.file}")
    return first


def add(store: EventStore, read: Read, tally: Tally) -> None:
    """Append one conversation, in one transaction where it needs more than one append; an empty one leaves no trace."""
    parts = split(read)
    fork = read.conversation.fork
    if not parts and fork is None:
        return
    if len(parts) == 1 and fork is None:
        counts = [_append(store, read, 1, 0, parts[0])]
    else:
        counts, offset = [], 0
        with store.transaction() as transaction:
            if fork is not None:
                counts.append(_fork(transaction, read, fork))
            for number, part in enumerate(parts, 1):
                counts.append(_append(transaction, read, number, offset, part))
                offset += len(part)
    tally.streams += 1
    tally.written += sum(written for written, _ in counts)
    tally.present += sum(present for _, present in counts)


def split(read: Read) -> list[list[Event]]:
    """Split a conversation's events into appends that keep within the limits; always in the same way."""
    parts: list[list[Event]] = []
    size = items = 0
    for index, event in enumerate(read.conversation.events):
        items += event.type == ITEM
        try:
            _, data = codec.encode(event.data, _path(read, index, items - 1))
        except InvalidItem as e:
            raise BadLine(read.place, str(e)) from e
        size += len(data)
        if not parts or len(parts[-1]) == MAX_EVENTS or size > MAX_BATCH_BYTES:
            parts.append([])
            size = len(data)
        parts[-1].append(event)
    return parts


def _path(read: Read, index: int, item: int) -> str:
    """Name the place that an event comes from: a step can become three events, a message many items."""
    if read.form == "events":
        return f"events[{index}].data"
    if read.form == "steps":
        return f"steps[{item}].item"
    return _entry(read, index)


def _entry(read: Read, index: int) -> str:
    return f"{read.form}[{index}]" if read.conversation.one_to_one else f"{read.form}, as item {index}"


def _fork(to: Scope, read: Read, fork: Fork) -> tuple[int, int]:
    """Make the branch that a line goes on with, and count its first event."""
    given, first = read.conversation, fork.first
    chat = to.conversation(given.conversation)
    before = chat.head()
    try:
        to.conversation(fork.parent).fork(
            given.conversation,
            at=fork.at,
            tags=given.tags or None,
            key="import/fork",
            event_id=None if first is None else first.event_id,
            agent=None if first is None else first.agent,
            metadata=None if first is None else first.metadata,
        )
    except (IdempotencyConflict, *_FAULTS_OF_A_LINE) as e:
        raise BadLine(read.place, f"fork: {e}") from e
    return (0, 1) if before else (1, 0)


def _append(to: Scope, read: Read, number: int, offset: int, part: Sequence[Event]) -> tuple[int, int]:
    """Append one part and count the events: written, already there."""
    given = read.conversation
    try:
        chat = to.conversation(given.conversation, context=given.context, tags=given.tags or None)
        done = chat.append_events(part, key=f"import/{number}")
    except IdempotencyConflict as e:
        reason = (
            f"conversation {given.conversation!r} is there already with other content (stored {e.stored}, "
            f"given {e.given}); give it another name, or choose another --tenant"
        )
        raise BadLine(read.place, reason) from e
    except _FAULTS_OF_A_LINE as e:
        text = _INDEX.sub(lambda found: _entry(read, offset + int(found[1])), str(e))
        raise BadLine(read.place, text) from e
    return (0, len(part)) if done.deduplicated else (len(part), 0)
