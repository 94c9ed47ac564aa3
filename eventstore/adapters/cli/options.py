"""The options that every command has: which store, whose data, how to answer, how long to wait."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

import click

from eventstore import EventStore
from eventstore.adapters.cli import hints

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Options:
    """What was given, on the command line or by the environment."""

    url: str | None
    tenant: str | None
    json: bool
    timeout: float

    def open(self) -> EventStore:
        """Open the store that was asked for."""
        return EventStore.open(self.url, tenant=self.tenant, timeout=self.timeout)


def options(command: Callable[Concatenate[Options, P], R]) -> Callable[..., R]:
    """Give a command the common options; it takes them as its first argument."""

    @functools.wraps(command)
    def wrapped(*args: Any, url: str | None, tenant: str | None, json: bool, timeout: float, **kwargs: Any) -> R:
        hints.remember(url, tenant)
        return command(Options(url, tenant, json, timeout), *args, **kwargs)

    for option in (
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            default=30.0,
            show_default=True,
            metavar="SECONDS",
            help="How long one call to the store may take.",
        ),
        click.option(
            "--json",
            is_flag=True,
            help="Answer in JSON: ls, replay, export and tail in JSON lines, every other command in one document.",
        ),
        click.option("--tenant", envvar="CONVSTORE_TENANT", help="Whose data; CONVSTORE_TENANT, else 'default'."),
        click.option(
            "--url",
            envvar="CONVSTORE_URL",
            help="libpq URL of the store; CONVSTORE_URL, else the embedded Postgres.",
        ),
    ):
        wrapped = option(wrapped)
    return wrapped
