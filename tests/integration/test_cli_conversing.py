"""``replay --as``, ``compact`` and ``seen`` on the command line."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from eventstore import EventStore
from eventstore.adapters.cli import main
from eventstore.compaction import Packing
from eventstore.errors import InvalidItem

HOSTILE = "\x1b[31mred\x1b[0m\r\u202e [bold]x[/] \ud800\n   8  2026-01-01 system\u2028\x07"


def run(url: str, *args: str) -> Result:
    return CliRunner().invoke(main, args, env={"CONVSTORE_URL": url, "CONVSTORE_TENANT": None})


def documents(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def chat(store: EventStore) -> Any:
    """1 to 4 items, 5 summary, 6 compacted (1 to 2), 7 hostile, 8 response to all of that, 9 a retraction inside."""
    made = store.conversation("main")
    made.append([{"role": "user", "content": f"m{n}"} for n in (1, 2, 3, 4)], agent="ann")
    made.compact(lambda items: [{"role": "user", "content": f"{len(items)} messages"}], keep_last=2)
    made.append([{"role": "user", "content": HOSTILE}], agent=HOSTILE.replace("\ud800", ""))
    made.responses.record("r1", receipt=made.model_input(limit=3).receipt, model="m")
    made.retract(versions=[(2, 2)])
    return made


def test_replay_shows_the_transcript_and_the_originals_at_any_version(url: str, chat: Any) -> None:
    def versions(*args: str) -> list[int]:
        return [each["version"] for each in documents(run(url, "replay", *args, "--json"))]

    assert versions("main", "--as", "transcript") == [5, 3, 4, 7]
    assert versions("main", "--as", "originals") == [1, 3, 4, 7]
    assert (
        versions("main", "--as", "transcript", "--at", "4") == versions("main@4", "--as", "transcript") == [1, 2, 3, 4]
    )
    assert versions("main@7", "--as", "originals") == [1, 2, 3, 4, 7]
    assert versions("main", "--as", "events") == list(range(1, 10))
    time = next(iter(chat.events(3))).recorded_at.isoformat()
    assert versions("main", "--as", "transcript", "--at", time) == [1, 2, 3, 4]


def test_a_replayed_summary_says_what_it_stands_for(url: str, chat: Any) -> None:
    first, second = documents(run(url, "replay", "main", "--as", "transcript", "--json"))[:2]
    assert first["item"] == {"role": "user", "content": "2 messages"}
    assert (first["summary"], first["covers"], first["depth"], first["stale"]) == (True, [1, 2], 1, True)
    assert (second["summary"], second["agent"], second["stream"]) == (False, "ann", "main")
    assert "covers" not in second
    text = run(url, "replay", "main", "--as", "transcript").stdout
    assert "summary of 1 to 2, stale" in text
    assert "m1" not in text


@pytest.mark.parametrize("args", [("--as", "transcript"), ("--as", "originals"), ("--as", "events")])
def test_no_content_forges_a_line_or_moves_the_terminal(url: str, chat: Any, args: tuple[str, ...]) -> None:
    result = run(url, "replay", "main", *args)
    assert result.exit_code == 0
    assert not {"\x1b", "\r", "\u202e", "\u2028", "\x07"} & set(result.stdout)
    assert not [line for line in result.stdout.splitlines() if line.startswith("   8  2026-01-01")]
    assert "[bold]x[/]" in result.stdout
    if args[1] != "events":
        assert documents(run(url, "replay", "main", *args, "--json"))[-1]["item"]["content"] == HOSTILE


@pytest.mark.parametrize(
    "args",
    [
        ("replay", "nosuch", "--as", "transcript"),
        ("replay", "main", "--as", "transcript", "--at", "99"),
        ("replay", "main", "--as", "transcript", "--at", "yesterday"),
        ("replay", "main@3", "--as", "transcript", "--at", "3"),
        ("replay", "main", "--as", "nothing"),
        ("compact", "nosuch", "--keep-last", "1"),
        ("compact", "main"),
        ("compact", "main", "--keep-last", "-1"),
        ("seen", "main", "--response", "nosuch"),
        ("seen", "nosuch", "--response", "r1"),
        ("seen", "main"),
    ],
)
def test_bad_input_exits_2_and_prints_nothing(url: str, chat: Any, args: tuple[str, ...]) -> None:
    result = run(url, *args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr


def test_compact_leaves_the_last_and_says_what_it_did(url: str, chat: Any) -> None:
    done = documents(run(url, "compact", "main", "--keep-last", "1", "--json"))[0]
    assert done["covers"] == [3, 4]
    assert done["version"] == chat.head()
    assert done["source_bytes"] > 0
    assert len(chat.transcript()) == 3
    assert documents(run(url, "compact", "main", "--keep-last", "1", "--json")) == [None]
    assert run(url, "compact", "main", "--keep-last", "1").stdout == "nothing to compact\n"
    text = run(url, "compact", "main", "--keep-last", "0", "--merge").stdout
    assert text.startswith("versions 1 to 7 compacted at version ")
    assert len(chat.transcript()) == 1
    assert len(chat.originals()) == 4


def test_seen_renders_what_the_model_was_given(url: str, chat: Any) -> None:
    shown = documents(run(url, "seen", "main", "--response", "r1", "--json"))[0]
    assert shown["same"]
    assert [item["content"] for item in shown["items"]] == ["m3", "m4", HOSTILE]
    raw = run(url, "seen", "main", "--response", "r1", "--raw").stdout_bytes
    assert hashlib.sha256(raw).hexdigest() == shown["receipt"]["sha256"]
    text = run(url, "seen", "main", "--response", "r1")
    assert text.exit_code == 0
    assert "sha256 fits" in text.stdout
    assert not {"\x1b", "\r", "\u202e", "\u2028"} & set(text.stdout)


@pytest.mark.parametrize("form", [(), ("--json",), ("--raw",)])
def test_seen_exits_1_where_the_receipt_does_not_fit(
    url: str, chat: Any, db: psycopg.Connection, form: tuple[str, ...]
) -> None:
    forged = json.dumps({"role": "user", "content": "m3, changed"})
    db.execute("UPDATE events SET data = %s::json WHERE version = 3", [forged])
    result = run(url, "seen", "main", "--response", "r1", *form)
    assert result.exit_code == 1
    if form == ("--json",):
        assert json.loads(result.stdout)["same"] is False
    if form == ():
        assert "NOT what the model was given" in result.stdout


def test_a_compaction_is_of_the_stream_as_it_is_now(url: str, store: EventStore) -> None:
    chat = store.conversation("now")
    chat.append([{"role": "user", "content": str(n)} for n in range(5)])
    refused = run(url, "compact", "now@3", "--keep-last", "1")
    assert refused.exit_code == 2
    assert "without a version" in refused.stderr
    assert chat.head() == 5
    with pytest.raises(InvalidItem, match=r"give one of it: Packing\(\)"):
        chat.compact(Packing)  # type: ignore[arg-type]
