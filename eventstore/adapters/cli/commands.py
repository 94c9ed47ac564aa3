"""The commands, put together."""

from __future__ import annotations

import click

from eventstore.adapters.cli import (
    auditing,
    branching,
    conversing,
    demo,
    effects,
    following,
    handing,
    importing,
    projecting,
    reading,
    repairing,
    server,
    working,
)
from eventstore.adapters.cli.exits import Commands


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="convstore")
def main() -> None:
    """Store the conversations of AI agents as events, on Postgres.

    Exit codes: 0 done, 1 the answer is no, 2 wrong use or bad input, 3 the store can't be reached.
    """


for command in (
    demo.demo,
    importing.import_files,
    reading.ls,
    branching.tree,
    conversing.replay,
    branching.diff,
    conversing.compact,
    conversing.seen,
    working.tasks,
    working.artifacts,
    effects.effects,
    handing.handoffs,
    handing.schema,
    reading.export,
    following.tail,
    auditing.verify,
    repairing.repair,
    projecting.project,
    server.up,
    server.down,
    server.status,
    server.migrate,
):
    main.add_command(command)
