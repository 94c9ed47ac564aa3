"""The commands that read: exit codes, what is printed where, and that data stays data."""

from __future__ import annotations

import json
import logging
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner, Result

from eventstore import Event, EventStore
from eventstore.adapters.cli import main

SCRIPT = str(Path(sys.executable).with_name("convstore"))
NOBODY = "postgresql://nobody@127.0.0.1:1/none"


def run(url: str | None, *args: str) -> Result:
    return CliRunner().invoke(main, args, env={"CONVSTORE_URL": url, "CONVSTORE_TENANT": None})


def environment(url: str, **more: str) -> dict[str, str]:
    return {**os.environ, "CONVSTORE_URL": url, **more}


def error(result: Result, code: int) -> str:
    """The error's lines, which go to standard error alone and are two at most."""
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.stderr
    assert 1 <= result.stderr.count("\n") <= 2
    return result.stderr


def test_wrong_use_exits_2(url: str) -> None:
    assert "Missing argument" in error(run(url, "replay"), 2)
    assert "No such command 'foo'" in error(run(url, "foo"), 2)
    assert "one of them" in error(run(url, "export"), 2)
    assert "one of them" in error(run(url, "export", "a", "--context", "b"), 2)
    assert "key=value" in error(run(url, "ls", "--tag", "a"), 2)
    assert "--timeout" in error(run(url, "ls", "--timeout", "0"), 2)
    assert "missing" in error(run("nonsense", "ls"), 2)


@pytest.mark.parametrize("command", ["replay", "verify", "export"])
def test_an_unknown_stream_exits_2(url: str, command: str) -> None:
    result = run(url, command, "nosuch", "--json")
    assert "no stream 'nosuch' in tenant 'default'" in error(result, 2)
    assert result.stdout == ""
    error(run(url, command, ""), 2)


def test_a_context_without_streams_cannot_be_exported(url: str) -> None:
    assert "no stream of context 'nosuch'" in error(run(url, "export", "--context", "nosuch"), 2)


@pytest.mark.parametrize("args", [("ls",), ("replay", "a"), ("verify",), ("migrate",), ("import", "-")])
def test_a_store_that_nobody_answers_for_exits_3(args: tuple[str, ...]) -> None:
    assert "can't be reached" in error(run(NOBODY, *args, "--timeout", "2"), 3)


def test_a_setting_that_is_none_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVSTORE_POOL_SIZE", "many")
    assert "CONVSTORE_POOL_SIZE is 'many'" in error(run(url, "ls"), 2)


def test_a_database_that_is_not_migrated_says_what_to_run(make_database: Callable[..., str]) -> None:
    empty = make_database()
    assert "run: convstore migrate" in error(run(empty, "ls"), 2)
    dry = run(empty, "migrate", "--dry-run")
    assert dry.exit_code == 0
    assert "would apply 0001_log.sql" in dry.stdout
    assert "run: convstore migrate" in error(run(empty, "ls"), 2), "a dry run changed something"
    done = run(empty, "migrate")
    assert done.exit_code == 0
    assert done.stdout.replace("applied", "would apply") == dry.stdout
    assert run(empty, "migrate").stdout == "nothing to apply\n"
    assert json.loads(run(empty, "migrate", "--json").stdout) == {"dry_run": False, "applied": []}
    assert run(empty, "ls").exit_code == 0


def test_migrate_shows_what_an_administrator_has_to_run(
    make_database: Callable[..., str], admin: psycopg.Connection
) -> None:
    given = make_database()
    name = psycopg.conninfo.conninfo_to_dict(given)["dbname"]
    admin.execute("CREATE ROLE plain_login LOGIN")
    try:
        admin.execute(f"ALTER DATABASE {name} OWNER TO plain_login")
        plain = psycopg.conninfo.make_conninfo(given, user="plain_login")
        result = run(plain, "migrate", "--json")
        assert result.exit_code == 0, result.output
        assert "0001_log.sql" in json.loads(result.stdout)["applied"]
        assert "the database says: the objects stay with plain_login" in result.stderr
        assert "skipping" not in result.stderr
    finally:
        admin.execute(f"ALTER DATABASE {name} OWNER TO CURRENT_USER")
        with psycopg.connect(given, autocommit=True) as conn:
            conn.execute("REASSIGN OWNED BY plain_login TO CURRENT_USER; DROP OWNED BY plain_login")
        admin.execute("DROP ROLE plain_login")


