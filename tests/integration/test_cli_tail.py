"""``tail``: what comes is shown as it comes, and where to go on is told; and the feed's line in ``status``."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from test_cli import SCRIPT, environment, error, run

from eventstore import Event, EventStore


def told(stderr: str) -> list[str]:
    """The arguments of the call that goes on."""
    (line,) = stderr.splitlines()
    words = shlex.split(line.partition("go on with: ")[2])
    return words[words.index("tail") :]


def shown(stdout: str) -> list[Any]:
    return [json.loads(line)["data"] for line in stdout.splitlines()]


@contextmanager
def tailing(url: str, *args: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [SCRIPT, "tail", "--json", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(url),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_tail_shows_events_one_by_one_and_an_interrupt_tells_how_to_go_on(url: str, store: EventStore) -> None:
    chat = store.conversation("a")
    chat.append([1, 2])
    with tailing(url, "--type", "item.appended", "--all-tenants") as process:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        chat.append([3])
        lines.append(json.loads(process.stdout.readline()))
        assert [line["data"] for line in lines] == [1, 2, 3]
        assert [line["cursor"] for line in lines] == [event.cursor for event in store.feed().events]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    words = told(err)
    assert words[:2] == ["tail", "--after"]
    assert words[3:] == ["--type", "item.appended", "--all-tenants", "--json"]
    chat.append([4])
    assert shown(run(url, *words, "--no-follow").stdout) == [4]


def test_tail_from_now_shows_what_comes_from_now_on(url: str, store: EventStore) -> None:
    chat = store.conversation("a")
    chat.append([1, 2])
    ended = run(url, "tail", "--from-now", "--no-follow", "--json")
    assert (ended.exit_code, ended.stdout) == (0, "")
    chat.append([3])
    assert shown(run(url, *told(ended.stderr), "--no-follow", "--json").stdout) == [3]
    assert shown(run(url, "tail", "--no-follow", "--json").stdout) == [1, 2, 3]


def test_tail_goes_on_past_what_a_filter_left_out(url: str, store: EventStore) -> None:
    chat = store.conversation("a")
    chat.append_events([Event(type="x.wanted", data=1), Event(type="x.other", data=2)])
    ended = run(url, "tail", "--type", "x.wanted", "--no-follow", "--json")
    assert shown(ended.stdout) == [1]
    assert told(ended.stderr)[2] == store.feed().cursor


def test_tail_is_of_one_tenant_unless_all_are_asked_for(url: str, store: EventStore) -> None:
    for tenant in ("acme", "rival"):
        store.for_tenant(tenant).conversation("a").append([tenant])
    assert shown(run(url, "tail", "--no-follow", "--json", "--tenant", "acme").stdout) == ["acme"]
    assert shown(run(url, "tail", "--no-follow", "--json", "--all-tenants").stdout) == ["acme", "rival"]
    text = run(url, "tail", "--no-follow", "--all-tenants").stdout.splitlines()
    assert [line.split("  ")[0] for line in text[::2]] == ["acme a 1", "rival a 1"]
    assert text[1] == '      "acme"'


def test_tail_refuses_what_the_feed_refuses(url: str, make_login: Callable[..., str]) -> None:
    assert "one of them" in error(run(url, "tail", "--after", "a", "--from-now"), 2)
    assert "it is not one" in error(run(url, "tail", "--after", "garbage"), 2)
    assert "not bound to all tenants" in error(run(make_login("reader", "default"), "tail", "--all-tenants"), 2)


POISON = {"broken": "1e999", "deep": "[" * 1_000 + "]" * 1_000}


@pytest.mark.parametrize(
    ("command", "poison"),
    [(("tail", "--no-follow"), "broken"), (("tail", "--no-follow"), "deep"), (("replay", "a"), "broken")],
)
def test_what_cannot_be_decoded_is_shown_as_what_it_is(
    url: str, store: EventStore, db: psycopg.Connection, command: tuple[str, ...], poison: str
) -> None:
    store.conversation("a").append(["before"])
    query = (
        "SELECT append_event('default', 'a', NULL, NULL, NULL, NULL, NULL, NULL, false, %s, 1::int2, 1::int2,"
        " 'item.appended', NULL, NULL, NULL, NULL, NULL, NULL, NULL, %s)"
    )
    db.execute(query, [uuid.uuid4(), POISON[poison]])
    store.conversation("a").append(["after"])
    for more in ((), ("--json",)):
        result = run(url, *command, *more)
        assert result.exit_code == 0, result.output
        assert '"before"' in result.stdout
        assert '"after"' in result.stdout
        if poison == "deep":
            assert "a 2, at position" in result.stderr
        else:
            assert "1e999" in result.stdout
            assert "infinity" in result.stdout
    if poison == "broken":
        bad = json.loads(run(url, *command, "--json").stdout.splitlines()[1])
        assert (bad["raw_data"], bad["raw_metadata"], bad["version"]) == ("1e999", None, 2)
        assert "data" not in bad
        assert "can't be decoded" in error(run(url, "export", "a"), 2)


def test_a_type_of_newer_code_is_shown(url: str, store: EventStore, db: psycopg.Connection) -> None:
    db.execute(
        "SELECT append_event('default', 'a', NULL, NULL, NULL, NULL, NULL, NULL, false, %s, 3::int2, 1::int2,"
        " 'task.escalated', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '[1]')",
        [uuid.uuid4()],
    )
    event = json.loads(run(url, "tail", "--no-follow", "--json").stdout)
    assert (event["type"], event["schema_version"], event["data"]) == ("task.escalated", 3, [1])


def test_status_tells_how_far_the_feed_is_and_who_holds_it_back(
    url: str, store: EventStore, make_database: Callable[..., str], make_login: Callable[..., str]
) -> None:
    def feed(at: str) -> Any:
        return json.loads(run(at, "status", "--json").stdout)["store"]["feed"]

    store.conversation("a").append([1, 2])
    assert feed(url) == {"position": 2, "open_writers": 0, "blocked_by": None}
    assert "feed: up to position 2; no writer in flight" in run(url, "status").stdout
    with psycopg.connect(url, application_name="worker-7") as conn:
        store.using(conn).conversation("hung").append([3])
        pid = conn.info.backend_pid
        assert feed(url)["blocked_by"]["pid"] == pid
        line = run(url, "status").stdout.splitlines()[-1]
        assert "up to position 2; 1 in flight, held back for " in line
        assert line.endswith(f" s by pid {pid} (idle in transaction): postgres (worker-7)")
    assert feed(make_login("reader", "acme")) is None
    assert feed(make_database()) is None
