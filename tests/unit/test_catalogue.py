"""The event catalogue: what each type accepts, how it refuses, how old data becomes current."""

from __future__ import annotations

import copy
import json
import pathlib
from typing import Any

import pytest
from pydantic import BaseModel

from eventstore import errors
from eventstore.log import catalogue
from eventstore.log.catalogue.fields import Data, Name

DESIGN = pathlib.Path(__file__).parents[3] / "shared" / "design"

TYPES = [
    "item.appended",
    "summary.appended",
    "items.retracted",
    "history.cleared",
    "history.compacted",
    "stream.forked",
    "stream.tagged",
    "stream.closed",
    "response.recorded",
    "task.opened",
    "task.changed",
    "artifact.published",
    "constraint.added",
    "constraint.revoked",
    "decision.confirmed",
    "decision.revoked",
    "question.opened",
    "question.answered",
    "todo.added",
    "todo.done",
    "handoff.offered",
    "handoff.accepted",
    "handoff.rejected",
    "handoff.committed",
    "handoff.failed",
    "handoff.rolled_back",
    "effect.intended",
    "effect.succeeded",
    "effect.failed",
    "effect.indeterminate",
    "effect.resolved",
    "effect.compensated",
    "context.erased",
]

SHA = "0123456789abcdef" * 4
EVENT_ID = "0190a5a0-7e5e-7cc1-9c7b-5d7f3a1b2c3d"
ENVELOPE: dict[str, Any] = {
    "schema_version": 2,
    "context_id": "ctx",
    "task_id": "task",
    "handoff_id": "h1",
    "goal": "answer",
    "constraints": ["cite sources"],
    "decisions": [],
    "open_questions": [],
    "artifacts": [{"name": "draft", "uri": "store://a", "version": 3}],
    "budget": {"max_tool_calls": 4, "max_tokens": 6000},
    "owner": "reviewer",
    "status": "ready",
}
OFFER = {"handoff_id": "h1", "attempt": 1, "envelope": ENVELOPE}
COMPACTED: dict[str, Any] = {
    "covers": [1, 20],
    "items": 1,
    "basis": "originals",
    "depth": 1,
    "method": "my.summarizer",
    "bytes_before": 9000,
    "bytes_after": 300,
    "digest": SHA,
    "control": 0,
}
INTENDED: dict[str, Any] = {
    "key": "refund-1",
    "tool": "refund",
    "arguments": {"amount": 5},
    "arguments_sha256": SHA,
    "attempt": 1,
    "lease": 60.0,
}