def test_status_tells_the_schema_and_starts_nothing(
    url: str, make_database: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVSTORE_HOME", f"/tmp/convstore-none-{os.getpid()}")
    result = run(url, "status", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["embedded"]["running"] is False
    assert found["store"]["reachable"]
    assert found["store"]["schema"] == found["store"]["code_schema"] >= 1
    assert found["store"]["pending"] == []
    pending = json.loads(run(make_database(), "status", "--json").stdout)["store"]
    assert pending["schema"] == 0
    assert "0001_log.sql" in pending["pending"]
    nowhere = run("postgresql://nobody:secret@127.0.0.1:1/none", "status", "--timeout", "2")
    assert nowhere.exit_code == 3
    assert "refused" in nowhere.stdout
    assert "secret" not in nowhere.output
    shown = run("host=127.0.0.1 port=1 user=nobody password=secret dbname=none", "status", "--json", "--timeout", "2")
    assert json.loads(shown.stdout)["store"]["url"] == "postgresql://nobody@127.0.0.1:1/none"
    assert "none configured" in run(None, "status").stdout
    assert run(None, "status").exit_code == 0
    assert not Path(os.environ["CONVSTORE_HOME"]).exists()


def test_ls_lists_all_and_filters(url: str, store: EventStore) -> None:
    for number in range(5):
        chat = store.conversation(f"s{number}", context="even" if number % 2 == 0 else None, tags={"n": str(number)})
        chat.append([1] * (number + 1))
    listed = [json.loads(line) for line in run(url, "ls", "--json").stdout.splitlines()]
    assert [(each["name"], each["events"]) for each in listed] == [(f"s{n}", n + 1) for n in range(5)]
    assert listed[1]["context"] == "s1"
    assert listed[1]["tags"] == {"n": "1"}

    def names(*args: str) -> list[str]:
        return [line.split("\t")[0] for line in run(url, "ls", *args).stdout.splitlines()]

    assert names("--context", "even") == ["s0", "s2", "s4"]
    assert names("--tag", "n=3") == ["s3"]
    assert names("--limit", "2") == ["s0", "s1"]
    assert names("--tenant", "other") == []


def test_replay_shows_a_stream_up_to_a_version(url: str, store: EventStore) -> None:
    store.conversation("a").append([{"role": "user", "content": f"line {n}"} for n in range(1, 6)], agent="triage")
    store.conversation("a@3").append(["whole name"])

    def versions(*args: str) -> list[int]:
        result = run(url, "replay", *args, "--json")
        assert result.exit_code == 0, result.output
        return [json.loads(line)["version"] for line in result.stdout.splitlines()]

    assert versions("a") == [1, 2, 3, 4, 5]
    assert versions("a@4") == versions("a", "--at", "4") == [1, 2, 3, 4]
    assert versions("a@3") == [1], "a stream of that very name goes first"
    assert versions("a@3@1") == [1]
    assert "versions 1 to 5, so there is none at 6" in error(run(url, "replay", "a@6"), 2)
    assert "none at 0" in error(run(url, "replay", "a@0"), 2)
    assert "once" in error(run(url, "replay", "a@4", "--at", "4"), 2)
    assert "no stream 'a@x'" in error(run(url, "replay", "a@x"), 2)
    assert "user: line 2\n" in run(url, "replay", "a").stdout
    assert "triage" in run(url, "replay", "a").stdout


def test_replay_makes_items_readable(url: str, store: EventStore) -> None:
    store.conversation("a").append(
        [
            {"role": "assistant", "content": [{"type": "output_text", "text": "hello\nthere"}]},
            {"type": "function_call", "call_id": "c1", "name": "refund", "arguments": '{"cents": 5}'},
            {"type": "function_call_output", "call_id": "c1", "output": "done"},
            {"type": "shell_call", "action": "ls"},
            [None, "x" * 10_000],
        ]
    )
    shown = run(url, "replay", "a").stdout
    assert "assistant: hello\n      there\n" in shown
    assert '      refund({"cents": 5})\n' in shown
    assert "      c1 → done\n" in shown
    assert '{"type": "shell_call", "action": "ls"}' in shown
    assert "x" * 10_000 in shown, "what goes into a pipe is never cut"


def test_replay_shows_the_calls_of_a_raw_chat_message(url: str, store: EventStore) -> None:
    refund = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"cents": 5}'}}
    shell = {"id": "c2", "type": "custom", "custom": {"name": "shell", "input": "ls"}}
    old = {"name": "old", "arguments": "{}"}
    store.conversation("a").append(
        [
            {"role": "assistant", "content": None, "tool_calls": [refund, shell]},
            {"role": "assistant", "content": "I look", "tool_calls": [refund, "odd"]},
            {"role": "assistant", "content": None, "function_call": old},
            {"role": "assistant", "content": None, "tool_calls": None},
        ]
    )
    rows = [row[6:] for row in run(url, "replay", "a").stdout.splitlines() if row.startswith("      ")]
    call = 'refund({"cents": 5})'
    assert rows == [call, "shell(ls)", "assistant: I look", call, '"odd"', "old({})", "assistant: null"]


HOSTILE = {"role": "user", "content": "a\x1b[2Jb\x9bc\u202ed\ud800e\rf\x00 [red]g[/red] :smile:"}
HOSTILE_SHOWN = "user: a\\x1b[2Jb\\x9bc\\u202ed\\ud800e\\x0df\\x00 [red]g[/red] :smile:"


def test_data_is_shown_and_never_obeyed(url: str, store: EventStore) -> None:
    name = "n\x1b[31m\nrow"
    store.conversation(name, tags={"t": "\x1b[1m"}).append([HOSTILE])
    for args in (("ls",), ("replay", name), ("ls", "--json"), ("replay", name, "--json"), ("export", name)):
        result = run(url, *args)
        assert result.exit_code == 0, result.output
        assert not set(result.stdout) & {"\x1b", "\x9b", "\x00", "\r", "\u202e"}, args
    assert HOSTILE_SHOWN in run(url, "replay", name).stdout
    assert run(url, "ls").stdout.startswith("n\\x1b[31m\\nrow\t")
    assert json.loads(run(url, "replay", name, "--json").stdout)["data"] == HOSTILE


@pytest.mark.parametrize("colour", [True, False])
def test_a_terminal_gets_colour_but_no_orders_from_data(url: str, store: EventStore, colour: bool) -> None:
    store.conversation("a").append([HOSTILE, "long " * 10_000])
    ours, theirs = pty.openpty()
    env = environment(url, TERM="xterm", COLUMNS="200") | ({} if colour else {"NO_COLOR": "1"})
    with subprocess.Popen([SCRIPT, "replay", "a"], stdout=theirs, env=env) as process:
        os.close(theirs)
        shown = b""
        try:
            while got := os.read(ours, 65536):
                shown += got
        except OSError:  # how Linux says that the other side is closed
            pass
        os.close(ours)
    assert process.returncode == 0
    assert HOSTILE_SHOWN.encode() in shown
    assert (b"\x1b[36m" in shown) is colour
    assert b"more characters; --full" in shown
    assert len(shown) < 10_000


def test_json_holds_what_the_log_holds(url: str, store: EventStore) -> None:
    data = [2**80, "\ud800", "\x00", -0.0, "é", {"": None}]
    store.conversation("a").append_events(
        [Event(type="x.any", data=data, metadata={"big": 2**70}, agent="b", unique_key="k")]
    )
    out = run(url, "replay", "a", "--json").stdout
    assert out.isascii()
    event = json.loads(out)
    recorded = next(store.conversation("a").events())
    assert event["data"] == data
    assert event["metadata"] == {"big": 2**70}
    assert (event["agent"], event["unique_key"], event["type"]) == ("b", "k", "x.any")
    assert event["hash"] == recorded.hash.hex()
    assert event["event_id"] == str(recorded.event_id)
    assert event["recorded_at"] == recorded.recorded_at.isoformat()


def test_verify_answers_by_exit_code(url: str, store: EventStore, db: psycopg.Connection) -> None:
    for name in ("a", "b"):
        store.conversation(name).append([{"cents": 10}, {"cents": 20}])
    result = run(url, "verify")
    assert (result.exit_code, result.stdout) == (0, "2 streams, 4 events, ok\n")
    assert json.loads(run(url, "verify", "a", "--json").stdout) == {
        "ok": True,
        "checked": 2,
        "streams": 1,
        "first_bad": None,
    }
    db.execute("""UPDATE events SET data = '{"cents":21}' WHERE data::text = '{"cents":20}' AND position > 2""")
    result = run(url, "verify")
    assert result.exit_code == 1
    assert "not ok" in result.stdout
    assert "stream b, version 2" in result.stdout
    result = run(url, "verify", "--json")
    assert result.exit_code == 1
    bad = json.loads(result.stdout)["first_bad"]
    assert (bad["stream"], bad["version"]) == ("b", 2)
    assert bad["reason"]
    assert run(url, "verify", "a").exit_code == 0


WAITING = """SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = database
WHERE datname = current_database() AND NOT granted"""


@pytest.mark.parametrize("args", [("verify",), ("verify", "--json", "a")])
def test_an_interrupted_verify_says_nothing(
    url: str, store: EventStore, db: psycopg.Connection, args: tuple[str, ...]
) -> None:
    store.conversation("a").append([1])
    db.execute("BEGIN; LOCK TABLE events")
    try:
        with subprocess.Popen(
            [SCRIPT, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(url)
        ) as process:
            while not db.execute(WAITING).fetchone():
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
    finally:
        db.execute("ROLLBACK")
    assert (process.returncode, out, err) == (130, b"", b"")


def test_the_pool_does_not_repeat_what_the_command_says(url: str) -> None:
    logging.getLogger("psycopg.pool").setLevel(logging.NOTSET)
    assert run(url, "ls").exit_code == 0
    assert not logging.getLogger("psycopg.pool").isEnabledFor(logging.ERROR)


def test_a_reader_that_goes_away_is_no_error(url: str, store: EventStore) -> None:
    store.conversation("a").append(["x" * 1000] * 1000)
    with subprocess.Popen(
        [SCRIPT, "replay", "a"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(url)
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE


def test_output_that_cannot_be_written_is_told(url: str, store: EventStore) -> None:
    store.conversation("a").append([1])
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([SCRIPT, "ls"], stdout=full, stderr=subprocess.PIPE, env=environment(url), check=False)
    assert done.returncode == 2
    assert b"standard output: No space left" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_locale_without_unicode_loses_nothing(url: str, store: EventStore) -> None:
    store.conversation("a").append([{"role": "user", "content": "漢é"}])
    env = environment(url, PYTHONIOENCODING="ascii")
    done = subprocess.run([SCRIPT, "replay", "a"], capture_output=True, env=env, check=True)
    assert b"user: \\u6f22\\xe9" in done.stdout


def test_help_and_version_need_no_store() -> None:
    listed = run(NOBODY, "--help")
    assert listed.exit_code == 0
    assert "..." not in listed.stdout.partition("Commands:")[2]
    assert run(NOBODY, "--version").exit_code == 0
    commands = ("demo", "import", "ls", "replay", "verify", "up", "down", "status", "migrate", "export")
    for command in commands:
        shown = run(NOBODY, command, "--help")
        assert shown.exit_code == 0
        for option in ("--url", "--tenant", "--json", "--timeout"):
            assert option in shown.stdout
