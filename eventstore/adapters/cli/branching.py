"""``tree`` and ``diff``: the branches of a conversation, and where two of them part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest
from typing import Any

import click

from eventstore import Conversation, EventStore
from eventstore.adapters.cli import exits, output
from eventstore.adapters.cli.envelopes import compare, offered
from eventstore.adapters.cli.options import Options, options
from eventstore.adapters.cli.reading import find, show
from eventstore.adapters.cli.rendering import fields
from eventstore.errors import StreamNotFound
from eventstore.log.events import RecordedEvent
from eventstore.log.rows import StreamInfo

_FOLDED_LINES = 2


@click.command()
@click.argument("stream")
@options
def tree(to: Options, stream: str) -> None:
    """Show a conversation's branches, as a tree.

    From the stream that it descends from, with where each branches off and its number of events.
    """
    with to.open() as store:
        family = store.conversation(stream).family()
    if not family:
        raise StreamNotFound(stream, to.tenant or store.tenant)
    if to.json:
        output.say_json({"root": family[0].name, "streams": [_fields(each) for each in family]})
        return
    for branch, text in drawn(family):
        here = "  ◂" if branch.name == stream else ""
        at = "" if branch.fork_at is None else f" @{branch.fork_at}"
        closed = ", closed" if branch.closed else ""
        output.say(
            (text, "dim"), (output.line(branch.name), "bold"), at, f"  {output.events(branch.head)}{closed}", here
        )


def _fields(stream: StreamInfo) -> dict[str, Any]:
    return {
        "name": stream.name,
        "parent": stream.parent,
        "fork_at": stream.fork_at,
        "events": stream.head,
        "closed": stream.closed,
        "created_at": stream.created_at.isoformat(),
        "last_activity": stream.recorded_at.isoformat(),
    }


def drawn(family: list[StreamInfo]) -> Iterator[tuple[StreamInfo, str]]:
    """Yield each stream with the lines that lead to it, a branch below its parent; the root comes first."""
    branches: dict[str | None, list[StreamInfo]] = {}
    for stream in family[1:]:
        branches.setdefault(stream.parent, []).append(stream)
    waiting = [(family[0], "", "")]
    while waiting:
        stream, text, below = waiting.pop()
        yield stream, text
        children = branches.get(stream.name, [])
        for child in reversed(children):
            last = child is children[-1]
            waiting.append((child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")))


@click.command()
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@click.option("--full", is_flag=True, help="Don't fold long content on a terminal.")
@options
def diff(to: Options, one: str, other: str, full: bool) -> int:
    """Compare two conversations, or two handoffs.

    Conversations are given as STREAM or STREAM@N: what they have in common from the beginning, then what each has
    of its own. Handoffs are given by their ids: the envelopes, field by field. A handoff's id may be given as
    STREAM/ID, which is faster: it is not looked for in all streams then. Exits 1 where the two differ.
    """
    with to.open() as store:
        envelopes = [offered(store, name) for name in (one, other)]
        if all(envelopes):
            return compare(to, one, other, *envelopes)
        sides = [find(store, name, None) for name in (one, other)]
        shared = _shared(*(_owners(store.conversation(name), last) for name, last in sides))
        common, rests = _apart(store, sides, shared)
        if to.json:
            document: dict[str, Any] = {"shared": shared, "common": common}
            for key, (name, last), rest in zip("ab", sides, rests, strict=True):
                document[key] = {"stream": name, "version": last, "events": [fields(event) for event in rest]}
            same = not (document["a"]["events"] or document["b"]["events"])
            output.say_json({"same": same, **document})
            return 0 if same else exits.NO
        same = True
        copied = "" if common == shared else f", {common - shared} of them stored twice with the same content"
        output.say(
            f"in common: {'nothing' if not common else output.events(common) + f', versions 1 to {common}'}{copied}"
        )
        for (name, last), rest in zip(sides, rests, strict=True):
            first = next(rest, None)
            if first is None:
                output.say(f"only in {output.line(name)}@{last}: nothing")
                continue
            same = False
            output.say((f"only in {output.line(name)}@{last}: versions {common + 1} to {last}", "bold"))
            folded = None if full or not output.on_terminal() else _FOLDED_LINES
            show(chain([first], rest), lines=folded)
        return 0 if same else exits.NO


def _owners(chat: Conversation, last: int) -> list[tuple[str, int]]:
    """Give who owns a stream's versions: (owner, its last version here), the first part first."""
    return [(part.stream, min(part.last, last)) for part in chat.lineage() if part.first <= last]


def _shared(one: Iterable[tuple[str, int]], other: Iterable[tuple[str, int]]) -> int:
    """Give up to which version two streams are the same events."""
    shared = 0
    for (stream, upto), (its, its_upto) in zip(one, other, strict=False):
        if stream != its:
            break
        shared = min(upto, its_upto)
        if upto != its_upto:
            break
    return shared


def _apart(
    store: EventStore, sides: list[tuple[str, int]], shared: int
) -> tuple[int, tuple[Iterator[RecordedEvent], Iterator[RecordedEvent]]]:
    """Give up to which version the contents are equal, and what is left of both sides from there."""
    one, other = (store.conversation(name).events(shared + 1, last) for name, last in sides)
    common = shared
    for mine, its in zip_longest(one, other):
        if mine is None or its is None or _content(mine) != _content(its):
            return common, (_again(mine, one), _again(its, other))
        common = mine.version
    return common, (iter(()), iter(()))


def _again(first: RecordedEvent | None, rest: Iterator[RecordedEvent]) -> Iterator[RecordedEvent]:
    return rest if first is None else chain([first], rest)


def _content(event: RecordedEvent) -> tuple[Any, ...]:
    about = (event.subject, event.agent, event.call_id, event.task_id, event.run_id)
    return (event.type, output.dump(event.data), *about)
