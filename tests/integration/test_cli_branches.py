"""Branches on the command line: the tree, the difference of two, and an export that brings its ancestry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eventstore import Event, EventStore
from eventstore.adapters.cli import main


def run(url: str, *args: str) -> Result:
    return CliRunner().invoke(main, args, env={"CONVSTORE_URL": url, "CONVSTORE_TENANT": None})


@pytest.fixture
def family(url: str, store: EventStore) -> EventStore:
    """main 1..6; plan-b off main at 4, to 7; plan-c off plan-b at 6, to 7; early off main at 0."""
    chat = store.conversation("main", context="trip", tags={"channel": "web"})
    for n in range(1, 7):
        chat.append({"role": "user", "content": f"m{n}"}, agent="user")
    plan_b = chat.fork("plan-b", at=4, agent="planner", metadata={"why": "cheaper"})
    plan_b.append([{"role": "user", "content": "b6"}, {"role": "user", "content": "b7"}])
    plan_b.fork("plan-c", at=6, tags={"third": "plan"})
    chat.fork("early", at=0).append_events([Event(type="x.note", data={"n": 1})])
    return store


def test_tree_shows_every_branch_below_its_parent(url: str, family: EventStore) -> None:
    for name in ("main", "plan-c"):
        result = run(url, "tree", name)
        assert result.exit_code == 0
        lines = [line.removesuffix("  ◂") for line in result.stdout.splitlines()]
        assert lines == [
            "main  6 events",
            "├─ early @0  2 events",
            "└─ plan-b @4  7 events",
            "   └─ plan-c @6  7 events",
        ]
        marked = [line for line in result.stdout.splitlines() if line.endswith("◂")]
        assert len(marked) == 1
        assert name in marked[0]
    document = json.loads(run(url, "tree", "plan-b", "--json").stdout)
    assert document["root"] == "main"
    assert {s["name"]: (s["parent"], s["fork_at"], s["events"]) for s in document["streams"]} == {
        "main": (None, None, 6),
        "early": ("main", 0, 2),
        "plan-b": ("main", 4, 7),
        "plan-c": ("plan-b", 6, 7),
    }
    assert run(url, "tree", "nosuch").exit_code == 2


def test_ls_names_the_parent(url: str, family: EventStore) -> None:
    rows = [line.split("\t") for line in run(url, "ls").stdout.splitlines()]
    assert {row[0]: row[-1] for row in rows} == {
        "main": "",
        "early": "main@0",
        "plan-b": "main@4",
        "plan-c": "plan-b@6",
    }
    shown = [json.loads(line) for line in run(url, "ls", "--json").stdout.splitlines()]
    assert {each["name"]: (each["parent"], each["fork_at"]) for each in shown}["plan-c"] == ("plan-b", 6)


def test_replay_goes_through_the_parents_and_stops_at_a_version(url: str, family: EventStore) -> None:
    shown = [json.loads(line) for line in run(url, "replay", "plan-c@5", "--json").stdout.splitlines()]
    assert [(e["stream"], e["version"]) for e in shown] == [("main", v) for v in (1, 2, 3, 4)] + [("plan-b", 5)]
    assert "there is none at 8" in run(url, "replay", "plan-c@8").stderr


@pytest.mark.parametrize(
    ("one", "other", "common", "mine", "its"),
    [
        ("main", "plan-b", 4, [5, 6], [5, 6, 7]),
        ("plan-b", "main", 4, [5, 6, 7], [5, 6]),
        ("plan-b", "plan-c", 6, [7], [7]),
        ("main", "plan-c", 4, [5, 6], [5, 6, 7]),
        ("main", "main@2", 2, [3, 4, 5, 6], []),
        ("plan-b@3", "main@3", 3, [], []),
        ("plan-b", "plan-b", 7, [], []),
        ("main", "early", 0, [1, 2, 3, 4, 5, 6], [1, 2]),
    ],
)
def test_diff_tells_the_common_part_and_both_sides(
    url: str, family: EventStore, one: str, other: str, common: int, mine: list[int], its: list[int]
) -> None:
    result = run(url, "diff", one, other, "--json")
    document = json.loads(result.stdout)
    assert document["common"] == document["shared"] == common
    assert [e["version"] for e in document["a"]["events"]] == mine
    assert [e["version"] for e in document["b"]["events"]] == its
    same = not (mine or its)
    assert document["same"] is same
    assert result.exit_code == (0 if same else 1)
    text = run(url, "diff", one, other)
    assert text.exit_code == result.exit_code
    assert text.stdout.startswith(f"in common: {f'{common} events, versions 1 to {common}' if common else 'nothing'}\n")


def test_diff_of_a_copy_finds_the_first_other_content(url: str, family: EventStore) -> None:
    copy = family.conversation("copy")
    for n in range(1, 4):
        copy.append({"role": "user", "content": f"m{n}"}, agent="user")
    copy.append({"role": "user", "content": "m4"}, agent="another")
    document = json.loads(run(url, "diff", "main", "copy", "--json").stdout)
    assert (document["shared"], document["common"]) == (0, 3)
    assert "3 of them stored twice" in run(url, "diff", "main", "copy").stdout


def test_an_export_brings_the_ancestry_and_imports_as_it_was(
    url: str, family: EventStore, tmp_path: Path, make_database: object
) -> None:
    out = run(url, "export", "plan-c")
    assert out.exit_code == 0
    lines = [json.loads(line) for line in out.stdout.splitlines()]
    assert [(line["conversation"], line.get("fork")) for line in lines] == [
        ("main", None),
        ("plan-b", {"parent": "main", "at": 4}),
        ("plan-c", {"parent": "plan-b", "at": 6}),
    ]
    bundle = tmp_path / "bundle.jsonl"
    bundle.write_text(out.stdout)
    there = family.for_tenant("other")
    into = ["--tenant", "other"]
    assert run(url, "import", str(bundle), *into).exit_code == 0
    for name in ("main", "plan-b", "plan-c"):
        old = [_told(e) for e in family.conversation(name).events()]
        assert [_told(e) for e in there.conversation(name).events()] == old
        assert there.verify(name).ok
    assert [s.tags for s in there.conversation("plan-c").family() if s.name == "plan-c"] == [{"third": "plan"}]
    for target in (into, []):
        again = run(url, "import", str(bundle), "--json", *target)
        assert json.loads(again.stdout)["events_written"] == 0, "an import of what is there changed something"
    assert run(url, "export", "plan-c", *into).stdout.count("\n") == 3


def _told(event: object) -> tuple[object, ...]:
    names = ("stream", "version", "event_id", "type", "data", "metadata", "agent", "subject")
    return tuple(getattr(event, name) for name in names)


def test_a_context_is_exported_parents_first(url: str, family: EventStore) -> None:
    lines = [json.loads(line) for line in run(url, "export", "--context", "trip").stdout.splitlines()]
    order = [line["conversation"] for line in lines]
    assert sorted(order) == ["early", "main", "plan-b", "plan-c"]
    assert order.index("main") < order.index("early")
    assert order.index("main") < order.index("plan-b") < order.index("plan-c")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"conversation": "z", "fork": {"parent": "nosuch", "at": 1}, "events": []}, "no stream 'nosuch'"),
        ({"conversation": "z", "fork": {"parent": "main", "at": 7}, "events": []}, "versions 1 to 6"),
        (
            {"conversation": "plan-b", "fork": {"parent": "main", "at": 3}, "events": []},
            "branches off 'main' at version 4",
        ),
        ({"conversation": "z", "fork": {"parent": "main"}, "events": []}, '"at": version'),
        ({"conversation": "z", "fork": {"parent": "main", "at": -1}, "events": []}, "fork.at"),
        (
            {"conversation": "z", "events": [{"type": "stream.forked", "data": {"parent": "main", "at": 1}}]},
            "needs parent and at",
        ),
        (
            {
                "conversation": "z",
                "fork": {"parent": "main", "at": 1},
                "events": [{"type": "x.a", "data": 1}, {"type": "stream.forked", "data": {"parent": "main", "at": 1}}],
            },
            "only once",
        ),
    ],
)
def test_a_bad_fork_is_refused_by_name(url: str, family: EventStore, line: object, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(json.dumps(line))
    result = run(url, "import", str(file))
    assert result.exit_code == 2
    assert reason in result.stderr
    assert family.conversation("z").head() == 0
