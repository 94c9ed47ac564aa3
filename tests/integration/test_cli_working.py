"""``tasks`` and ``artifacts`` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eventstore import Artifact, EventStore
from eventstore.adapters.cli import main
from eventstore.errors import TaskClosed


def run(url: str, *args: str) -> Result:
    return CliRunner().invoke(main, args, env={"CONVSTORE_URL": url, "CONVSTORE_TENANT": None})


@pytest.fixture
def working(store: EventStore) -> EventStore:
    """s: t opened (1), v1 (2), v3 (3), v2 (4), t completed (5); b off s at 2: u opened (4)."""
    chat = store.conversation("s", context="c")
    chat.tasks.open("t", goal="find\nit\x1b[1m", owner="ann", compensates=["k"], agent="boss")
    chat.artifacts.publish(Artifact("file:///r", 1, "report", "d1", "short"), agent="ann", task_id="t")
    branch = chat.fork("b")
    branch.tasks.open("u", goal="go on", follows="t")
    chat.artifacts.publish(Artifact("file:///r", 3, "report", derived_from=[("file:///r", 1), "a talk"]))
    chat.artifacts.publish(Artifact("file:///r", 2, "report"))
    chat.tasks.set_status("t", "completed", reason="found", agent="ann")
    return store


def test_tasks_are_shown_with_their_history(url: str, working: EventStore) -> None:
    for stream in ("s", "b"):
        result = run(url, "tasks", stream)
        assert result.exit_code == 0
        lines = result.stdout.splitlines()
        assert lines[0] == "completed       t  find\\nit\\x1b[1m  owner ann  compensates k"
        assert lines[1].endswith("  submitted  s@1  boss")
        assert lines[2].endswith("  completed  s@5  ann  found")
        assert lines[3] == "submitted       u  go on  follows t"
        assert lines[4].endswith("  submitted  b@4")
        assert len(lines) == 5
        document = json.loads(run(url, "tasks", stream, "--json").stdout)
        assert document["stream"] == stream
        assert [(t["task_id"], t["status"], t["follows"]) for t in document["tasks"]] == [
            ("t", "completed", None),
            ("u", "submitted", "t"),
        ]
        assert [(h["status"], h["stream"], h["version"], h["agent"]) for h in document["tasks"][0]["history"]] == [
            ("submitted", "s", 1, "boss"),
            ("completed", "s", 5, "ann"),
        ]


def test_tasks_as_of_a_version_or_a_moment(url: str, working: EventStore) -> None:
    opened = working.conversation("s").tasks.list()[0].changes[0].recorded_at.isoformat()
    for place, states in (
        (["s@1"], ["submitted"]),
        (["s", "--at", "4"], ["submitted", "submitted"]),
        (["s@5"], ["completed", "submitted"]),
        (["s", "--at", opened], ["submitted"]),
        (["b@3"], ["submitted"]),
    ):
        document = json.loads(run(url, "tasks", *place, "--json").stdout)
        assert [t["status"] for t in document["tasks"]] == states, place


def test_artifacts_are_shown_with_where_they_stand(url: str, working: EventStore) -> None:
    lines = run(url, "artifacts", "s").stdout.splitlines()
    assert lines[0] == "file:///r v1  report  d1"
    assert lines[1].endswith("  s@2  ann  task t")
    assert lines[2] == "    short"
    assert lines[3] == "file:///r v3  report  latest"
    assert lines[5:7] == ["    from file:///r v1", "    from a talk"]
    assert lines[7] == "file:///r v2  report  regression"
    document = json.loads(run(url, "artifacts", "s", "--json").stdout)
    assert [(a["version"], a["latest"], a["regression"]) for a in document["artifacts"]] == [
        (1, False, False),
        (3, True, False),
        (2, False, True),
    ]
    assert document["artifacts"][1]["derived_from"] == [{"uri": "file:///r", "version": 1}, "a talk"]
    for place in (["b"], ["s@2"], ["s", "--at", "2"]):
        document = json.loads(run(url, "artifacts", *place, "--json").stdout)
        assert [(a["version"], a["latest"]) for a in document["artifacts"]] == [(1, True)]


def test_where_there_is_nothing(url: str, store: EventStore) -> None:
    store.conversation("empty").append([1])
    for command in ("tasks", "artifacts"):
        result = run(url, command, "empty")
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"no {command}\n")
        assert json.loads(run(url, command, "empty", "--json").stdout)[command] == []
        assert run(url, command, "nosuch").exit_code == 2
        assert run(url, command, "empty@9").exit_code == 2


def test_what_is_exported_is_imported_again_with_its_tasks_and_artifacts(
    url: str, working: EventStore, tmp_path: Path
) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text(run(url, "export", "--context", "c").stdout)
    for _ in range(2):
        result = run(url, "import", str(file), "--tenant", "copy")
        assert result.exit_code == 0, result.stderr
    copy = working.for_tenant("copy")
    assert copy.verify().ok
    for name in ("s", "b"):
        mine, its = working.conversation(name), copy.conversation(name)
        assert [(t.task_id, t.status, t.goal) for t in its.tasks.list()] == [
            (t.task_id, t.status, t.goal) for t in mine.tasks.list()
        ]
        assert [a.artifact for a in its.artifacts.list()] == [a.artifact for a in mine.artifacts.list()]
    with pytest.raises(TaskClosed):
        copy.conversation("s").append([1], task_id="t")
    opening = {"type": "task.opened", "data": {"task_id": "t", "goal": "other"}}
    file.write_text(json.dumps({"conversation": "s2", "context": "c", "events": [opening]}))
    again = run(url, "import", str(file), "--tenant", "copy")
    assert again.exit_code == 2
    assert "c.jsonl:1" in again.stderr
    assert "task 't'" in again.stderr
