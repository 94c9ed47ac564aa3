"""The envelope: its versions, its size, what it lacks, and two of them beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lineage import envelope_of

from eventstore import Envelope, errors
from eventstore.log.catalogue.envelope import MAX_BYTES, check_size
from projections.envelopes import differences

SAMPLE = Path(__file__).parent.parent.parent.parent / "shared" / "design" / "envelope_v2_sample.json"
GOOD = envelope_of("h", "b")
V1 = {name: GOOD[name] for name in ("context_id", "task_id", "handoff_id", "goal", "owner")} | {"schema_version": 1}


def test_the_sample_comes_through_unchanged() -> None:
    if not SAMPLE.is_file():
        pytest.skip(f"the sample envelope is not here: {SAMPLE}")
    given_text = SAMPLE.read_text()
    envelope = Envelope.loads(given_text)
    assert envelope.as_json() == json.loads(given_text)
    assert envelope.check() == ["success"]


def test_version_1_comes_in_as_version_2() -> None:
    full = V1 | {"constraints": ["c"], "decisions": ["d"], "artifacts": [{"name": "n", "uri": "u", "version": 1}]}
    envelope = Envelope.load(full)
    assert envelope.schema_version == 2
    assert (envelope.constraints, envelope.decisions, envelope.artifacts[0].uri) == (["c"], ["d"], "u")
    assert (envelope.open_questions, envelope.budget.max_tokens, envelope.status) == ([], 0, "ready")
    assert Envelope.load(V1).constraints == []
    with pytest.raises(errors.HandoffRefused, match="schema version 1 has no such field") as refused:
        Envelope.load(full | {"budget": {"max_tool_calls": 1, "max_tokens": 1}})
    assert refused.value.field == "budget"


@pytest.mark.parametrize(
    ("data", "field", "says"),
    [
        (GOOD | {"schema_version": 3}, "schema_version", "newer code"),
        (GOOD | {"schema_version": 0}, "schema_version", "should be"),
        (GOOD | {"schema_version": True}, "schema_version", "should be"),
        ({k: v for k, v in GOOD.items() if k != "schema_version"}, "schema_version", "None"),
        (GOOD | {"goal": " \n"}, "goal", "blank"),
        (GOOD | {"decisions": ["d", ""]}, "decisions", r"decisions\[1\]"),
        (GOOD | {"artifacts": [{"name": "n", "uri": "u"}]}, "artifacts", "version: missing"),
        (GOOD | {"artefacts": []}, "artefacts", "did you mean 'artifacts'"),
        (GOOD | {"budget": {"max_tool_calls": -1, "max_tokens": 1}}, "budget", "greater than"),
        ({k: v for k, v in GOOD.items() if k != "owner"}, "owner", "missing"),
        ([], "envelope", "object"),
        (V1 | {"goal": ""}, "goal", "blank"),
    ],
)
def test_a_refusal_names_the_field(data: Any, field: str, says: str) -> None:
    with pytest.raises(errors.HandoffRefused, match=says) as refused:
        Envelope.load(data)
    assert refused.value.field == field


def test_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(errors.HandoffRefused, match="no JSON"):
        Envelope.loads("{")


def test_size_is_bounded_to_the_byte_and_the_largest_field_is_named() -> None:
    size = check_size(GOOD)
    assert size == len(json.dumps(GOOD, separators=(",", ":")))
    fits = GOOD | {"goal": GOOD["goal"] + "é" * ((MAX_BYTES - size) // 2) + "x" * ((MAX_BYTES - size) % 2)}
    assert check_size(fits) == MAX_BYTES
    assert Envelope.load(fits)
    with pytest.raises(errors.HandoffRefused, match=r"65,537 bytes.*'goal'") as refused:
        Envelope.load(fits | {"goal": fits["goal"] + "x"})
    assert refused.value.field == "goal"
    assert check_size(GOOD | {"goal": "\ud800"}) > size


def test_check_names_what_the_receiver_can_not_tell() -> None:
    assert Envelope.load(GOOD).check() == ["success", "constraints", "artifacts"]
    whole = GOOD | {"success": "sent", "constraints": ["c"], "artifacts": [{"name": "n", "uri": "u", "version": 1}]}
    assert Envelope.load(whole).check() == []
    assert Envelope.load(whole | {"success": " "}).check() == ["success"]
    assert Envelope.load(GOOD).model_copy(update={"goal": ""}).check()[0] == "goal"


def test_differences_go_field_by_field() -> None:
    other = GOOD | {
        "decisions": ["d"],
        "budget": {"max_tool_calls": 1, "max_tokens": 9},
        "todos": [],
        "owner": "c",
        "success": "s",
    }
    found = {each.field: each for each in differences(GOOD, other)}
    assert [*found] == ["decisions", "budget.max_tokens", "owner", "success"]
    assert (found["decisions"].added, found["decisions"].removed) == (("d",), ())
    assert (found["owner"].one, found["owner"].other) == ("b", "c")


texts = st.lists(st.text(min_size=1).filter(str.strip), max_size=3)


@given(texts, texts)
def test_what_differs_is_told_both_ways(one: list[str], other: list[str]) -> None:
    assert differences(GOOD | {"todos": one}, GOOD | {"todos": one}) == []
    forth = differences(GOOD | {"todos": one}, GOOD | {"todos": other})
    back = differences(GOOD | {"todos": other}, GOOD | {"todos": one})
    assert [(d.added, d.removed) for d in forth] == [(d.removed, d.added) for d in back]
    assert bool(forth) == (one != other)
