"""What helps the reader along: hints that can be copied, notes on what finds nothing, text folded at spaces."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner, Result

from eventstore import EventStore
from eventstore.adapters.cli import hints, main
from eventstore.adapters.cli.output import fold


def run(url: str | None, *args: str) -> Result:
    return CliRunner().invoke(main, args, env={"CONVSTORE_URL": url, "CONVSTORE_TENANT": None})


def test_what_to_run_names_the_store_that_was_given_but_no_password(
    make_database: Callable[..., str],
) -> None:
    empty = psycopg.conninfo.make_conninfo(make_database(), password="secret", sslpassword="secret")
    result = run(None, "ls", "--url", empty)
    assert result.exit_code == 2
    told = result.stderr
    assert "secret" not in told
    words = shlex.split(told.partition("run: ")[2])
    assert words[:3] == ["convstore", "migrate", "--url"]
    given = psycopg.conninfo.conninfo_to_dict(empty)
    del given["sslpassword"]
    assert psycopg.conninfo.conninfo_to_dict(words[3]) == given | {"password": "***"}
    shown = run(None, "status", "--url", empty).stdout
    assert "secret" not in shown
    assert f"run: convstore migrate --url {shlex.quote(words[3])}\n" in shown


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("postgresql://u:p@h:6432/d?sslmode=require", "postgresql://u@h:6432/d?sslmode=require"),
        ("host=/tmp/a port=1 user='a b' dbname=d/e", "postgresql://a%20b@/d%2Fe?host=/tmp/a&port=1"),
        ("postgresql://u@[::1]:5/d", "postgresql://u@[::1]:5/d"),
        ("postgresql://a:1,b:2/d", "postgresql:///d?host=a%2Cb&port=1%2C2"),
        ("application_name='a b'", "postgresql:///?application_name=a%20b"),
    ],
)
def test_a_url_means_the_same_without_its_password(given: str, url: str) -> None:
    assert hints.url_of(given) == url
    parts = psycopg.conninfo.conninfo_to_dict(given)
    parts.pop("password", None)
    assert psycopg.conninfo.conninfo_to_dict(url) == parts


def test_the_command_is_named_as_it_was_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "a b" / "convstore"
    script.parent.mkdir()
    script.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(script), "demo"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert hints.called() == f"'{script}'"
    monkeypatch.setenv("PATH", str(script.parent))
    assert hints.called() == "convstore"


def test_a_typo_that_finds_nothing_shows_on_standard_error(url: str, store: EventStore) -> None:
    store.conversation("a").append([1])
    for args, told in (
        (("ls", "--tenant", "typo"), "no streams in tenant 'typo'\n"),
        (("ls", "--context", "typo"), "no streams of context 'typo' in tenant 'default'\n"),
        (("ls", "--tag", "typo=1"), "no streams with these tags in tenant 'default'\n"),
        (("verify", "--tenant", "typo"), "no streams in tenant 'typo'\n"),
    ):
        for more in ((), ("--json",)):
            result = run(url, *args, *more)
            assert (result.exit_code, result.stderr) == (0, told)
    assert run(url, "ls", "--tenant", "typo", "--json").stdout == ""
    assert json.loads(run(url, "verify", "--tenant", "typo", "--json").stdout)["ok"] is True
    assert run(url, "ls").stderr == run(url, "verify").stderr == ""


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("one two three four", ["one two", "three four"]),
        ("one two  three", ["one two ", "three"]),
        ("ten  chars x", ["ten  chars", "x"]),
        ("a: 0123456789abcd", ["a: 0123456", "789abcd"]),
        ("  indented words", ["  indented", "words"]),
        ("漢漢漢漢漢漢", ["漢漢漢漢漢", "漢"]),
        ("a\n\nb", ["a", "", "b"]),
        ("", [""]),
        ("1 2\n3\n4\nfive\nsix", ["1 2", "3", "4", "… 8 more characters; --full shows all"]),
        ("x" * 100, ["x" * 10, "x" * 10, "x" * 10, "… 70 more characters; --full shows all"]),
    ],
)
def test_folded_text_breaks_at_spaces_where_the_next_word_fits(text: str, rows: list[str]) -> None:
    assert fold(text, width=10, lines=3) == rows
