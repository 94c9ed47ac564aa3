"""``project``: workers, states, builds and parked events from the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
from ledger import fold, view
from test_cli import SCRIPT, environment, error, run

from eventstore import EventStore

TESTS = str(Path(__file__).parent.parent)
LEDGER = ("--also", "ledger:LEDGER")
SHIPPED = {"branches", "compactions", "conversations", "responses"}


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TESTS)


def answer(url: str, *args: str, code: int = 0) -> Any:
    result = run(url, "project", *args, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_run_until_caught_up_ends_by_itself_and_status_has_the_lag(url: str, store: EventStore) -> None:
    chat = store.conversation("a")
    chat.append([1, 2])
    before = answer(url, "status")["projections"]
    assert {row["name"]: (row["state"], row["lag"]) for row in before} == dict.fromkeys(SHIPPED, ("new", 2))
    result = run(url, "project", "run", "--until-caught-up")
    assert (result.exit_code, result.stdout) == (0, "")
    chat.append([3])
    after = answer(url, "status")["projections"]
    assert {row["name"]: (row["state"], row["lag"]) for row in after} == dict.fromkeys(SHIPPED, ("live", 1))
    assert all(row["lag_seconds"] > 0 for row in after)
    done = answer(url, "run", "--until-caught-up", "--only", "branches")["projections"]
    assert [(row["name"], row["lag"], row["position"]) for row in done] == [("branches", 0, 3)]
    text = run(url, "project", "status").stdout
    assert "branches 1: live, at position 3, 0 events behind" in text
    assert "conversations 1: live, at position 2, 1 event behind" in text


def test_run_goes_on_until_sigterm_and_an_interrupt_is_one(url: str, store: EventStore) -> None:
    store.conversation("a").append([1])
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        with subprocess.Popen(
            [SCRIPT, "project", "run", *LEDGER],
            env=environment(url, PYTHONPATH=TESTS),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                store.wait_for("ledger", store.conversation("a").append([2]).position, timeout=60)
                process.send_signal(number)
                out, err = process.communicate(timeout=60)
            finally:
                process.kill()
        assert (process.returncode, out) == (code, "")
        assert err.startswith("running conversations, branches, responses, compactions, ledger; SIGTERM ends it")
        assert "Traceback" not in err


def test_parked_events_are_shown_and_replayed(url: str, store: EventStore, db: psycopg.Connection) -> None:
    store.conversation("a").append([1, {"poison": True}, 2, 3])
    ran = run(url, "project", "run", "--until-caught-up", *LEDGER)
    assert ran.exit_code == 0
    assert "ledger: 1 event parked; see: convstore project parked" in ran.stderr
    (row,) = answer(url, "parked")["parked"]
    assert (row["projection"], row["position"], row["stream"], row["held"]) == ("ledger", 2, "a", 2)
    text = run(url, "project", "parked", "ledger").stdout
    assert "ledger 1: default a 2 (item.appended), position 2, 2 events behind it" in text
    assert "tried 1 times: ValueError: poison at 2" in text
    (row,) = answer(url, "replay-parked", "ledger", *LEDGER, code=1)["replayed"]
    assert (row["applied"], row["error"]) == (0, "poison at 2")
    os.environ["LEDGER_MENDED"] = "1"
    try:
        done = run(url, "project", "replay-parked", "ledger", *LEDGER)
    finally:
        del os.environ["LEDGER_MENDED"]
    assert (done.exit_code, done.stdout) == (0, "position 2: applied 3 events\n")
    assert view(db) == fold(store)
    assert run(url, "project", "parked").stdout == "nothing is parked\n"


def test_rebuild_shows_the_new_build_or_says_why_not(url: str, store: EventStore, db: psycopg.Connection) -> None:
    store.conversation("a").append([1, 2])
    assert run(url, "project", "run", "--until-caught-up", *LEDGER).exit_code == 0
    begun = answer(url, "rebuild", "ledger", *LEDGER, "--no-wait")
    assert begun["state"] == "building"
    states = {row["state"] for row in answer(url, "status", *LEDGER)["projections"] if row["name"] == "ledger"}
    assert states == {"live", "building"}
    done = run(url, "project", "rebuild", "ledger", *LEDGER)
    assert (done.exit_code, done.stdout) == (0, "ledger: built from 2 events, and shown\n")
    assert view(db) == fold(store)
    done = run(url, "project", "rebuild", "conversations")
    assert done.exit_code == 0
    store.conversation("a").append([{"poison": True}])
    os.environ["LEDGER_MENDED"] = "1"
    run(url, "project", "run", "--until-caught-up", *LEDGER)
    del os.environ["LEDGER_MENDED"]
    done = run(url, "project", "rebuild", "ledger", *LEDGER)
    assert done.exit_code == 1
    assert "of the events that the live build holds 1 are parked" in done.stdout
    assert run(url, "project", "rebuild", "ledger", *LEDGER, "--accept-parked").exit_code == 0


def test_what_has_stopped_exits_1(url: str, store: EventStore) -> None:
    store.conversation("a").append([1])
    assert run(url, "project", "run", "--until-caught-up").exit_code == 0
    store.repair_sequence()
    result = run(url, "project", "run", "--until-caught-up", "--only", "branches")
    assert result.exit_code == 1
    assert "another life" in result.stderr
    assert "convstore project rebuild branches" in result.stderr
    assert run(url, "project", "status").exit_code == 1
    assert run(url, "project", "rebuild", "branches").exit_code == 0
    rows = answer(url, "status")["projections"]
    assert {row["name"]: row["lag"] is None for row in rows} == {name: name != "branches" for name in SHIPPED}


def test_an_installed_package_adds_its_own(
    url: str, store: EventStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "mypkg-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: mypkg\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[convstore.projections]\nany_name = ledger:Ledger\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    store.conversation("a").append([1])
    assert run(url, "project", "run", "--until-caught-up").exit_code == 0
    assert {row["name"]: row["lag"] for row in answer(url, "status")["projections"]} == dict.fromkeys(
        SHIPPED | {"ledger"}, 0
    )


def test_what_leads_to_no_projection_is_named(url: str) -> None:
    assert "there are conversations, branches" in error(run(url, "project", "rebuild", "nosuch"), 2)
    assert "give package.module:attribute" in error(run(url, "project", "run", "--also", "ledger"), 2)
    assert "No module named 'nosuch'" in error(run(url, "project", "run", "--also", "nosuch:X"), 2)
    assert "no attribute 'X'" in error(run(url, "project", "run", "--also", "ledger:X"), 2)
    assert "ledger:fold: is function" in error(run(url, "project", "run", "--also", "ledger:fold"), 2)
    twice = run(url, "project", "run", *LEDGER, "--also", "ledger:Ledger", "--until-caught-up")
    assert "is there twice" in error(twice, 2)
