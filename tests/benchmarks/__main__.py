"""Print the table of limits, figures and targets: ``python -m tests.benchmarks``."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec

from . import appending, disk, effects, feeding, forking, handing, projecting, report, talking, tasks
from .frame import measure
from .lab import opened

MODULES = (appending, feeding, forking, talking, tasks, disk, effects, handing, projecting)
ROWS = {row.number: row for module in MODULES for row in module.ROWS}
try:
    from . import peers_sdk
except ModuleNotFoundError:  # the peers come with the extra "bench"
    pass
else:
    if find_spec("asyncpg"):
        ROWS |= {row.number: row for row in peers_sdk.ROWS}


def main() -> int:
    """Run the rows that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, help="how often each variant is measured (5; with --quick 1)")
    parser.add_argument("--rows", default="", help="numbers of rows, such as 1,4,5; all if not given")
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, to see that it runs; the figures mean nothing"
    )
    parser.add_argument("--pg", type=int, metavar="MAJOR", help="the system's Postgres of this version for the server")
    given = parser.parse_args()
    numbers = [int(number) for number in given.rows.split(",") if number] or sorted(ROWS)
    unknown = [number for number in numbers if number not in ROWS]
    if unknown:
        parser.error(f"no row {unknown[0]}; there are {', '.join(map(str, sorted(ROWS)))}")
    rounds = given.rounds or (1 if given.quick else 5)
    with opened(quick=given.quick, major=given.pg) as lab:
        facts = lab.machine()
        outcomes = []
        for number in numbers:
            print(f"row {number}: {ROWS[number].title} …", file=sys.stderr, flush=True)
            outcomes.append(measure(ROWS[number], lab, rounds))
    (report.show_json if given.json else report.show)(facts, outcomes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
