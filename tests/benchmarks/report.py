"""The table, for people and for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from .frame import Line, Outcome

HEAD = ["row", "what", "value", "ratio", "low-high", "target", "client CPU", "server CPU", "WAL", "no FPI"]
PLAIN = "{:31}{:>9}{:>7}{:>12}{:>8}{:>12}{:>12}{:>8}{:>8}\n"
LEGEND = "value as the row's title says; CPU in µs, WAL in bytes, each an event; no FPI: WAL without full-page images"


def machine(facts: dict[str, Any]) -> str:
    """Describe the machine in a few lines."""
    settings = ", ".join(f"{name} {value}" for name, value in facts["settings"].items())
    return (
        f"{facts['cores']} cores, {facts['memory_gib']} GiB, {facts['system']}, "
        f"a commit takes {facts['commit_us']} µs; Python {facts['python']}, psycopg {facts['psycopg']}\n"
        f"Postgres {facts['postgres']}, {facts['server']}: {settings}"
    )


def show(facts: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Print a table on a terminal, aligned text elsewhere."""
    rows = [(outcome, line) for outcome in outcomes for line in outcome.lines]
    sys.stdout.write(machine(facts) + "\n\n")
    if sys.stdout.isatty():
        table = Table(*HEAD)
        for column in table.columns[2:]:
            column.justify = "right"
        for index, (outcome, line) in enumerate(rows):
            if not index or rows[index - 1][0] is not outcome:
                table.add_section()
                table.add_row(str(outcome.row.number), f"[bold]{_title(outcome)}[/]")
            colour = {True: "green", False: "red", None: ""}[line.met]
            cells = _cells(line)
            cells[2] = f"[{colour}]{cells[2]}[/]" if colour else cells[2]
            table.add_row("", *cells)
            if line.note:
                table.add_row("", f"  [dim]{line.note}[/]")
        Console().print(table)
        sys.stdout.write(LEGEND + "\n")
        return
    sys.stdout.write(PLAIN.format(*HEAD[1:]))
    for index, (outcome, line) in enumerate(rows):
        if not index or rows[index - 1][0] is not outcome:
            sys.stdout.write(f"\n{outcome.row.number}  {_title(outcome)}\n")
        sys.stdout.write(PLAIN.format(*_cells(line)))
        sys.stdout.write(f"  {line.note}\n" if line.note else "")
    sys.stdout.write(f"\n{LEGEND}\n")


def show_json(facts: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Print the same for machines."""
    whole = {"machine": facts, "rows": [outcome.as_dict() for outcome in outcomes]}
    sys.stdout.write(json.dumps(whole, indent=2, ensure_ascii=False) + "\n")


def _title(outcome: Outcome) -> str:
    row = outcome.row
    note = f"; {row.note}" if row.note else ""
    ratio = "limit ÷ value" if row.ratio == "rate" else "value ÷ limit"
    return f"{row.title} [{row.unit}, {ratio}, {outcome.rounds} rounds{note}]".replace("[", "(").replace("]", ")")


def _cells(line: Line) -> list[str]:
    spread = f"{line.ratio_low:.2f}-{line.ratio_high:.2f}"
    rest = [line.client_cpu, line.server_cpu, line.wal, line.wal_bare]
    shown = ["-" if value is None else f"{value:,.0f}" for value in rest]
    return [line.variant, f"{line.value:,.1f}", f"{line.ratio:.2f}", spread, line.target or "", *shown]
