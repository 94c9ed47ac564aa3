"""``demo``, ``up``, ``down`` and ``status`` on an embedded server of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from eventstore import EventStore, embedded

SCRIPT = str(Path(sys.executable).with_name("convstore"))


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="convstore-test-", dir="/tmp"))
    made.chmod(0o755)  # the server's user has to reach it, also when the tests run as root
    yield made
    embedded.down(made, force=True)
    shutil.rmtree(made, ignore_errors=True)


def run(home: Path, *args: str, code: int = 0, **more: str) -> str:
    env = {key: value for key, value in os.environ.items() if not key.startswith("CONVSTORE_")}
    # As from outside of an activated environment: hints name the command as it has to be called.
    env["PATH"] = os.pathsep.join(d for d in env["PATH"].split(os.pathsep) if Path(d) != Path(SCRIPT).parent)
    env |= {"CONVSTORE_HOME": str(home), **more}
    done = subprocess.run([SCRIPT, *args], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_demo_tells_its_story_again_and_again(home: Path) -> None:
    first = run(home, "demo", CONVSTORE_URL="postgresql://nobody@127.0.0.1:1/none")
    assert "1 stream: 14 events written, 0 already there" in first
    for promise in (
        "deduplicated",
        "refused",
        "0 rows and 0 events left",
        "1 row and 1 event left",
        ", ok",
        "verify finds",
    ):
        assert promise in first
    assert "find_order(" in first
    assert f"look around, with CONVSTORE_URL unset: {SCRIPT} ls, {SCRIPT} replay demo-" in first
    again: dict[str, Any] = json.loads(run(home, "demo", "--json"))
    assert again["ok"]
    assert [step["step"] for step in again["steps"]] == [
        "start",
        "migrate",
        "import",
        "append",
        "repeat",
        "conflict",
        "rollback",
        "commit",
        "fork",
        "go on",
        "repeat",
        "tree",
        "diff",
        "verify",
        "compact",
        "fork",
        "replay",
        "seen",
        "pop",
        "guess",
        "hand over",
        "effect",
        "hand over",
        "hand over",
        "roll back",
        "budget",
        "follow",
        "verify",
        "tamper",
    ]
    assert "nothing new" in again["steps"][2]["text"]
    listed = [json.loads(line)["name"] for line in run(home, "ls", "--json").splitlines()]
    assert len(listed) == 9  # the sample, and of each demo the conversation, its two branches and the case
    assert again["stream"] in listed
    assert run(home, "verify").endswith(", ok\n")


def test_the_demo_takes_recordings_and_a_url_given_to_it(
    home: Path, url: str, db: psycopg.Connection, recordings: Path
) -> None:
    shown = run(home, "demo", "--url", url, str(recordings / "airline.jsonl.gz"))
    assert "100 streams: 2,555 events written" in shown
    assert f"more events; {SCRIPT} replay demo-" in shown
    tables = db.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'demo%'").fetchall()
    assert tables == []
    with EventStore.open(url) as store:
        assert store.verify().ok


def test_a_demo_that_finds_a_change_says_where(home: Path, url: str, db: psycopg.Connection) -> None:
    with EventStore.open(url) as store:
        store.conversation("a").append([{"cents": 10}])
    db.execute("""UPDATE events SET data = '{"cents":11}'""")
    shown = run(home, "demo", "--url", url, code=1)
    assert "not ok: stream a, version 1: " in shown
    assert "{'stream'" not in shown
    assert f"{SCRIPT} ls --url postgresql://" in shown.replace("'", "")


def test_a_file_that_cannot_be_read_starts_no_server(tmp_path: Path) -> None:
    env = {**os.environ, "CONVSTORE_HOME": str(tmp_path / "home")}
    for name in (tmp_path / "nosuch", tmp_path):
        done = subprocess.run([SCRIPT, "demo", str(name)], capture_output=True, text=True, env=env, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"convstore: {name}: ")
    assert not (tmp_path / "home").exists()


def test_up_status_down(home: Path) -> None:
    assert json.loads(run(home, "status", "--json"))["embedded"]["running"] is False
    up = json.loads(run(home, "up", "--json"))
    assert (up["running"], up["kept"]) == (True, True)
    status = json.loads(run(home, "status", "--json"))
    assert status["embedded"]["pid"] == up["pid"]
    assert status["store"]["pending"] == []
    with EventStore.open(up["url"]) as store:
        store.conversation("by-url").append([1])
    with embedded.start(home):
        assert "others still use it" in run(home, "down")
        assert "runs, goes with its last user" in run(home, "status")
        assert "embedded: stopped" in run(home, "down", "--force")
    assert "embedded: not running" in run(home, "down")
    assert "not running" in run(home, "status")
    assert "nothing to apply" in run(home, "migrate")


def test_a_home_that_cannot_be_had_exits_3(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    env = {key: value for key, value in os.environ.items() if not key.startswith("CONVSTORE_")}
    env["CONVSTORE_HOME"] = str(file)
    done = subprocess.run([SCRIPT, "ls"], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("convstore: ")
    assert "Traceback" not in done.stderr
