"""``convstore effects``: what became of the effects of a context, for people and for scripts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from eventstore import EventStore
from eventstore.adapters.cli import main
from eventstore.errors import EffectFailed


def run(url: str, *args: str) -> Result:
    return CliRunner().invoke(main, args, env={"CONVSTORE_URL": url, "CONVSTORE_TENANT": None})


@pytest.fixture
def shop(store: EventStore) -> EventStore:
    """Effects in each state, over two branches."""
    chat = store.conversation("main", context="trip")
    chat.append(["hello"])
    branch = chat.fork("plan-b")
    chat.effects.run("book", lambda: {"id": 2**80}, key="flight", arguments={"to": "Ulm"}, agent="planner")
    with pytest.raises(EffectFailed):
        branch.effects.run("book", _declined, key="hotel\n")
    branch.effects.guard("book", key="train", lease=3600).__enter__()
    with branch.effects.guard("mail", key="mail", arguments="x" * 500):
        pass
    chat.effects.run("pay", lambda: "ok", key="pay")
    chat.effects.compensate("pay", "credit 7", agent="ops")
    return store


def _declined() -> None:
    raise EffectFailed({"declined": "full"})


def states(url: str) -> dict[str, Any]:
    return {each["key"]: each for each in json.loads(run(url, "effects", "main", "--json").stdout)["effects"]}


def test_effects_shows_those_of_the_whole_context(url: str, shop: EventStore) -> None:
    for stream in ("main", "plan-b"):
        result = run(url, "effects", stream)
        assert result.exit_code == 0, result.stderr
        heads = [line.split("  ")[:3] for line in result.stdout.splitlines() if not line.startswith("    ")]
        assert heads == [
            ["flight", "succeeded", "book"],
            ["hotel\\n", "failed", "book"],
            ["train", "pending", "book"],
            ["mail", "indeterminate", "mail"],
            ["pay", "compensated", "pay"],
        ]
    text = result.stdout
    assert "attempt 1, by planner, 2" in text
    assert '    result: {"id": 1208925819614629174706176}' in text
    assert '    error: {"declined": "full"}' in text
    assert "of its lease of 3600 s" in text
    assert "left without an outcome; look, then --resolve it" in text
    assert '    undone: by ops: "credit 7"' in text
    assert max(map(len, text.splitlines())) < 250
    shown = states(url)
    assert shown["flight"]["result"] == {"id": 2**80}
    assert shown["flight"]["events"] == [{"stream": "main", "version": 2}, {"stream": "main", "version": 3}]
    assert (shown["train"]["lease"], shown["train"]["by"]) == (3600.0, "plan-b")


def test_an_effect_is_resolved_by_who_looked(url: str, shop: EventStore) -> None:
    said = run(url, "effects", "main", "--resolve", "mail", "--succeeded", "--result", '"sent"', "--reason", "outbox")
    assert said.exit_code == 0, said.stderr
    assert "mail  succeeded" in said.stdout
    assert "resolved: by main: outbox" in said.stdout
    assert states(url)["mail"]["result"] == "sent"
    assert run(url, "effects", "main", "--resolve", "mail", "--failed").exit_code == 2
    assert "has been running" in run(url, "effects", "main", "--resolve", "train", "--failed").stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nowhere"], "no stream 'nowhere'"),
        (["main", "--resolve", "mail"], "goes with --succeeded or --failed"),
        (["main", "--failed"], "goes with"),
        (["main", "--result", "1"], "go with --resolve"),
        (["main", "--resolve", "mail", "--succeeded", "--result", "sent"], "no JSON"),
        (["main", "--resolve", "mail", "--failed", "--result", "1"], "did not happen"),
        (["main", "--resolve", "unknown", "--failed"], "none with this key"),
    ],
)
def test_wrong_use_exits_2_and_changes_nothing(url: str, shop: EventStore, args: list[str], said: str) -> None:
    result = run(url, "effects", *args)
    assert result.exit_code == 2
    assert said in result.stderr
    assert states(url)["mail"]["state"] == "indeterminate"
