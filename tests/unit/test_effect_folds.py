"""What became of effects is a pure fold: leases by the given time, one outcome an attempt, success is for ever."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.conversation.effect_events import claim, compensated, resolved
from eventstore.errors import InvalidItem, InvalidName
from eventstore.log.canonical import canonical, digest
from eventstore.log.events import Event, RecordedEvent
from projections.effects import Effect, fold_effects

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
LEASE = 60.0


def recorded(event: Event, position: int, at: float = 0.0, stream: str = "s") -> RecordedEvent:
    return RecordedEvent(
        tenant="t",
        context="c",
        stream=stream,
        version=position,
        position=position,
        event_id=uuid.UUID(int=position),
        type=event.type,
        schema_version=1,
        data=event.data,
        metadata={},
        subject=event.subject,
        agent=event.agent,
        call_id=None,
        task_id=event.task_id,
        run_id=event.run_id,
        unique_key=event.unique_key,
        recorded_at=START + timedelta(seconds=at),
        hash=b"",
    )


def wanted(key: str = "k", agent: str | None = None) -> Any:
    return claim("refund", key, {"amount": 5}, LEASE, agent, "task-1", "run-1")


def fold(*events: Event, at: float = 1.0) -> Effect:
    (effect,) = fold_effects([recorded(event, n) for n, event in enumerate(events, 1)], START + timedelta(seconds=at))
    return effect


def test_an_attempt_is_pending_until_its_lease_ends_and_then_indeterminate() -> None:
    begun = wanted(agent="payer").intended(1)
    effect = fold(begun, at=LEASE - 0.001)
    assert (effect.state, effect.age, effect.lease, effect.by) == ("pending", LEASE - 0.001, LEASE, "payer")
    assert (effect.tool, effect.arguments, effect.task_id, effect.run_id) == (
        "refund",
        {"amount": 5},
        "task-1",
        "run-1",
    )
    effect = fold(begun, at=LEASE)
    assert (effect.state, effect.reason, effect.happened) == ("indeterminate", "its lease of 60 s is over", None)
    assert fold(begun, at=-5).age == 0, "a clock that was set back"


def test_its_caller_can_make_it_indeterminate_at_once() -> None:
    effect = fold(wanted().intended(1), wanted().indeterminate(1, "TimeoutError: ", None))
    assert (effect.state, effect.reason, effect.happened) == ("indeterminate", "TimeoutError: ", None)
    assert fold(wanted().intended(1), wanted().indeterminate(1, "no JSON", True)).happened is True


def test_the_first_outcome_of_an_attempt_counts_also_after_doubt() -> None:
    begun, doubt = wanted().intended(1), wanted().indeterminate(1, "?", None)
    effect = fold(begun, doubt, wanted().succeeded(1, 7), wanted().failed(1, "late"), at=1000)
    assert (effect.state, effect.result, effect.happened, effect.resolved) == ("succeeded", 7, True, False)
    effect = fold(begun, wanted().failed(1, ValueError("no money")), doubt, at=1000)
    assert (effect.state, effect.error, effect.happened) == ("failed", "ValueError: no money", False)


def test_a_resolution_is_an_outcome_and_says_why() -> None:
    begun = wanted(agent="payer").intended(1)
    lost = fold(begun, at=100)
    effect = fold(begun, resolved(lost, True, "re_1", "seen in the ledger", "ops"), at=100)
    assert (effect.state, effect.result, effect.reason) == ("succeeded", "re_1", "seen in the ledger")
    assert (effect.resolved, effect.by, effect.settled_by) == (True, "payer", "ops")
    assert fold(begun, resolved(lost, False, None, None, None), at=100).state == "failed"


def test_a_failure_frees_the_key_for_the_next_attempt_and_older_events_do_not_count() -> None:
    first = [wanted().intended(1), wanted().failed(1, "no")]
    effect = fold(*first, wanted().intended(2), wanted().indeterminate(1, "late", None))
    assert (effect.state, effect.attempt, effect.error) == ("pending", 2, None)
    effect = fold(*first, wanted().intended(2), wanted().succeeded(2, "ok"))
    assert (effect.state, effect.attempt, effect.result) == ("succeeded", 2, "ok")
    assert effect.versions == (("s", 1), ("s", 2), ("s", 3), ("s", 4))


def test_an_attempt_that_succeeded_counts_whatever_comes_after_it() -> None:
    done = [wanted().intended(1), wanted().succeeded(1, "ok")]
    assert fold(*done, wanted().intended(2), wanted().failed(2, "x")).state == "succeeded"
    effect = fold(*done, compensated(fold(*done), {"credit": 1}, "ops"), wanted().intended(2))
    assert (effect.state, effect.result, effect.compensation) == ("compensated", "ok", {"credit": 1})
    assert effect.settled_by == "ops"


def test_keys_that_are_stored_alike_are_told_apart_and_events_of_no_intention_break_nothing() -> None:
    events = [recorded(wanted(key).intended(1), n) for n, key in enumerate(["b", "a", "a:1"], 1)]
    assert [effect.key for effect in fold_effects(events, START)] == ["b", "a", "a:1"]
    effect = fold(wanted().succeeded(3, 1))
    assert (effect.state, effect.tool, effect.attempt) == ("succeeded", "", 3)
    assert fold_effects([], START) == []


steps = st.lists(
    st.sampled_from(["intended", "succeeded", "failed", "doubt", "resolved", "refuted", "undone"]), max_size=12
)


@given(steps, st.floats(0, 200), st.randoms())
def test_any_events_in_any_order_fold_to_one_effect_and_success_is_for_ever(
    kinds: list[str], at: float, random: Any
) -> None:
    """Of what the log admits; a model that goes event by event says the same."""
    events: list[Event] = []
    attempt, begun, outcome, doubt, undone = 0, False, None, False, False
    for kind in kinds:
        if kind == "intended" and (not begun or outcome is False):
            attempt, begun, outcome, doubt = attempt + 1, True, None, False
            events.append(wanted().intended(attempt))
        elif not begun:
            continue
        elif kind in ("succeeded", "failed", "resolved", "refuted") and outcome is None:
            outcome = kind in ("succeeded", "resolved")
            lost = fold(*events, at=1000)
            events.append(
                {
                    "succeeded": wanted().succeeded(attempt, 1),
                    "failed": wanted().failed(attempt, "no"),
                    "resolved": resolved(lost, True, 1, None, None),
                    "refuted": resolved(lost, False, None, None, None),
                }[kind]
            )
        elif kind == "doubt" and not doubt:
            doubt = True
            events.append(wanted().indeterminate(attempt, "?", None))
        elif kind == "undone" and outcome and not undone:
            undone = True
            events.append(compensated(fold(*events), None, None))
    given_events = [recorded(event, n) for n, event in enumerate(events, 1)]
    random.shuffle(given_events)
    found = fold_effects(given_events, START + timedelta(seconds=at))
    if not begun:
        assert found == []
        return
    (effect,) = found
    waiting = "pending" if at < LEASE and not doubt else "indeterminate"
    expected = "compensated" if undone else {None: waiting, True: "succeeded", False: "failed"}[outcome]
    assert (effect.state, effect.attempt) == (expected, attempt)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(json_values, json_values)
def test_the_canonical_form_is_the_same_for_equal_values_alone(one: Any, other: Any) -> None:
    def tagged(value: Any) -> Any:  # so that True is not 1
        if isinstance(value, bool):
            return ("bool", value)
        if isinstance(value, dict):
            return ("dict", frozenset((key, tagged(inner)) for key, inner in value.items()))
        return tuple(map(tagged, value)) if isinstance(value, list) else value

    assert (canonical(one) == canonical(other)) == (tagged(one) == tagged(other))


def test_the_canonical_form_sorts_keys_and_keeps_numbers_exact() -> None:
    assert canonical({"b": [1.0, -0.0, 0.1], "a": "ü\ud800"}) == b'{"a":"\\u00fc\\ud800","b":[1,0,0.1]}'
    assert digest({"a": 1, "b": 2}) == digest({"b": 2.0, "a": 1})
    assert digest(2**53) != digest(2**53 + 1)
    assert digest(1e22) == digest(10**22)
    assert digest([1]) != digest([True])


def test_no_key_claims_what_another_key_claims() -> None:
    keys = ["a", "a:1", "a:1:intention", "a:1:outcome", "A", "\ud800", "x" * 600, "x" * 601, "\x00", " "]
    held = [
        event.unique_key
        for key in keys
        for attempt in (1, 11)
        for event in (
            wanted(key).intended(attempt),
            wanted(key).succeeded(attempt, None),
            wanted(key).indeterminate(attempt, "", None),
        )
    ]
    assert len(set(held)) == len(held)
    effect = fold(wanted("a").intended(1))
    outcomes = {
        wanted("a").succeeded(1, 1).unique_key,
        wanted("a").failed(1, 1).unique_key,
        resolved(effect, True, 1, None, None).unique_key,
    }
    assert len(outcomes) == 1, "an attempt has one outcome, of whatever kind"


@pytest.mark.parametrize("error", [object(), {"at": START}, float("nan"), ("a",)])
def test_a_failure_is_recorded_whatever_its_error_is(error: Any) -> None:
    told = wanted().failed(1, error).data["error"]
    assert isinstance(told, str)
    assert told


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"key": ""}, InvalidName),
        ({"key": 7}, InvalidName),
        ({"tool": ""}, InvalidName),
        ({"tool": None}, InvalidName),
        ({"lease": 0}, InvalidItem),
        ({"lease": -1.0}, InvalidItem),
        ({"lease": float("nan")}, InvalidItem),
        ({"lease": float("inf")}, InvalidItem),
        ({"lease": 10**400}, InvalidItem),
        ({"lease": "60"}, InvalidItem),
        ({"arguments": {"at": START}}, InvalidItem),
    ],
)
def test_a_claim_that_can_not_be_is_refused_by_name(change: dict[str, Any], error: type[Exception]) -> None:
    given_ones = {
        "tool": "t",
        "key": "k",
        "arguments": None,
        "lease": 60,
        "agent": None,
        "task_id": None,
        "run_id": None,
    }
    with pytest.raises(error) as caught:
        claim(**(given_ones | change))
    assert next(iter(change)) in str(caught.value)
