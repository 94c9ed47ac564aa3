"""The benchmark runs: each row is printed, with figures, for people and for machines."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from eventstore import embedded

from .__main__ import ROWS

READS = (8, 9, 11, 12, 13, 14, 31, 32)
ROOT = Path(__file__).parent.parent.parent


def run(server: embedded.Server, *arguments: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "--quick", *arguments],
        cwd=ROOT,
        env=os.environ | {"CONVSTORE_BENCH_URL": server.url_for("postgres")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_each_row_has_a_limit_and_figures(server: embedded.Server) -> None:
    given = json.loads(run(server, "--json"))
    assert [row["row"] for row in given["rows"]] == sorted(ROWS)
    for row in given["rows"]:
        limit, *others = row["lines"]
        assert limit["ratio"] == 1
        assert row["target"] in {line["target"] for line in others}
        for line in row["lines"]:
            assert line["value"] > 0
            assert math.isfinite(line["ratio"])
            assert line["wal"] is None or line["wal"] > 0 or row["row"] in READS or row["row"] > 100


@pytest.mark.parametrize("numbers", [[4], [7, 16]])
def test_the_rows_that_were_asked_for_are_printed(server: embedded.Server, numbers: Sequence[int]) -> None:
    text = run(server, "--rows", ",".join(map(str, numbers)))
    assert [int(n) for n in re.findall(r"^(\d+)  \S", text, re.MULTILINE)] == numbers
    for number in numbers:
        assert ROWS[number].title in text
        assert ROWS[number].wanted() in text
