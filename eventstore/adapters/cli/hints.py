"""Hints that can be copied: the command and its store, named as they were given."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

import click
from click.core import ParameterSource
from psycopg.conninfo import conninfo_to_dict

NAME: Final = "convstore"
_GIVEN: Final = "eventstore.adapters.cli.given"


def called() -> str:
    """Give the command as it was called: its name where the shell finds it by that, else its path."""
    path = Path(sys.argv[0])
    if path.stem != NAME:
        return NAME
    found = shutil.which(path.name)
    if found is not None and path.exists() and Path(found).samefile(path):
        return path.name
    return shlex.quote(sys.argv[0])


def remember(url: str | None, tenant: str | None) -> None:
    """Keep which of these were given on the command line: a call that is hinted at needs them too."""
    ctx = click.get_current_context()
    given = {"url": url, "tenant": tenant}
    for name in given:
        if ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            given[name] = None
    ctx.meta[_GIVEN] = given


def again(ctx: click.Context, command: str) -> str:
    """Give a call of another command on the same store; a password is hidden."""
    given = ctx.meta.get(_GIVEN, {})
    words = [f"{called()} {command}"]
    if given.get("url"):
        words += ["--url", shlex.quote(url_of(given["url"], password="***"))]  # noqa: S106 - hides one
    if given.get("tenant") and not command.startswith(("migrate", "repair")):
        words += ["--tenant", shlex.quote(given["tenant"])]
    return " ".join(words)


def url_of(conninfo: str, *, password: str = "") -> str:
    """Write what libpq connects to as a URL without secrets; ``password`` stands for the one that was given."""
    parts = {key: str(value) for key, value in conninfo_to_dict(conninfo).items()}
    shown = f":{password}" if "password" in parts and password else ""
    parts = {key: value for key, value in parts.items() if "password" not in key}
    user, database, host = parts.pop("user", ""), parts.pop("dbname", ""), parts.get("host", "")
    place = ""
    if host and not set(host) & set("/,@"):  # a folder of sockets or a list of hosts has no place there
        port = parts.pop("port", "")
        place = (f"[{host}]" if ":" in host else quote(host)) + (f":{port}" if port else "")
        del parts["host"]
    login = f"{quote(user, safe='')}{shown}@" if user or shown else ""
    rest = f"?{urlencode(parts, safe='/', quote_via=quote)}" if parts else ""
    return f"postgresql://{login}{place}/{quote(database, safe='')}{rest}"