VALID: list[tuple[str, Any]] = [
    ("item.appended", {"type": "message", "role": "user", "content": "hi"}),
    ("item.appended", None),
    ("summary.appended", ["any", 1, {}]),
    ("history.compacted", COMPACTED),
    (
        "history.compacted",
        COMPACTED
        | {"items": 0, "basis": "summary", "model": "m", "usage": {"input": 3}, "seconds": 2}
        | {"tokens_before": 100, "tokens_after": None},
    ),
    ("items.retracted", {"ranges": [[5, 7], [9, 9]], "reason": "pop", "control": 3}),
    ("history.cleared", {}),
    ("history.cleared", {"reason": "new topic", "control": 12}),
    ("stream.forked", {"parent": "main", "at": 0}),
    ("stream.forked", {"parent": "main", "at": 10, "owner": "root"}),
    ("stream.tagged", {"tags": {"channel": "web"}}),
    ("stream.closed", {"reason": None}),
    ("response.recorded", {"response_id": "resp_1"}),
    (
        "response.recorded",
        {
            "response_id": "resp_1",
            "receipt": {"stream": "s", "version": 9, "options": {"limit": 3}, "sha256": SHA},
            "previous_response_id": "resp_0",
            "conversation_id": None,
            "model": "m",
            "usage": {"input_tokens": 9, "details": {"cached": 1}},
        },
    ),
    ("task.opened", {"task_id": "t", "goal": "g"}),
    ("task.opened", {"task_id": "t", "goal": "g", "follows": "s", "compensates": ["k"]}),
    ("task.changed", {"task_id": "t", "status": "input-required", "reason": "rolled back"}),
    ("artifact.published", {"name": "n", "uri": "u", "version": 1}),
    (
        "artifact.published",
        {
            "name": "n",
            "uri": "u",
            "version": 2,
            "digest": "sha256:ab",
            "summary": "s",
            "derived_from": ["u", {"uri": "u", "version": 1}, {"event_id": EVENT_ID}],
        },
    ),
    ("constraint.added", {"fact_id": "f", "text": "only official sources"}),
    ("constraint.added", {"fact_id": "f", "text": "lone \ud800 surrogate, \u0000"}),
    ("constraint.revoked", {"fact_id": "f", "reason": "lifted"}),
    ("decision.confirmed", {"fact_id": "f", "text": "t", "evidence": [{"version": 4}]}),
    (
        "decision.confirmed",
        {
            "fact_id": "f",
            "text": "t",
            "evidence": [
                {"event_id": EVENT_ID},
                {"stream": "s", "version": 1},
                {"uri": "u", "version": 2},
            ],
        },
    ),
    ("decision.revoked", {"fact_id": "f", "reason": "r", "evidence": [{"version": 1}]}),
    ("question.opened", {"question_id": "q", "text": "why?"}),
    ("question.answered", {"question_id": "q", "text": "so", "evidence": [{"version": 1}]}),
    ("todo.added", {"todo_id": "d", "text": "t"}),
    ("todo.done", {"todo_id": "d"}),
    ("handoff.offered", OFFER),
    ("handoff.offered", OFFER | {"allow_incomplete": True, "missing": ["success"]}),
    (
        "handoff.offered",
        OFFER
        | {
            "envelope": ENVELOPE
            | {
                "context_version": 7,
                "from_agent": "writer",
                "reason": "review",
                "success": "approved",
                "todos": ["proof-read"],
                "effects": [{"key": "k", "tool": "t", "state": "succeeded", "result": {"a": 1}}],
                "history": {
                    "mode": "flattened",
                    "covers": [1, 9],
                    "summary": "s",
                    "sources": [{"stream": "s", "version": 1}],
                    "updated_at": "2026-01-31T12:00:00Z",
                    "source_digest": SHA,
                    "bytes": 10,
                    "tokens": 3,
                    "trimmed": {"messages": 2},
                },
            }
        },
    ),
    ("handoff.accepted", {"handoff_id": "h1", "ack_id": "a", "by": "reviewer"}),
    ("handoff.rejected", {"handoff_id": "h1", "reason": "busy"}),
    ("handoff.committed", {"handoff_id": "h1"}),
    ("handoff.failed", {"handoff_id": "h1", "reason": "no acknowledgement", "return_to": {}}),
    (
        "handoff.failed",
        {
            "handoff_id": "h1",
            "reason": "r",
            "effects": ["k", {"key": "k2", "state": "succeeded"}],
            "return_to": {"handoff_id": "h0", "artifacts": [{"uri": "u", "version": 1}]},
        },
    ),
    ("handoff.rolled_back", {"handoff_id": "h1"}),
    (
        "handoff.rolled_back",
        {
            "handoff_id": "h1",
            "to": "h0",
            "artifacts": [{"uri": "u", "version": 1, "name": "n", "digest": "d"}],
            "effects": [{"key": "k"}],
            "task": "input-required",
        },
    ),
    ("effect.intended", INTENDED),
    ("effect.intended", INTENDED | {"arguments": None, "lease": 5}),
    ("effect.succeeded", {"key": "k", "attempt": 1, "result": {"id": 2**80}}),
    ("effect.failed", {"key": "k", "attempt": 1, "error": "refused"}),
    ("effect.indeterminate", {"key": "k", "attempt": 1, "reason": "TimeoutError: ", "happened": None}),
    ("effect.resolved", {"key": "k", "attempt": 1, "succeeded": True, "result": 1}),
    ("effect.resolved", {"key": "k", "attempt": 1, "succeeded": False, "reason": "the ledger has no such refund"}),
    ("effect.compensated", {"key": "k", "attempt": 2}),
    ("context.erased", {"reason": "request of the data subject"}),
]

FAILED = {"handoff_id": "h1", "reason": "r", "return_to": {}}
FACT = {"fact_id": "f", "text": "t"}
PUBLISHED = {"name": "n", "uri": "u", "version": 1}


