"""``handoffs`` and ``schema envelope``."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from working import begin, hand

from eventstore import Envelope, EventStore
from eventstore.adapters.cli import main


def run(url: str, *args: str) -> Result:
    return CliRunner().invoke(main, args, env={"CONVSTORE_URL": url, "CONVSTORE_TENANT": None})


def test_handoffs_are_listed_with_where_they_stand(url: str, store: EventStore) -> None:
    chat = begin(store)
    one = hand(chat, "refunds\x1b[2J", "triage", handoff_id="h1", goal="settle\nit")
    two = chat.handoffs.draft(goal="check", to="legal", handoff_id="h2")
    chat.handoffs.offer(two, allow_incomplete=True)
    chat.handoffs.offer(two, allow_incomplete=True)
    failed = chat.handoffs.fail("h2", "no acknowledgement")
    shown = run(url, "handoffs", "c")
    assert shown.exit_code == 0
    assert "\x1b" not in shown.stdout
    lines = [line.strip() for line in shown.stdout.splitlines()]
    assert lines[0].startswith("5  h1  triage → refunds")
    assert lines[0].endswith("accepted at 6")
    assert lines[2] == "7  h2  refunds\\x1b[2J → legal  failed at 9, attempt 2"
    assert lines[4:] == ["offered without success", "no acknowledgement; return to version 6, handoff h1"]
    document = json.loads(run(url, "handoffs", "c", "--json").stdout)
    assert [each["handoff_id"] for each in document] == ["h1", "h2"]
    assert document[0]["envelope"] == one.as_json()
    assert (document[1]["return_to"], document[1]["missing"]) == (failed.return_to, ["success"])


def test_a_conversation_without_handoffs_and_none_at_all(url: str, store: EventStore) -> None:
    store.conversation("c").append([1])
    empty = run(url, "handoffs", "c", "--json")
    assert (empty.exit_code, json.loads(empty.stdout)) == (0, [])
    assert run(url, "handoffs", "nosuch").exit_code == 2


def test_the_schema_of_an_envelope_needs_no_store() -> None:
    shown = run("postgresql://nobody@127.0.0.1:1/none", "schema", "envelope", "--json")
    assert shown.exit_code == 0
    schema = json.loads(shown.stdout)
    assert set(schema["properties"]) == set(Envelope.model_fields)
    assert "task_id" in schema["required"]
    assert "context_version" not in schema["required"]
    assert run("", "schema", "else").exit_code == 2


def test_two_handoffs_are_compared_field_by_field(url: str, store: EventStore) -> None:
    chat = begin(store)
    hand(chat, "refunds", "triage", handoff_id="h1", goal="settle it")
    chat.handoffs.offer(chat.handoffs.draft(goal="check", to="legal", handoff_id="h2"), allow_incomplete=True)
    result = run(url, "diff", "h1", "c/h2", "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    fields = {each["field"]: (each["a"], each["b"]) for each in document["fields"]}
    assert fields["goal"] == ("settle it", "check")
    assert fields["owner"] == ("refunds", "legal")
    assert document["same"] is False
    assert '- "settle it"' in run(url, "diff", "h1", "h2").stdout
    same = run(url, "diff", "h1", "c/h1")
    assert (same.exit_code, same.stdout) == (0, "the envelopes are equal, field by field\n")
    assert run(url, "diff", "h1", "nosuch").exit_code == 2


def test_a_replay_shows_what_was_given_at_a_handoff(url: str, store: EventStore) -> None:
    chat = begin(store)
    chat.append({"role": "user", "content": "before"})
    hand(chat, "refunds", "triage", handoff_id="h1", goal="settle it")
    chat.append({"role": "user", "content": "after"})
    shown = [json.loads(line) for line in run(url, "replay", "c", "--as", "handoff", "--json").stdout.splitlines()]
    assert [each["item"] for each in shown] == chat.originals()
    then = run(url, "replay", "c", "--as", "handoff", "--handoff", "h1")
    assert "before" in then.stdout
    assert "after" not in then.stdout
    assert "was not offered" in run(url, "replay", "c", "--as", "handoff", "--handoff", "h9").stderr
    assert run(url, "replay", "c", "--handoff", "h1").exit_code == 2


@pytest.mark.parametrize("command", ["handoffs", "schema"])
def test_their_help_is_whole(command: str) -> None:
    listed = run("", "--help").stdout
    (line,) = [each for each in listed.splitlines() if each.split()[:1] == [command]]
    assert "..." not in line
