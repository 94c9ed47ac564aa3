"""``up``, ``down``, ``status`` and ``migrate``: the embedded server, and the schema of whichever store is meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from eventstore import EventStore, embedded
from eventstore.adapters.cli import exits, hints, output
from eventstore.adapters.cli.options import Options, options
from eventstore.errors import ConvstoreError, EmbeddedUnavailable, StoreUnavailable
from eventstore.log import sql_files
from eventstore.log.schema import migrate as apply
from eventstore.log.sql_files import FileState


@click.command()
@options
def up(to: Options) -> None:
    """Start the embedded server, migrated.

    It stays until down.
    """
    state = embedded.up(timeout=to.timeout)
    if state.url is not None:
        apply(state.url, sql_files.load(), timeout=to.timeout)
    _tell_embedded(to, state)


@click.command()
@click.option("--force", is_flag=True, help="Stop it now, also under its users.")
@options
def down(to: Options, force: bool) -> None:
    """Stop the embedded server.

    Where others use it, it goes with the last of them.
    """
    before = embedded.status()
    state = embedded.down(force=force, timeout=to.timeout)
    if not to.json and not state.running and (before.running or before.pid is not None):
        output.say(f"embedded: stopped; home {state.home}")
        return
    _tell_embedded(to, state)
    if state.running and not to.json:
        output.say("others still use it: it stops with the last of them; --force stops it now")


@click.command()
@options
def status(to: Options) -> int:
    """Show the embedded server and the store.

    The store is the one behind --url or CONVSTORE_URL, else the embedded one. Nothing is started. Exits 3 where the
    store can't be reached.
    """
    server: embedded.Status | EmbeddedUnavailable
    try:
        server = embedded.status()
    except EmbeddedUnavailable as e:
        server = e
    url = to.url
    if url is None and isinstance(server, embedded.Status):
        url = server.url
    store = None if url is None else _state_of(to, url)
    if to.json:
        output.say_json({"embedded": _embedded(server), "store": store})
    else:
        output.say(_embedded_line(server))
        if store is None:
            output.say("store: none configured; set CONVSTORE_URL, or run convstore up")
        else:
            _tell_store(store)
    return exits.UNREACHABLE if store is not None and not store["reachable"] else 0


@click.command()
@click.option("--dry-run", is_flag=True, help="Only print what would be applied.")
@options
def migrate(to: Options, dry_run: bool) -> None:
    """Apply what the database lacks.

    Prints the names of the files.
    """
    told: set[str] = set()

    def notice(text: str) -> None:
        if text not in told:
            told.add(text)
            output.note(f"the database says: {text}")

    with _database(to) as conninfo:
        names = apply(conninfo, sql_files.load(), timeout=to.timeout, dry_run=dry_run, notice=notice)
    if to.json:
        output.say_json({"dry_run": dry_run, "pending" if dry_run else "applied": names})
        return
    for name in names:
        output.say(f"{'would apply' if dry_run else 'applied'} {name}")
    if not names:
        output.say("nothing to apply")


@contextmanager
def _database(to: Options) -> Iterator[str]:
    """Give what to connect to, without the store: that migrates an embedded database by itself."""
    if to.url is None:
        with embedded.start(timeout=to.timeout) as server:
            yield server.url
        return
    given = conninfo_to_dict(to.url)
    given.setdefault("connect_timeout", max(2, round(to.timeout)))
    given.setdefault("application_name", "convstore")
    yield make_conninfo("", **given)


def _state_of(to: Options, url: str) -> dict[str, Any]:
    """Ask a store how it is."""
    wanted = sql_files.load()
    state: dict[str, Any] = {"url": hints.url_of(url), "reachable": True, "error": None, "code_schema": wanted.version}
    state |= {"schema": None, "pending": [], "feed": None, "faults": []}
    try:
        with EventStore.open(url, tenant=to.tenant, timeout=to.timeout) as store:
            files, faults = store.schema(), store.sequence_faults()
            if not faults:
                state["feed"] = _feed(store)
    except StoreUnavailable as e:
        state |= {"reachable": False, "error": e.reason}
    except (ConvstoreError, psycopg.Error) as e:
        state["error"] = " ".join(str(e).split())
    else:
        pending = [each.name for each in files if each.state != "applied"]
        state |= {"schema": _version(files), "pending": pending, "faults": faults}
    return state


def _feed(store: EventStore) -> dict[str, Any] | None:
    """Tell how far the tenant's feed is and who holds it back; None where this login may not read it, or not yet."""
    try:
        feed = store.feed_state()
    except ConvstoreError:
        return None
    blocked = None if feed.blocked_by is None else feed.blocked_by._asdict()
    return {"position": feed.position, "open_writers": feed.open_writers, "blocked_by": blocked}


def _version(files: Sequence[FileState]) -> int:
    """Give the number of the newest migration that the database has; 0 is none."""
    numbers = [each.name[:4] for each in files if each.state in ("applied", "edited", "unknown")]
    return max((int(number) for number in numbers if number.isdigit()), default=0)


def _embedded(server: embedded.Status | EmbeddedUnavailable) -> dict[str, Any]:
    if isinstance(server, EmbeddedUnavailable):
        return {"running": False, "error": str(server)}
    return {
        "running": server.running,
        "pid": server.pid,
        "home": str(server.home),
        "data": str(server.data),
        "url": server.url,
        "version": server.version,
        "users": server.users,
        "kept": server.kept,
    }


def _embedded_line(server: embedded.Status | EmbeddedUnavailable) -> str:
    if isinstance(server, EmbeddedUnavailable):
        return f"embedded: not available: {output.line(str(server))}"
    if not server.running:
        return f"embedded: not running; home {server.home}"
    stays = "stays until down" if server.kept else "goes with its last user"
    return f"embedded: Postgres {server.version} runs, {stays}; home {server.home}\n  {server.url}"


def _tell_embedded(to: Options, server: embedded.Status) -> None:
    if to.json:
        output.say_json(_embedded(server))
    else:
        output.say(_embedded_line(server))


def _tell_store(store: dict[str, Any]) -> None:
    output.say(f"store: {output.line(store['url'])}")
    if store["error"] is not None:
        output.say(f"  {output.line(store['error'])}")
        return
    run = hints.again(click.get_current_context(), "migrate")
    pending = f"pending: {', '.join(store['pending'])}; run: {run}" if store["pending"] else "nothing pending"
    output.say(f"  reachable; schema {store['schema']} of {store['code_schema']}, {pending}")
    if store["feed"] is not None:
        output.say(f"  feed: {_feed_line(store['feed'])}")
    for fault in store["faults"]:
        output.say(f"  {output.line(fault)}; run: {hints.again(click.get_current_context(), 'repair sequence')}")


def _feed_line(feed: dict[str, Any]) -> str:
    at = f"up to position {feed['position']}"
    blocked = feed["blocked_by"]
    if feed["open_writers"] is None:
        return f"{at}; a stand-by, which reads up to the watermark"
    if blocked is None:
        return f"{at}; no writer in flight"
    age = "" if blocked["age_s"] is None else f" for {blocked['age_s']:.1f} s"
    who = "" if blocked["pid"] is None else f" by pid {blocked['pid']}"
    words = f"{at}; {feed['open_writers']} in flight, held back{age}{who} ({blocked['state']})"
    return words + (f": {output.line(blocked['who'])}" if blocked["who"] is not None else "")