def offer(**envelope: Any) -> dict[str, Any]:
    return OFFER | {"envelope": ENVELOPE | envelope}


def offer_without(field: str) -> dict[str, Any]:
    return OFFER | {"envelope": {k: v for k, v in ENVELOPE.items() if k != field}}


# type, data, the path that has to be named, what the reason has to say
INVALID: list[tuple[str, Any, str, str]] = [
    ("history.compacted", COMPACTED | {"covers": [0, 2]}, "data.covers[0]", "0 should be greater"),
    ("history.compacted", COMPACTED | {"covers": [3, 2]}, "data.covers", "[3, 2] should be [from"),
    ("history.compacted", COMPACTED | {"covers": [1]}, "data.covers[1]", "missing"),
    ("history.compacted", COMPACTED | {"covers": [1, 2, 3]}, "data.covers", "at most 2"),
    ("history.compacted", COMPACTED | {"covers": "12"}, "data.covers", "should be a list"),
    ("history.compacted", COMPACTED | {"covers": [1.0, 2]}, "data.covers[0]", "1.0 should be an"),
    ("history.compacted", COMPACTED | {"items": -1}, "data.items", "-1 should be greater"),
    ("history.compacted", COMPACTED | {"items": True}, "data.items", "True should be an integer"),
    ("history.compacted", COMPACTED | {"basis": "both"}, "data.basis", "'originals' or 'summary'"),
    ("history.compacted", COMPACTED | {"digest": "ABC"}, "data.digest", "SHA-256"),
    ("history.compacted", COMPACTED | {"digest": SHA + "\n"}, "data.digest", "SHA-256"),
    ("history.compacted", COMPACTED | {"seconds": float("inf")}, "data.seconds", "finite"),
    ("history.compacted", COMPACTED | {"coverz": 1}, "data.coverz", "did you mean 'covers'?"),
    ("items.retracted", {"ranges": [[5, 7], [9, 8]], "control": 3}, "data.ranges[1]", "from"),
    ("items.retracted", {"ranges": [], "control": 3}, "data.ranges", "at least 1 item"),
    ("items.retracted", {"ranges": [[1, 1]]}, "data.control", "missing; items.retracted needs"),
    ("history.cleared", {"control": -1}, "data.control", "-1"),
    ("history.cleared", None, "data", "None should be an object"),
    ("stream.forked", {"parent": "main", "at": -1}, "data.at", "-1"),
    ("stream.forked", {"parent": "", "at": 1}, "data.parent", "'' should not be empty"),
    ("stream.tagged", {"tags": {"a": 1}}, "data.tags.a", "1 should be text"),
    ("stream.tagged", {"tags": {"a b": 1}}, "data.tags['a b']", "1 should be text"),
    ("stream.tagged", {"tags": [["a", "b"]]}, "data.tags", "should be an object"),
    ("stream.closed", {"reason": 5}, "data.reason", "5 should be text"),
    ("response.recorded", {}, "data.response_id", "missing"),
    (
        "response.recorded",
        {"response_id": "r", "receipt": {"stream": "s", "version": 1, "options": {}}},
        "data.receipt.sha256",
        "missing",
    ),
    ("task.opened", {"task_id": "t", "goal": "  "}, "data.goal", "should not be blank"),
    ("task.opened", {"task_id": "t", "goal": "g", "compensates": "k"}, "data.compensates", "list"),
    ("task.changed", {"task_id": "t", "status": "done"}, "data.status", "'completed'"),
    ("artifact.published", PUBLISHED | {"version": 0}, "data.version", "0"),
    ("artifact.published", PUBLISHED | {"version": "1"}, "data.version", "'1' should be an int"),
    ("artifact.published", PUBLISHED | {"body": "…"}, "data.body", "the fields are name, uri"),
    (
        "artifact.published",
        PUBLISHED | {"derived_from": ["u", {"uri": "u", "versio": 2}]},
        "data.derived_from[1].versio",
        "did you mean 'version'?",
    ),
    ("artifact.published", PUBLISHED | {"derived_from": [5]}, "data.derived_from[0]", "be text"),
    ("constraint.added", {"fact_id": "f"}, "data.text", "missing"),
    ("constraint.added", FACT | {"text": ["t"]}, "data.text", "['t'] should be text"),
    ("constraint.revoked", {"fact_id": "f"}, "data.reason", "missing"),
    ("decision.confirmed", FACT, "data.evidence", "missing"),
    ("decision.confirmed", FACT | {"evidence": []}, "data.evidence", "at least 1 item"),
    ("decision.confirmed", FACT | {"evidence": [{"uri": "u"}]}, "data.evidence[0]", "{uri, ver"),
    (
        "decision.confirmed",
        FACT | {"evidence": [{"version": 1}, {"event_id": "e"}]},
        "data.evidence[1].event_id",
        "'e' should be an event id",
    ),
    (
        "decision.confirmed",
        FACT | {"evidence": [{"event_id": EVENT_ID, "version": 1}]},
        "data.evidence[0]",
        "nothing else",
    ),
    ("decision.revoked", {"fact_id": 1, "reason": "r"}, "data.fact_id", "1 should be text"),
    ("question.opened", {"question_id": "q", "text": ""}, "data.text", "blank"),
    ("question.answered", {"text": "t"}, "data.question_id", "missing"),
    ("todo.added", {"todo_id": "d", "txt": "t"}, "data.txt", "did you mean 'text'?"),
    ("todo.done", {"todo_id": ""}, "data.todo_id", "empty"),
    ("handoff.offered", OFFER | {"attempt": 0}, "data.attempt", "0"),
    ("handoff.offered", OFFER | {"handoff_id": "h2"}, "data", "'h2' and, in its envelope, 'h1'"),
    ("handoff.offered", OFFER | {"allow_incomplete": 1}, "data.allow_incomplete", "true or false"),
    ("handoff.offered", offer(schema_version=3), "data.envelope.schema_version", "3 should be 2"),
    ("handoff.offered", offer(goal=""), "data.envelope.goal", "blank"),
    ("handoff.offered", offer(constraints=[{}]), "data.envelope.constraints[0]", "be text"),
    (
        "handoff.offered",
        offer(budget={"max_token": 1, "max_tool_calls": 1}),
        "data.envelope.budget.max_token",
        "did you mean 'max_tokens'?",
    ),
    (
        "handoff.offered",
        offer(effects=[{"key": "k", "state": "succeeded"}]),
        "data.envelope.effects[0].tool",
        "missing",
    ),
    (
        "handoff.offered",
        offer(history={"mode": "m", "updated_at": "2026-01-31T12:00:00"}),
        "data.envelope.history.updated_at",
        "zone",
    ),
    *(
        ("handoff.offered", offer_without(field), f"data.envelope.{field}", "missing")
        for field in ENVELOPE
        if field != "handoff_id"
    ),
    ("handoff.accepted", {"handoff_id": "h", "by": "b"}, "data.ack_id", "missing"),
    ("handoff.rejected", {"handoff_id": "h"}, "data.reason", "missing"),
    ("handoff.committed", {"handoff_id": "h", "by": "b"}, "data.by", "unknown field"),
    ("handoff.failed", {"handoff_id": "h", "reason": "r"}, "data.return_to", "missing"),
    ("handoff.failed", FAILED | {"effects": [{"tool": "t"}]}, "data.effects[0].key", "missing"),
    ("handoff.rolled_back", {"handoff_id": "h", "task": "open"}, "data.task", "'working'"),
    ("effect.intended", INTENDED | {"lease": 0}, "data.lease", "greater than 0"),
    ("effect.intended", INTENDED | {"lease": "60"}, "data.lease", "'60' should be a number"),
    ("effect.intended", INTENDED | {"arguments_sha256": ""}, "data.arguments_sha256", "SHA-256"),
    ("effect.succeeded", {"key": "k", "result": 1}, "data.attempt", "missing"),
    ("effect.failed", {"key": "k", "attempt": 1}, "data.error", "missing"),
    ("effect.indeterminate", {"key": "k", "attempt": 1}, "data.reason", "missing"),
    ("effect.resolved", {"key": "k", "attempt": 1, "succeeded": "yes"}, "data.succeeded", "true"),
    ("effect.compensated", {"key": "k", "attempt": 1.5}, "data.attempt", "1.5 should be an int"),
    ("context.erased", {}, "data.reason", "missing"),
]


