"""``demo``: what the store promises, shown on a recorded conversation. Every figure that is printed was measured."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
import psycopg
from click.core import ParameterSource
from psycopg import sql

from eventstore import Conversation, EventStore, embedded
from eventstore.adapters.cli import demo_branches, demo_handoffs, exits, hints, output
from eventstore.adapters.cli.auditing import place
from eventstore.adapters.cli.demo_story import Follower, Story
from eventstore.adapters.cli.importing import Tally, run, split
from eventstore.adapters.cli.lines import Files
from eventstore.adapters.cli.options import Options, options
from eventstore.adapters.cli.reading import show
from eventstore.errors import InvalidItem, VersionConflict
from eventstore.log.events import ITEM, Json

_Connection: TypeAlias = psycopg.Connection[Any]

SAMPLE: Final = Path(__file__).with_name("sample.jsonl")
_SHOWN_EVENTS: Final = 30
_REFUND: Final = {"type": "message", "role": "system", "content": "refund booked: 6450 cents"}


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE...]")
@options
def demo(to: Options, files: tuple[str, ...]) -> int:
    """Show what the store does, in a minute.

    On the embedded Postgres, with a recorded conversation. With FILEs, on those: they are imported, and their first
    conversation is used. CONVSTORE_URL is left alone; only a --url given here is used instead of the embedded server.
    Safe to run again.
    """
    _check(files)
    story = Story(quiet=to.json)
    with _place(to, story) as (url, store):
        tally = Tally()
        story.begin()
        first = run(store, Files(files or [str(SAMPLE)]), tally)
        story.tell("import", str(tally))
        parts = split(first) if first is not None else []
        items = [event.data for event in (parts[0] if parts else []) if event.type == ITEM]
        if not items:
            raise InvalidItem("items", "the first conversation has none; give a file whose first one has")
        number = uuid.uuid4().hex[:8]
        chat = store.conversation(f"demo-{number}", tags={"made-by": "convstore demo"})
        follower = Follower(store)
        _append(story, chat, items)
        with psycopg.connect(url) as conn:
            _with_business(story, store, chat, conn, f"demo_refunds_{number}")
            branch = demo_branches.fork(story, store, chat)
            more = demo_branches.compact(story, chat)
            case = demo_handoffs.refund(story, store, number)
            follower.tell(story, store, [*demo_branches.streams(chat, branch, more), case.name])
            _verify(story, store)
            if not to.json:
                _replay(chat)
            story.begin()
            _tamper(story, store, chat, conn)
    if to.json:
        output.say_json({"ok": story.ok, "stream": chat.name, "steps": story.steps})
    else:
        unset = "" if to.url is None or _at_url() else ", with CONVSTORE_URL unset"
        looks = ("ls", f"replay {chat.name}", f"tree {chat.name}", "verify")
        output.say(f"look around{unset}: {', '.join(map(_again, looks))}")
    return 0 if story.ok else exits.NO


def _check(files: Sequence[str]) -> None:
    """Refuse a file that can't be read before a server is started for it."""
    for path in (Path(name) for name in files if name != "-"):
        if path.is_file() or not path.exists() or path.is_dir():  # opening a pipe would take its writer away
            path.open("rb").close()


def _at_url() -> bool:
    return click.get_current_context().get_parameter_source("url") is ParameterSource.COMMANDLINE


def _again(command: str) -> str:
    return hints.again(click.get_current_context(), command)


@contextmanager
def _place(to: Options, story: Story) -> Iterator[tuple[str, EventStore]]:
    """Give the database to play in: the embedded one, unless --url was given on the command line."""
    if to.url is not None and _at_url():
        with to.open() as store:
            story.tell("connect", "to the store behind --url")
            yield to.url, store
        return
    with embedded.start(timeout=max(to.timeout, 60.0)) as server:
        story.tell("start", f"Postgres {server.version}, embedded in {server.home}")
        with EventStore.open(server.url, tenant=to.tenant, timeout=to.timeout) as store:
            applied = store.migrate()
            story.tell("migrate", f"{len(applied)} files applied" if applied else "nothing to apply")
            yield server.url, store


