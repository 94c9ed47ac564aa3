"""``replay``, ``compact`` and ``seen``: a conversation for the eye, as it was at any moment."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import click

from eventstore import Conversation, EventStore
from eventstore.adapters.cli import exits, output
from eventstore.adapters.cli.options import Options, options
from eventstore.adapters.cli.reading import FOLDED_LINES, At, find, show
from eventstore.adapters.cli.rendering import fields, item_text
from eventstore.compaction import Packing
from eventstore.conversation.receipts import rendered
from eventstore.errors import HandoffRefused
from eventstore.log.events import ITEM, Entry, Json, RecordedEvent
from projections.pairs import bonds
from projections.transcript import Compaction

FORMS: Final = ("events", "transcript", "originals", "handoff")


@click.command()
@click.argument("stream")
@click.option("--at", type=At(), help="As of this version or moment; STREAM@N says the same.")
@click.option("--as", "form", type=click.Choice(FORMS), default="events", show_default=True, help="What to show.")
@click.option("--handoff", "handoff_id", metavar="ID", help="With --as handoff: what was given at that handoff.")
@click.option("--full", is_flag=True, help="Don't fold long content on a terminal.")
@options
def replay(to: Options, stream: str, at: int | datetime | None, form: str, handoff_id: str | None, full: bool) -> None:
    """Show a conversation as it was at any version or moment.

    Its events as they were recorded, the transcript that a model was shown, the originals that this stands for, or
    what the next agent is given at a handoff.
    """
    if handoff_id is not None and form != "handoff":
        raise click.UsageError("--handoff goes with --as handoff")
    lines = None if full or not output.on_terminal() else FOLDED_LINES
    with to.open() as store:
        name, last = find(store, stream, at)
        chat = store.conversation(name)
        if form == "handoff":
            _handoff(to, chat, last if handoff_id is None else _offered(chat, handoff_id), lines=lines)
            return
        if form == "events":
            events = chat.events(1, last)
            if to.json:
                for event in events:
                    output.say_json(fields(event))
            else:
                show(events, lines=lines)
            return
        shown = chat.shown(at=last)
        entries = shown.entries if form == "transcript" else originals(chat, last)
        recorded = _recorded(chat, entries)
        standing = {
            version: each for each in shown.compactions for piece in each.shown for version in range(*_ends(piece))
        }
        if to.json:
            for entry in entries:
                output.say_json(_document(entry, recorded[entry.version], standing.get(entry.version)))
        else:
            _show_entries(entries, recorded, standing, lines=lines)


def _offered(chat: Conversation, handoff_id: str) -> int:
    for handoff in chat.handoffs.list():
        if handoff.handoff_id == handoff_id:
            return handoff.offered
    raise HandoffRefused("handoff_id", f"{handoff_id!r} was not offered in stream {chat.name!r}")


def _handoff(to: Options, chat: Conversation, at: int, *, lines: int | None) -> None:
    """Show what the next agent is given as of a version."""
    view = chat.handoff_view(at=at)
    if to.json:
        for item, source in zip(view.items, view.provenance, strict=True):
            output.say_json({"stream": source.stream, "version": source.version, "item": item})
        return
    output.say((f"handoff view as of version {at}: {output.items(len(view.items))}, {view.bytes:,} bytes", "bold"))
    for item, source in zip(view.items, view.provenance, strict=True):
        place = (
            f"{source.version:>4}" if source.stream == chat.name else f"{output.line(source.stream)}@{source.version}"
        )
        _show_item(place, item, lines=lines)


def originals(chat: Conversation, at: int) -> list[Entry]:
    """Give the originals with their versions."""
    return chat.shown(at=at, originals=True).entries


def _ends(piece: tuple[int, int]) -> tuple[int, int]:
    return piece[0], piece[1] + 1


def _recorded(chat: Conversation, entries: Sequence[Entry]) -> dict[int, RecordedEvent]:
    """Read the events of entries, for who made them and when."""
    wanted = {entry.version for entry in entries}
    if not wanted:
        return {}
    types = [ITEM, "summary.appended"]
    found = chat.events(min(wanted), max(wanted), types=types)
    return {event.version: event for event in found if event.version in wanted}


def _document(entry: Entry, event: RecordedEvent, compaction: Compaction | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "version": entry.version,
        "stream": event.stream,
        "agent": event.agent,
        "recorded_at": event.recorded_at.isoformat(),
        "summary": entry.summary,
        "item": entry.item,
    }
    if compaction is not None:
        document["covers"] = list(compaction.covers)
        document["depth"] = compaction.depth
        document["stale"] = compaction.stale
    return document


def _show_entries(
    entries: Sequence[Entry],
    recorded: dict[int, RecordedEvent],
    standing: dict[int, Compaction],
    *,
    lines: int | None,
) -> None:
    """Print entries for the eye: who, what, a result with the call that it answers, a summary with what it replaced."""
    answers = {second: first for first, second in bonds(entries) if first is not None and second is not None}
    width = max(20, output.console().width - 6)
    for index, entry in enumerate(entries):
        event = recorded[entry.version]
        compaction = standing.get(entry.version) if entry.summary else None
        about = _about(entry, compaction)
        call = answers.get(index)
        if call is not None and call != index - 1:
            about += f" of {entries[call].version}"
        output.say(
            (f"{entry.version:>4}", "bold"),
            (f"  {output.utc(event.recorded_at)}", "dim"),
            (f"  {output.line(about)}", "yellow" if entry.summary else "cyan"),
            (f"  {output.line(event.agent)}" if event.agent is not None else "", "magenta"),
        )
        text = output.visible(_text(entry.item))
        for row in text.split("\n") if lines is None else output.fold(text, width=width, lines=lines):
            output.say(f"      {row}")


def _about(entry: Entry, compaction: Compaction | None) -> str:
    if compaction is not None:
        first, last = compaction.covers
        depth = "" if compaction.depth == 1 else f", depth {compaction.depth}"
        return f"summary of {first} to {last}{depth}{', stale: some of it was retracted' if compaction.stale else ''}"
    item = entry.item
    if not isinstance(item, dict):
        return "item"
    kind = item.get("type", "message" if "role" in item else None)
    return str(item.get("role") if kind == "message" else kind)


def _text(item: Json) -> str:
    text = item_text(item)
    if text is None:
        return output.compact(item)
    role = f"{item.get('role')}: "
    return text.removeprefix(role)


@click.command()
@click.argument("stream")
@click.option(
    "--keep-last", type=click.IntRange(min=0), required=True, metavar="N", help="Leave the last N as they are."
)
@click.option("--merge", is_flag=True, help="One summary from the beginning on, in place of earlier ones.")
@click.option("--max-bytes", type=click.IntRange(min=1024), default=32_768, show_default=True, help="Of the summary.")
@options
def compact(to: Options, stream: str, keep_last: int, merge: bool, max_bytes: int) -> None:
    """Compact a transcript, by rule and without a model.

    What a summary stands for stays in the log: replay --as originals shows it.
    """
    with to.open() as store:
        name, _ = find(store, stream, None)
        if name != stream:
            raise click.UsageError(f"a compaction is of the stream as it is now: give {name!r}, without a version")
        done = store.conversation(name).compact(Packing(max_bytes=max_bytes), keep_last=keep_last, merge=merge)
    if to.json:
        output.say_json(
            None if done is None else _result(done.covers, done.version, done.source_bytes, done.summary_bytes)
        )
    elif done is None:
        output.say("nothing to compact")
    else:
        first, last = done.covers
        sizes = f"{done.source_bytes:,} bytes to {done.summary_bytes:,}"
        output.say(f"versions {first} to {last} compacted at version {done.version}: {sizes}")


def _result(covers: tuple[int, int], version: int, source: int, summary: int) -> dict[str, Any]:
    return {"covers": list(covers), "version": version, "source_bytes": source, "summary_bytes": summary}


@click.command()
@click.argument("stream")
@click.option("--response", required=True, metavar="R", help="The response's id.")
@click.option("--raw", is_flag=True, help="The bytes that the receipt's SHA-256 is of, and nothing else.")
@click.option("--full", is_flag=True, help="Don't fold long content on a terminal.")
@options
def seen(to: Options, stream: str, response: str, raw: bool, full: bool) -> int:
    """Show what a model was given when it made a recorded response.

    Byte for byte; exits 1 where it is not what the receipt was made for.
    """
    with to.open() as store:
        found = store.conversation(_existing(store, stream)).responses.seen(response)
    receipt = found.receipt
    if raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(rendered(found.items))
    elif to.json:
        output.say_json(
            {
                "response_id": found.response_id,
                "version": found.version,
                "same": found.same,
                "receipt": receipt.as_json(),
                "previous_response_id": found.previous_response_id,
                "conversation_id": found.conversation_id,
                "model": found.model,
                "usage": None if found.usage is None else dict(found.usage),
                "items": found.items,
            }
        )
    else:
        model = "" if found.model is None else f" of {output.line(found.model)}"
        output.say((f"response {output.line(found.response_id)}{model}, recorded at version {found.version}", "bold"))
        chosen = ", ".join(f"{key}={output.compact(value)}" for key, value in receipt.options.items()) or "no options"
        output.say(f"input: {output.line(receipt.stream)}@{receipt.version}, {output.line(chosen)}")
        told = "sha256 fits" if found.same else "NOT what the model was given: the sha256 does not fit"
        output.say((f"{told}: {receipt.sha256}", "green" if found.same else "bold red"))
        _show_items(found.items, lines=None if full or not output.on_terminal() else FOLDED_LINES)
    return 0 if found.same else exits.NO


def _existing(store: EventStore, name: str) -> str:
    return find(store, name, None)[0]


def _show_items(items: Iterable[Json], *, lines: int | None) -> None:
    for number, item in enumerate(items, 1):
        _show_item(f"{number:>4}", item, lines=lines)


def _show_item(place: str, item: Json, *, lines: int | None) -> None:
    width = max(20, output.console().width - 6)
    output.say((place, "bold"), (f"  {output.line(_about(Entry(0, item), None))}", "cyan"))
    text = output.visible(_text(item))
    for row in text.split("\n") if lines is None else output.fold(text, width=width, lines=lines):
        output.say(f"      {row}")