def test_the_catalogue_has_exactly_the_types_of_the_format() -> None:
    assert sorted(TYPES) == list(catalogue.types())
    assert set(TYPES) == {each for each, _ in VALID}
    assert set(TYPES) - {"item.appended", "summary.appended"} == {each[0] for each in INVALID}


def test_control_names_the_types_that_change_a_transcript() -> None:
    assert {"history.compacted", "items.retracted", "history.cleared"} == catalogue.CONTROL
    assert set(catalogue.types()) > catalogue.CONTROL


@pytest.mark.parametrize(("event_type", "data"), VALID)
def test_valid_data_passes_and_is_left_as_it_was(event_type: str, data: Any) -> None:
    before = copy.deepcopy(data)
    assert catalogue.check(event_type, data) == catalogue.current_version(event_type) == 1
    assert catalogue.upcast(event_type, 1, data) is data
    assert isinstance(catalogue.load(event_type, data), BaseModel)
    assert repr(data) == repr(before)


@pytest.mark.parametrize(("event_type", "data", "path", "reason"), INVALID)
def test_a_refusal_names_the_path_the_value_and_what_would_be_right(
    event_type: str, data: Any, path: str, reason: str
) -> None:
    before = copy.deepcopy(data)
    with pytest.raises(errors.InvalidEvent) as caught:
        catalogue.check(event_type, data)
    assert caught.value.path == path
    assert reason in caught.value.reason
    assert repr(data) == repr(before)