def _append(story: Story, chat: Conversation, items: Sequence[Json]) -> None:
    done = chat.append(items, key="demo")
    story.tell("append", f"{output.events(len(items))} to {chat.name}: versions {done.first_version} to {chat.head()}")
    again = chat.append(items, key="demo")
    head = chat.head()
    text = f"the same call with the same key: {'deduplicated' if again.deduplicated else 'written twice'}, head {head}"
    story.tell("repeat", text, ok=again.deduplicated and head == len(items))
    try:
        chat.append(_REFUND, expected=head + 1)
    except VersionConflict as e:
        story.tell("conflict", f"an append that expects version {head + 1} is refused: {e}")
    else:
        story.tell("conflict", f"an append that expects version {head + 1} was not refused", ok=False)


def _with_business(story: Story, store: EventStore, chat: Conversation, conn: _Connection, table: str) -> None:
    """Append inside the caller's transaction, beside a row of a table of the caller."""
    name = sql.Identifier(table)
    conn.execute(sql.SQL("CREATE TABLE {} (order_no text, cents integer)").format(name))
    conn.commit()
    story.begin()
    try:
        for step, end, rows_after in (("rollback", conn.rollback, 0), ("commit", conn.commit, 1)):
            before = chat.head()
            conn.execute(sql.SQL("INSERT INTO {} VALUES ('K-20417', 6450)").format(name))
            store.using(conn).conversation(chat.name).append(_REFUND)
            end()
            counted = conn.execute(sql.SQL("SELECT count(*) FROM {}").format(name)).fetchone()
            conn.commit()
            rows, added = (counted[0] if counted else -1), chat.head() - before
            left = f"{rows} row{'s' * (rows != 1)} and {output.events(added)} left"
            text = f"a business table's row and an event in one transaction, then {step}: {left}"
            story.tell(step, text, ok=rows == added == rows_after)
    finally:
        conn.rollback()
        conn.execute(sql.SQL("DROP TABLE {}").format(name))
        conn.commit()


def _verify(story: Story, store: EventStore) -> None:
    story.begin()
    report = store.verify()
    counts = f"{output.streams(report.streams)}, {output.events(report.checked)}"
    bad = report.first_bad
    found = "ok" if bad is None else f"not ok: {place(bad)}"
    story.tell("verify", f"{counts}, {found}", ok=report.ok)


def _replay(chat: Conversation) -> None:
    head = chat.head()
    output.say(f"convstore replay {chat.name}")
    show(islice(chat.events(), _SHOWN_EVENTS), lines=2)
    if head > _SHOWN_EVENTS:
        output.say(f"      … {head - _SHOWN_EVENTS:,} more events; {_again(f'replay {chat.name}')} shows all")


def _tamper(story: Story, store: EventStore, chat: Conversation, conn: _Connection) -> None:
    """Change one byte as a superuser could, verify in the same transaction, and roll back."""
    version = (chat.head() + 1) // 2
    event = next(chat.events(version, version))
    row = conn.execute("SELECT data::text FROM convstore.events WHERE position = %s", [event.position]).fetchone()
    changed = _one_byte_off(row[0]) if row else None
    updated = conn.execute(
        "UPDATE convstore.events SET data = %s::json WHERE position = %s", [changed, event.position]
    ).rowcount
    story.begin()
    report = store.using(conn).verify(chat.name)
    conn.rollback()
    bad = report.first_bad
    found = f"verify finds version {bad.version}: {bad.reason}" if bad else "verify did not find it"
    text = f"one byte of version {version} changed by UPDATE: {found}; rolled back"
    story.tell("tamper", text, ok=updated == 1 and bad is not None and bad.version == version)


def _one_byte_off(text: str) -> str | None:
    """Change the first letter or digit that leaves JSON with another value."""
    for index, character in enumerate(text):
        if character.isascii() and character.isalnum():
            changed = text[:index] + ("x" if character.isalpha() and character != "x" else "1") + text[index + 1 :]
            with suppress(ValueError):
                if json.loads(changed) != json.loads(text):
                    return changed
    return None
