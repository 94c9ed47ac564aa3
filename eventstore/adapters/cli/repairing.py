"""``repair``: what is done once after a restore or a failover, before the first writer."""

from __future__ import annotations

import dataclasses

import click

from eventstore.adapters.cli import output
from eventstore.adapters.cli.options import Options, options


@click.group()
def repair() -> None:
    """Make a store safe to use after a restore or a failover."""


@repair.command()
@click.option("--dry-run", is_flag=True, help="Do it and undo it; only print what would be done.")
@options
def sequence(to: Options, dry_run: bool) -> None:
    """Let positions jump ahead, and refuse all cursors made before.

    Run it after a restore, a point-in-time recovery, or a failover that may have lost commits, before anyone writes. It
    restores the sequences' properties, sets ids above those that are there, begins a new incarnation of the log, and
    prints each thing it did. Readers are told by CursorInvalid.
    """
    with to.open() as store:
        report = store.repair_sequence(dry_run=dry_run)
    if to.json:
        output.say_json({**dataclasses.asdict(report), "incarnation": str(report.incarnation)})
        return
    for fault in report.faults:
        output.say(f"found: {output.line(fault)}")
    for each in report.done:
        output.say(f"{'would have' if dry_run else 'done'}: {output.line(each)}")
