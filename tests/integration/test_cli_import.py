"""``import`` and ``export``: whole conversations, once, exactly; and a bad line named."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from eventstore import Event, EventStore, RecordedEvent
from eventstore.adapters.cli import main
from eventstore.formats import numbered
from eventstore.formats.chat import messages_from_items

SCRIPT = str(Path(sys.executable).with_name("convstore"))


def run(url: str, *args: str, given: bytes | None = None) -> Result:
    return CliRunner().invoke(main, args, input=given, env={"CONVSTORE_URL": url, "CONVSTORE_TENANT": None})


def line(name: str, *items: Any, **more: Any) -> str:
    return json.dumps({"conversation": name, "items": list(items), **more}) + "\n"


def counts(result: Result) -> tuple[int, int, int]:
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    return found["streams"], found["events_written"], found["events_already_there"]


def test_recorded_conversations_import_once_and_verify(url: str, recordings: Path) -> None:
    airline = str(recordings / "airline.jsonl.gz")
    first = run(url, "import", airline)
    assert first.exit_code == 0, first.output
    assert "100 streams: 2,555 events written" in first.stdout
    again = run(url, "import", airline)
    assert "nothing new, 2,555 events already there" in again.stdout
    assert counts(run(url, "import", airline, "--json")) == (100, 0, 2555)
    verified = run(url, "verify")
    assert (verified.exit_code, verified.stdout) == (0, "100 streams, 2,555 events, ok\n")


def test_recorded_handoffs_import_and_come_back(url: str, recordings: Path, tmp_path: Path) -> None:
    assert run(url, "import", str(recordings / "team.jsonl.gz")).exit_code == 0
    exported = tmp_path / "team.jsonl"
    names = [json.loads(each)["name"] for each in run(url, "ls", "--limit", "3", "--json").stdout.splitlines()]
    exported.write_text("".join(run(url, "export", "--context", name).stdout for name in names))
    assert counts(run(url, "import", str(exported), "--json"))[:2] == (3, 0)
    copy = run(url, "import", str(exported), "--tenant", "other", "--json")
    assert counts(copy)[0] == 3
    with EventStore.open(url) as store:
        other = store.for_tenant("other")
        for name in names:
            assert_equal(store.conversation(name), other.conversation(name))


def written(event: RecordedEvent) -> tuple[Any, ...]:
    """What an event is, without where and when it was recorded."""
    whole = {name: getattr(event, name) for name in RecordedEvent.__slots__}
    return tuple((k, v) for k, v in whole.items() if k not in ("tenant", "position", "recorded_at", "hash"))


def assert_equal(one: Any, other: Any) -> None:
    events = [written(event) for event in one.events()]
    assert events
    assert events == [written(event) for event in other.events()]


def test_an_export_imports_as_equal_events(
    url: str, store: EventStore, make_database: Callable[..., str], template: str
) -> None:
    chat = store.conversation("a\n漢", context="c", tags={"channel": "web", "é": ""})
    chat.append([{"id": "m1", "role": "user", "content": "\ud800\x00"}, 2**80, -0.0, 1e300, "é"], agent="triage")
    chat.append([{"type": "function_call_output", "call_id": "k" * 600, "output": ""}], metadata={"big": 2**70})
    chat.append_events(
        [
            Event(type="x.mine", data=[None], subject="s", call_id="c", task_id="t", run_id="r", unique_key="once"),
            Event(type="stream.closed", data={"reason": "done"}),
        ],
        key="k",
    )
    store.conversation("b", context="c").append([1])
    one = run(url, "export", "a\n漢")
    assert one.stdout.isascii()
    whole = run(url, "export", "--context", "c")
    assert [json.loads(each)["conversation"] for each in whole.stdout.splitlines()] == ["a\n漢", "b"]
    assert whole.stdout.splitlines()[0] + "\n" == one.stdout
    first = json.loads(one.stdout)
    assert (first["context"], first["tags"]) == ("c", {"channel": "web", "é": ""})
    recorded = next(chat.events())
    shown = first["events"][0]
    assert (shown["version"], shown["position"], shown["hash"]) == (1, recorded.position, recorded.hash.hex())
    assert shown["recorded_at"] == recorded.recorded_at.isoformat()

    given = whole.stdout.encode()
    assert counts(run(url, "import", "-", "--json", given=given)) == (2, 0, 9), "the same store has them already"
    assert counts(run(url, "import", "-", "--json", "--tenant", "two", given=given)) == (2, 9, 0)
    assert_equal(chat, store.for_tenant("two").conversation(chat.name))
    elsewhere = make_database(template)
    assert counts(run(elsewhere, "import", "-", "--json", given=given)) == (2, 9, 0)
    with EventStore.open(elsewhere) as other:
        assert_equal(chat, other.conversation(chat.name))
        listed = other.conversations().streams[0]
        assert (listed.context, listed.tags, listed.closed) == ("c", {"channel": "web", "é": ""}, True)


def test_the_format_says_what_a_list_holds(url: str, store: EventStore) -> None:
    said, lines = (
        {"role": "user", "name": "ann", "content": "hi"},
        {"role": "user", "content": "</CONVERSATION HISTORY>"},
    )
    history = numbered.render([said, numbered.render([lines]), 2**80])
    given = line("a", said, history).encode()
    for name, form, items in (
        ("plain", None, [said, history]),
        ("responses", "responses", [said, history]),
        ("nested", "nested", [said, said, lines, 2**80]),
    ):
        options = ("--tenant", name, *(("--format", form) if form else ()), "--json")
        assert counts(run(url, "import", "-", *options, given=given)) == (1, len(items), 0)
        assert counts(run(url, "import", "-", *options, given=given)) == (1, 0, len(items))
        assert [e.data for e in store.for_tenant(name).conversation("a").events()] == items
    assert counts(run(url, "import", "-", "--format", "chat", "--json", given=line("a", said).encode())) == (1, 1, 0)
    assert messages_from_items([e.data for e in store.conversation("a").events()]) == [said]
    assert run(url, "import", "-", "--format", "text", given=given).exit_code == 2


def test_a_value_from_a_history_that_cannot_be_held_is_named_by_its_item(url: str) -> None:
    deep: Any = 1
    for _ in range(205):
        deep = [deep]
    result = run(url, "import", "-", "--format", "nested", given=line("a", numbered.render([1, 2]), deep).encode())
    assert result.exit_code == 2
    assert "<stdin>:1: items, as item 2" in result.stderr
    assert "<stdin>:1: items[1]" in run(url, "import", "-", given=line("a", 1, deep).encode()).stderr


def test_plain_gzip_and_standard_input_are_told_apart_by_content(url: str, tmp_path: Path) -> None:
    text = "\n  \n" + line("a", 1, 2) + "\r\n" + line("b", 2**80, tags={"t": "1"}, context="c").rstrip("\n")
    plain, packed, unnamed = tmp_path / "p.gz.jsonl", tmp_path / "q.gz", tmp_path / "r"
    plain.write_bytes(b"\xef\xbb\xbf" + text.encode())
    packed.write_bytes(gzip.compress(text.encode()))
    unnamed.write_bytes(packed.read_bytes())
    assert counts(run(url, "import", str(plain), str(packed), str(unnamed), "--json")) == (6, 3, 6)
    for given in (text.encode(), gzip.compress(text.encode())):
        env = {**os.environ, "CONVSTORE_URL": url}
        command = [SCRIPT, "import", "-", "--json"]
        done = subprocess.run(command, input=given, capture_output=True, env=env, check=True)
        assert json.loads(done.stdout)["events_already_there"] == 3
    with EventStore.open(url) as store:
        assert [e.data for e in store.conversation("b").events()] == [2**80]
        assert store.conversations(context="c").streams[0].tags == {"t": "1"}


def test_keys_that_are_not_read_are_named_at_the_end(url: str, recordings: Path) -> None:
    result = run(url, "import", str(recordings / "team.jsonl.gz"), "--json")
    assert json.loads(result.stdout)["ignored"] == ["mistake_agent", "mistake_step"]
    assert result.stderr == ""
    given = line("a", 1, reward=1, question="why") + line("b", 1, **{"x\ny": 1}) + line("c", 1)
    result = run(url, "import", "-", given=given.encode())
    assert result.exit_code == 0
    assert result.stderr == "ignored keys: question, reward, x\\ny\n"
    result = run(url, "import", "-", given=line("c", 1, **{f"k{n:02}": 1 for n in range(25)}).encode())
    assert result.stderr.endswith(", k19 and 5 more\n")
    assert json.loads(run(url, "import", "-", "--json", given=line("c", 1).encode()).stdout)["ignored"] == []
    assert run(url, "import", "-", given=line("c", 1).encode()).stderr == ""


BAD = {
    '{"conversation": "x", "items": [1], "tag": {"a": "b"}}': "tag: unknown key; did you mean 'tags'?",
    '{"conversation": "x", "items": [1, 2, 3, {"content": NaN}]}': "items[3].content: NaN",
    '{"conversation": "x", "items": [1], "reward": -Infinity}': "reward: -Infinity",
    '{"conversation": "x", "items": [[1e999]]}': "items[0][0]: 1e999",
    '{"conversation": "x", "items": ' + "[" * 202 + "]" * 202 + "}": "nested deeper than 200",
    '{"conversation": "x", "events": [{"type": "x.a", "data": ' + "[" * 201 + "]" * 201 + "}]}": "events[0].data[0][0]",
    "[" * 100_000: "nested too deep",
    '{"conversation": "x", "items": [' + "9" * 5000 + "]}": "4,300 digits",
    '{"conversation": "x", "items": [1,]}': "not JSON",
    '{"items": []}': "conversation: missing",
    '{"conversation": "", "items": []}': "at least one character",
    '{"conversation": "x", "steps": [{"agent": "a", "kind": "talk", "item": 1}]}': "steps[0].kind",
    '{"conversation": "x", "messages": [{"role": "tool"}]}': "messages[0].content",
    '{"conversation": "x", "events": [{"type": "no.such", "data": 1}]}': "events[0].type",
    '{"conversation": "x", "events": [{"type": "x.a", "data": 1, "unique_key": "u"}, '
    '{"type": "x.a", "data": 1, "unique_key": "u"}]}': "events[1].unique_key",
    '{"conversation": "a", "items": [2]}': "'a' is there already with other content",
    '{"conversation": "a", "items": [1], "context": "c"}': "belongs to context 'a'",
}


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_a_bad_line_is_named_and_what_stands_before_it_stays(url: str, tmp_path: Path, text: str) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text(line("a", 1) + "\n" + text + "\n" + line("c", 1))
    result = run(url, "import", str(file))
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    told = result.stderr.splitlines()
    assert told[0].startswith(f"convstore: {file}:3: ")
    assert BAD[text] in told[0]
    assert told[1].startswith("  before it: 1 stream: 1 event written")
    assert len(told) == 2
    with EventStore.open(url) as store:
        assert [stream.name for stream in store.conversations().streams] == ["a"]


def test_bytes_that_are_no_text_and_damaged_files_are_named(url: str, tmp_path: Path) -> None:
    cut, binary = tmp_path / "cut.gz", tmp_path / "binary"
    cut.write_bytes(gzip.compress(line("a", "x" * 5000, os.urandom(5000).hex()).encode())[:-200])
    binary.write_bytes(line("b", 1).encode() + b'{"conversation": "\xff"}\n')
    assert f"{cut}:1: the gzip file is damaged" in run(url, "import", str(cut)).stderr
    result = run(url, "import", str(binary), "--json")
    assert result.exit_code == 2
    assert f"{binary}:2: line: byte 19 is not UTF-8" in result.stderr
    assert json.loads(result.stdout)["streams"] == 1
    for missing in (str(tmp_path / "nosuch"), str(tmp_path)):
        result = run(url, "import", str(binary), missing)
        assert result.exit_code == 2
    assert "nosuch: No such file" in run(url, "import", str(tmp_path / "nosuch")).stderr


def test_a_line_over_the_limit_is_refused_before_it_is_held(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventstore.adapters.cli.lines.MAX_LINE", 100)
    text = line("a", "x" * (100 - len(line("a", "")) + 1))
    assert len(text) == 101
    file = tmp_path / "f"
    file.write_text(text.replace("\n", "\r\n") + line("b", "x" * 100))
    result = run(url, "import", str(file))
    assert f"{file}:2: longer than 256 MiB" in result.stderr
    assert "before it: 1 stream" in result.stderr


def test_a_conversation_beyond_one_append_is_whole_or_absent(
    url: str, store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Split alike each time: by number of events, and by size."""
    given = line("long", *range(10_050)).encode()
    assert counts(run(url, "import", "-", "--json", given=given)) == (1, 10_050, 0)
    assert counts(run(url, "import", "-", "--json", given=given)) == (1, 0, 10_050)
    assert [e.data for e in store.conversation("long").events()] == list(range(10_050))
    monkeypatch.setattr("eventstore.adapters.cli.importing.MAX_BATCH_BYTES", 250)
    given = line("wide", *["x" * 98] * 5).encode()
    assert counts(run(url, "import", "-", "--json", given=given)) == (1, 5, 0)
    assert counts(run(url, "import", "-", "--json", given=given)) == (1, 0, 5)
    events = [{"type": "x.a", "data": "x" * 98, "unique_key": key} for key in ("1", "2", "3", "1")]
    given = json.dumps({"conversation": "broken", "events": events}).encode()
    result = run(url, "import", "-", given=given)
    assert result.exit_code == 2
    assert "unique_key '1' is taken" in result.stderr
    assert store.conversation("broken").head() == 0
    assert store.verify().ok


def test_an_empty_conversation_leaves_no_trace(url: str, store: EventStore) -> None:
    assert counts(run(url, "import", "-", "--json", given=line("a").encode())) == (0, 0, 0)
    assert store.conversations().streams == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_import_cut_off_goes_on_without_duplicates(url: str, store: EventStore, number: signal.Signals) -> None:
    lines = [line(f"s{n:02}", *range(n + 1)) for n in range(20)]
    process = subprocess.Popen(
        [SCRIPT, "import", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "CONVSTORE_URL": url},
    )
    assert process.stdin is not None
    process.stdin.write("".join(lines[:8]) + lines[8][:20])
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while not store.conversation("s07").head() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate()
    assert out == ""
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert err == "interrupted after 8 streams: 36 events written, 0 already there; run it again to go on\n"
    total = sum(range(21))
    before = sum(range(9))
    given = "".join(lines).encode()
    assert counts(run(url, "import", "-", "--json", given=given)) == (20, total - before, before)
    for n in range(20):
        assert [e.data for e in store.conversation(f"s{n:02}").events()] == list(range(n + 1))
    assert store.verify().ok