@pytest.mark.parametrize("event_type", sorted(set(TYPES) - {"item.appended", "summary.appended"}))
def test_an_unknown_field_is_refused_by_every_type(event_type: str) -> None:
    data = next(data for each, data in VALID if each == event_type)
    with pytest.raises(errors.InvalidEvent, match="unknown field") as caught:
        catalogue.check(event_type, {**data, "surprise": 1})
    assert caught.value.path == "data.surprise"


@pytest.mark.parametrize(
    ("event_type", "says"),
    [
        ("task.open", "did you mean 'task.opened'"),
        ("items.appended", "'item.appended'"),
        ("handoff.rolledback", "'handoff.rolled_back'"),
        ("", "start with 'x.'"),
        ("my.type", "start with 'x.'"),
        ("x.", "at least one of the characters"),
        ("x.Mine", "a-z 0-9"),
        ("x.mine\n", "a-z 0-9"),
        ("x." + "a" * 127, "at most 128"),
        (None, "should be text"),
        ([], "should be text"),
    ],
)
def test_an_unknown_type_is_refused_with_its_near_misses(event_type: Any, says: str) -> None:
    with pytest.raises(errors.InvalidEvent) as caught:
        catalogue.check(event_type, {})
    assert caught.value.path == "type"
    assert says in caught.value.reason


@pytest.mark.parametrize("event_type", ["x.a", "x.team.ticket_opened-2", "x." + "a" * 126])
@pytest.mark.parametrize("data", [None, 1.5, "text", [1], {"any": {"thing": []}}])
def test_types_of_ones_own_carry_any_json(event_type: str, data: Any) -> None:
    assert catalogue.check(event_type, data) == catalogue.current_version(event_type) == 1
    assert catalogue.upcast(event_type, 1, data) is data
    assert catalogue.load(event_type, data).model_dump() == data


def test_load_gives_typed_values() -> None:
    compacted = catalogue.load("history.compacted", COMPACTED)
    assert compacted.covers == (1, 20)  # type: ignore[attr-defined]
    offered = catalogue.load("handoff.offered", OFFER)
    assert isinstance(offered.envelope, catalogue.Envelope)  # type: ignore[attr-defined]


def test_load_checks_as_well() -> None:
    with pytest.raises(errors.InvalidEvent, match=r"data\.goal"):
        catalogue.load("task.opened", {"task_id": "t"})


class Ticket(Data):
    """The third version of a type that only these tests know."""

    ticket_id: Name
    priority: int


def three_versions() -> catalogue.Catalogue:
    own = catalogue.Catalogue()
    own.event("ticket.opened", version=3)(Ticket)

    @own.upcaster("ticket.opened", from_version=1)
    def _(data: dict[str, Any]) -> dict[str, Any]:
        return {"ticket_id": data["id"], "urgent": data["urgent"]}

    @own.upcaster("ticket.opened", from_version=2)
    def _(data: dict[str, Any]) -> dict[str, Any]:
        return {"ticket_id": data["ticket_id"], "priority": 9 if data["urgent"] else 1}

    own.freeze()
    return own


