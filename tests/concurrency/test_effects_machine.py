"""Random sequences of runs, guards, crashes and resolutions on branches, against a model that counts real calls."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, ClassVar

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from eventstore import EventStore
from eventstore.errors import (
    EffectCompensated,
    EffectFailed,
    EffectIndeterminate,
    EffectPending,
    EffectRefused,
    IdempotencyConflict,
)

KEYS = ["k", "k:1", "\ud800" * 300]
STREAMS = ["main", "branch", "early", "neighbour"]
ARGUMENTS = {"a": [1, "x"]}

keys = st.sampled_from(KEYS)
streams = st.sampled_from(STREAMS)
REFUSALS: dict[str, type[Exception]] = {
    "pending": EffectPending,
    "indeterminate": EffectIndeterminate,
    "compensated": EffectCompensated,
}


class Doubt(Exception):
    """The call does not know."""


@dataclass
class Known:
    """What a key should be."""

    state: str = "none"
    attempt: int = 0
    result: Any = None
    calls: int = 0
    happened: int = 0
    guards: list[tuple[Any, int]] = field(default_factory=list)


class Effects(RuleBasedStateMachine):
    """Each run has a tenant of its own."""

    store: ClassVar[EventStore]
    db: ClassVar[psycopg.Connection]

    def __init__(self) -> None:
        super().__init__()
        self.scope = self.store.for_tenant(uuid.uuid4().hex)
        main = self.scope.conversation("main", context="ctx")
        main.append(["hello"])
        main.fork("branch", at=1)
        main.fork("early", at=0)
        self.model = {key: Known() for key in KEYS}

    def effects(self, stream: str) -> Any:
        return self.scope.conversation(stream, context="ctx").effects

    @rule(key=keys, stream=streams, ends=st.sampled_from(["well", "in doubt", "failed"]), number=st.integers(0, 9))
    def run(self, key: str, stream: str, ends: str, number: int) -> None:
        known = self.model[key]

        def call() -> int:
            known.calls += 1
            if ends == "in doubt":
                raise Doubt
            if ends == "failed":
                raise EffectFailed
            return number

        before = known.calls
        expected = REFUSALS.get(known.state)
        free = known.state in ("none", "failed")
        if free and ends != "well":
            expected = Doubt if ends == "in doubt" else EffectFailed
        if expected is not None:
            with pytest.raises(expected):
                self.effects(stream).run("t", call, key=key, arguments=ARGUMENTS)
        else:
            result = self.effects(stream).run("t", call, key=key, arguments=ARGUMENTS)
            assert result == (number if free else known.result)
        assert known.calls - before == free
        if free:
            known.attempt += 1
            known.state = {"well": "succeeded", "in doubt": "indeterminate", "failed": "failed"}[ends]
            known.result = number if ends == "well" else None

    @rule(key=keys, stream=streams)
    def another_call_under_the_key(self, key: str, stream: str) -> None:
        if self.model[key].state != "none":
            with pytest.raises(IdempotencyConflict):
                self.effects(stream).run("t", lambda: 1 / 0, key=key, arguments={"a": [1, "y"]})

    @rule(key=keys, stream=streams)
    def begins(self, key: str, stream: str) -> None:
        """A caller that is then somewhere in its call, perhaps for ever."""
        known = self.model[key]
        guard = self.effects(stream).guard("t", key=key, arguments=ARGUMENTS, lease=3600)
        expected = REFUSALS.get(known.state)
        if expected is not None:
            with pytest.raises(expected):
                guard.__enter__()
        elif known.state == "succeeded":
            assert guard.__enter__().done
        else:
            assert not guard.__enter__().done
            known.attempt, known.state, known.calls = known.attempt + 1, "pending", known.calls + 1
            known.guards.append((guard, known.attempt))

    @precondition(lambda self: any(known.state == "pending" for known in self.model.values()))
    @rule()
    def all_leases_end(self) -> None:
        self.db.execute(
            "UPDATE events SET recorded_at = recorded_at - interval '1 day' WHERE type = 'effect.intended'"
            " AND tenant_id = (SELECT tenant_id FROM tenants WHERE name = %s)",
            [self.scope.tenant],
        )
        for known in self.model.values():
            if known.state == "pending":
                known.state = "indeterminate"

    @precondition(lambda self: any(known.guards for known in self.model.values()))
    @rule(data=st.data(), ends=st.sampled_from(["well", "failed", "in doubt"]), number=st.integers(10, 19))
    def ends(self, data: st.DataObject, ends: str, number: int) -> None:
        """A caller comes back, in time or late."""
        key = data.draw(st.sampled_from([key for key, known in self.model.items() if known.guards]))
        known = self.model[key]
        guard, attempt = known.guards.pop(data.draw(st.integers(0, len(known.guards) - 1)))
        counts = attempt == known.attempt and known.state in ("pending", "indeterminate")
        if ends == "in doubt":
            guard.__exit__(None, None, None)
            if counts:
                known.state = "indeterminate"
            return
        if not counts:
            with pytest.raises(EffectRefused):
                guard.succeed(number) if ends == "well" else guard.fail("no")
            return
        if ends == "well":
            guard.succeed(number)
            known.state, known.result = "succeeded", number
        else:
            guard.fail("no")
            known.state = "failed"

    @rule(key=keys, stream=streams, succeeded=st.booleans())
    def resolve(self, key: str, stream: str, succeeded: bool) -> None:
        known = self.model[key]
        effects = self.effects(stream)
        if known.state == "none":
            expected: type[Exception] | None = EffectRefused
        elif known.state == "pending":
            expected = EffectPending
        elif known.state != "indeterminate" and (known.state != "failed") != succeeded:
            expected = IdempotencyConflict
        else:
            expected = None
        if expected is not None:
            with pytest.raises(expected):
                effects.resolve(key, succeeded)
            return
        said = effects.resolve(key, succeeded, "seen" if succeeded and known.state == "indeterminate" else None)
        if known.state == "indeterminate":
            known.state, known.result = ("succeeded", "seen") if succeeded else ("failed", None)
        assert said.state == known.state

    @rule(key=keys, stream=streams, result=st.sampled_from(["undone", None]))
    def compensate(self, key: str, stream: str, result: Any) -> None:
        known = self.model[key]
        effects = self.effects(stream)
        if known.state == "succeeded":
            assert effects.compensate(key, result).state == "compensated"
            known.state, known.happened = "compensated", 0 if result is None else 1
            return
        expected: type[Exception] = REFUSALS.get(known.state, EffectRefused)
        if known.state == "compensated":
            if known.happened == (result is not None):
                assert effects.compensate(key, result).state == "compensated"
                return
            expected = IdempotencyConflict
        with pytest.raises(expected):
            effects.compensate(key, result)

    @invariant()
    def every_stream_tells_what_the_model_says(self) -> None:
        for stream in ("main", "neighbour"):
            found = {effect.key: effect for effect in self.effects(stream).list()}
            assert set(found) == {key for key, known in self.model.items() if known.state != "none"}
            for key, effect in found.items():
                known = self.model[key]
                assert (effect.state, effect.attempt) == (known.state, known.attempt)
                assert known.calls == known.attempt, "a call for each attempt, and no other"
                if effect.state in ("succeeded", "compensated"):
                    assert effect.result == known.result


def test_no_sequence_calls_a_tool_after_success_or_while_it_may_be_at_it(
    store: EventStore, db: psycopg.Connection
) -> None:
    Effects.store, Effects.db = store, db
    run_state_machine_as_test(
        Effects,
        settings=settings(
            max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