def test_upcasters_are_chained_up_to_the_current_version() -> None:
    own = three_versions()
    old = {"id": "a", "urgent": True}
    new = {"ticket_id": "a", "priority": 9}
    assert own.upcast("ticket.opened", 1, old) == new
    assert own.upcast("ticket.opened", 2, {"ticket_id": "a", "urgent": True}) == new
    assert own.upcast("ticket.opened", 3, new) is new
    assert old == {"id": "a", "urgent": True}
    assert own.check("ticket.opened", new) == own.current_version("ticket.opened") == 3
    assert own.load("ticket.opened", new) == Ticket(ticket_id="a", priority=9)
    with pytest.raises(errors.InvalidEvent, match=r"data\.id"):
        own.check("ticket.opened", old)


@pytest.mark.parametrize(
    ("event_type", "version", "says"),
    [
        ("task.opened", 2, r"task\.opened has schema version 2, known here up to 1"),
        ("item.appended", 7, r"item\.appended has schema version 7, known here up to 1"),
        ("x.mine", 2, r"x\.mine has schema version 2"),
        ("task.archived", 1, r"'task\.archived' \(schema version 1\) is not known here"),
    ],
)
def test_what_newer_code_wrote_is_refused_by_name(event_type: str, version: int, says: str) -> None:
    with pytest.raises(errors.SchemaOutOfDate, match=says):
        catalogue.upcast(event_type, version, {})


def test_schema_versions_begin_at_1() -> None:
    with pytest.raises(errors.InvalidEvent, match="begin at 1"):
        catalogue.upcast("task.opened", 0, {})


def test_a_catalogue_with_a_gap_in_its_upcasters_does_not_freeze() -> None:
    own = catalogue.Catalogue()
    own.event("ticket.opened", version=3)(Ticket)
    own.upcaster("ticket.opened", from_version=2)(lambda data: data)
    with pytest.raises(ValueError, match=r"ticket\.opened: no upcaster from version 1"):
        own.freeze()


def test_a_registration_that_contradicts_another_is_refused() -> None:
    own = catalogue.Catalogue()
    own.event("ticket.opened", version=2)(Ticket)
    own.upcaster("ticket.opened", from_version=1)(lambda data: data)
    with pytest.raises(ValueError, match="registered already"):
        own.event("ticket.opened", version=2)(Ticket)
    with pytest.raises(ValueError, match="registered already"):
        own.upcaster("ticket.opened", from_version=1)(lambda data: data)
    with pytest.raises(ValueError, match="no step from 2"):
        own.upcaster("ticket.opened", from_version=2)(lambda data: data)
    with pytest.raises(ValueError, match="not registered"):
        own.upcaster("ticket.closed", from_version=1)(lambda data: data)
    with pytest.raises(ValueError, match="begin at 1"):
        own.event("ticket.closed", version=0)(Ticket)


def test_the_catalogue_of_the_product_is_frozen() -> None:
    with pytest.raises(RuntimeError, match="frozen"):
        catalogue.CATALOGUE.event("ticket.opened", version=1)(Ticket)
    with pytest.raises(RuntimeError, match="frozen"):
        catalogue.CATALOGUE.upcaster("task.opened", from_version=1)(lambda data: data)
    assert "ticket.opened" not in catalogue.types()


def test_the_sample_envelope_is_valid_unchanged() -> None:
    path = DESIGN / "envelope_v2_sample.json"
    if not path.exists():
        pytest.skip(f"the sample envelope is not here: {path}")
    sample = json.loads(path.read_text(encoding="utf-8"))
    envelope = catalogue.Envelope.model_validate(sample)
    assert envelope.model_dump(exclude_unset=True, mode="json") == sample
    assert catalogue.check("handoff.offered", OFFER | {"handoff_id": "handoff_07", "envelope": sample})


def test_the_envelope_has_a_json_schema() -> None:
    schema = catalogue.Envelope.model_json_schema()
    assert set(schema["required"]) == set(ENVELOPE)
    assert schema["additionalProperties"] is False
