"""An effect with one key runs once, whoever retries, on whatever branch; in each way to use the product."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from contract import Untouched

from eventstore import Event, EventStore
from eventstore.conversation.effect_events import claim
from eventstore.errors import (
    EffectCompensated,
    EffectFailed,
    EffectIndeterminate,
    EffectPending,
    EffectRefused,
    IdempotencyConflict,
    InvalidItem,
    InvalidName,
    StreamClosed,
    UniqueKeyConflict,
)
from eventstore.log.connection import Pooled


class Tool:
    """A tool in the world: counts what it really did."""

    def __init__(self, result: Any = None, error: BaseException | None = None) -> None:
        self.calls = 0
        self.result = {"refund": "re_1"} if result is None else result
        self.error = error

    def __call__(self) -> Any:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.result


class Doubt(Exception):
    """Nobody knows whether it happened."""


ARGUMENTS = {"order": "4711", "amount": 120}


@pytest.fixture
def chat(any_store: Any) -> Any:
    return any_store.conversation("support", context="ctx")


def kinds(chat: Any) -> list[str]:
    return [event.type for event in chat.events()]


def refund(chat: Any, tool: Callable[[], Any], key: str = "refund-4711", **given: Any) -> Any:
    return chat.effects.run("refund", tool, key=key, arguments=given.pop("arguments", ARGUMENTS), **given)


def only(chat: Any) -> Any:
    (effect,) = chat.effects.list()
    return effect


def expire(db: psycopg.Connection, store: Any, key: str = "refund-4711") -> None:
    """Let the lease end without waiting: the owner moves the intention into the past."""
    changed = db.execute(
        "UPDATE events SET recorded_at = recorded_at - interval '1 year' WHERE type = 'effect.intended'"
        " AND subject = %s AND tenant_id = (SELECT tenant_id FROM tenants WHERE name = %s)",
        [key, store.tenant],
    )
    assert changed.rowcount > 0


def test_the_first_run_calls_and_later_ones_return_the_recorded_result(chat: Any) -> None:
    tool = Tool()
    given = {"agent": "payer", "task_id": "t-1", "run_id": "r-1"}
    assert [refund(chat, tool, **given) for _ in range(3)] == [{"refund": "re_1"}] * 3
    assert tool.calls == 1
    assert kinds(chat) == ["effect.intended", "effect.succeeded"]
    begun, done = chat.events()
    assert {begun.subject, done.subject} == {"refund-4711"}
    assert begun.data["arguments"] == ARGUMENTS
    assert (begun.agent, begun.task_id, begun.run_id) == ("payer", "t-1", "r-1")
    assert (done.agent, done.task_id, done.run_id) == ("payer", None, "r-1")
    effect = only(chat)
    assert (effect.key, effect.tool, effect.state, effect.attempt) == ("refund-4711", "refund", "succeeded", 1)
    assert (effect.by, effect.result, effect.task_id) == ("payer", {"refund": "re_1"}, "t-1")
    assert chat.effects.find("refund-4711").versions == effect.versions == (("support", 1), ("support", 2))


def test_the_intention_is_committed_before_the_call(chat: Any, any_store: Any, contract_db: Any) -> None:
    seen = []

    def call() -> str:
        query = "SELECT count(*) FROM events WHERE type = 'effect.intended' AND tenant_id ="
        query += " (SELECT tenant_id FROM tenants WHERE name = %s)"
        seen.append(contract_db.execute(query, [any_store.tenant]).fetchone()[0])
        return "ok"

    refund(chat, call)
    assert seen == [1]


def test_the_first_run_is_two_round_trips_beside_the_call(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    real = Pooled.call

    def counted(self: Pooled, query: Any, *args: Any, **kwargs: Any) -> Any:
        sent.append(query.split("(")[0].split(".")[-1])
        return real(self, query, *args, **kwargs)

    monkeypatch.setattr(Pooled, "call", counted)
    chat = store.conversation("s")
    for key in ("a", "b"):
        refund(chat, Tool(), key=key)
    assert sent == ["append_event"] * 4
    refund(chat, Tool(), key="a")
    assert sent[4:] == ["append_event", "effect_events"]


def test_one_key_is_one_effect_over_all_branches_and_streams_of_a_context(chat: Any, any_store: Any) -> None:
    tool = Tool()
    chat.append(["hello"])
    early = chat.fork("early", at=0)
    refund(chat, tool)
    branch = chat.fork("plan-b", at=1)
    neighbour = any_store.conversation("neighbour", context="ctx")
    for other in (early, branch, neighbour, branch.fork("plan-c")):
        assert refund(other, tool) == {"refund": "re_1"}
        assert only(branch).versions == (("support", 2), ("support", 3))
    assert tool.calls == 1
    assert neighbour.head() == 0, "a repeat writes nothing"
    assert refund(any_store.conversation("elsewhere"), tool) == {"refund": "re_1"}
    assert refund(any_store.for_tenant(any_store.tenant + "-b").conversation("support", context="ctx"), tool)
    assert tool.calls == 3, "another context, another tenant"


def test_the_same_key_for_another_tool_or_other_arguments_is_refused_by_name(
    chat: Any, any_store: Any, contract_db: Any
) -> None:
    tool = Tool()
    refund(chat, tool)
    refund(chat, tool, arguments={"amount": 120.0, "order": "4711"})
    with Untouched(contract_db):
        with pytest.raises(IdempotencyConflict, match="120") as caught:
            refund(chat, tool, arguments=ARGUMENTS | {"amount": 121})
        assert "121" in str(caught.value)
        assert "refund-4711" in str(caught.value)
        with pytest.raises(IdempotencyConflict, match="cancel"):
            chat.effects.run("cancel", tool, key="refund-4711", arguments=ARGUMENTS)
        with pytest.raises(IdempotencyConflict):
            chat.effects.run("refund", tool, key="refund-4711")
    assert tool.calls == 1


def test_the_same_call_under_another_key_runs_and_shows(chat: Any) -> None:
    tool = Tool()
    refund(chat, tool)
    refund(chat, tool, key="again", arguments={"amount": 120.0, "order": "4711"})
    assert tool.calls == 2
    one, other = chat.effects.list()
    assert one.arguments_sha256 == other.arguments_sha256


@pytest.mark.parametrize("key", ["x" * 5_000, "\x00", "\ud800", "a b\nc", "ü" * 300, "refund:1", " "])
def test_a_key_is_any_string(chat: Any, key: str) -> None:
    tool = Tool()
    assert refund(chat, tool, key=key) == refund(chat, tool, key=key)
    assert tool.calls == 1
    assert only(chat).key == key
    digest = next(iter(chat.events())).subject
    if digest != key:  # who takes the stored form for a key has another key
        for _ in range(2):
            assert refund(chat, lambda: "another", key=digest) == "another"
        assert refund(chat, tool, key=key) == {"refund": "re_1"}
        assert tool.calls == 1
        assert [effect.key for effect in chat.effects.list()] == [key, digest]


def test_while_it_runs_others_are_told_by_whom_and_for_how_long(chat: Any, any_store: Any) -> None:
    tool = Tool()
    other = any_store.conversation("other", context="ctx")

    def call() -> str:
        with pytest.raises(EffectPending) as caught:
            refund(other, tool)
        pending = caught.value
        assert (pending.key, pending.by, pending.tool, pending.lease) == ("refund-4711", "payer", "refund", 50.0)
        assert 0 <= pending.age < 50
        assert "payer" in str(pending)
        with pytest.raises(EffectPending):
            other.effects.resolve("refund-4711", succeeded=False)
        with pytest.raises(EffectPending):
            other.effects.compensate("refund-4711")
        assert only(other).state == "pending"
        return "ok"

    # The other's calls come from within this one: only a thread of its own could await them.
    with chat.effects.guard("refund", key="refund-4711", arguments=ARGUMENTS, lease=50, agent="payer") as effect:
        effect.succeed(call())
    assert tool.calls == 0
    assert other.head() == 0


def test_after_its_lease_it_is_indeterminate_and_nobody_runs_it_until_it_is_resolved(
    chat: Any, any_store: Any, contract_db: Any
) -> None:
    tool = Tool()
    with chat.effects.guard("refund", key="refund-4711", arguments=ARGUMENTS, lease=3600) as late:
        expire(contract_db, any_store)
        for _ in range(2):
            with pytest.raises(EffectIndeterminate) as caught:
                refund(chat, tool)
        assert (caught.value.key, caught.value.tool, caught.value.by) == ("refund-4711", "refund", "support")
        assert "lease of 3600 s is over" in str(caught.value)
        assert "effects.resolve('refund-4711'" in str(caught.value)
        late.succeed("late")  # nobody has resolved it: it is the best that is known
    assert refund(chat, tool) == "late"
    assert tool.calls == 0


@pytest.mark.parametrize("succeeded", [True, False])
def test_the_outcome_of_an_attempt_that_was_resolved_is_refused(
    chat: Any, any_store: Any, contract_db: Any, succeeded: bool
) -> None:
    tool = Tool()
    with chat.effects.guard("refund", key="refund-4711", arguments=ARGUMENTS) as late:
        expire(contract_db, any_store)
        any_store.conversation("desk", context="ctx").effects.resolve("refund-4711", succeeded=succeeded, agent="ops")
        if not succeeded:
            assert refund(chat, tool) == {"refund": "re_1"}
        with pytest.raises(EffectRefused, match="by 'ops'" if succeeded else "succeeded"):
            late.succeed("late")
        with pytest.raises(EffectRefused, match="already"):
            late.fail("late")
    assert tool.calls == (0 if succeeded else 1)
    assert refund(chat, tool) == (None if succeeded else {"refund": "re_1"})


def test_an_exception_makes_it_indeterminate_at_once_and_is_the_callers(chat: Any) -> None:
    tool = Tool(error=Doubt("the line went dead"))
    with pytest.raises(Doubt):
        refund(chat, tool)
    with pytest.raises(EffectIndeterminate, match="Doubt: the line went dead"):
        refund(chat, tool)
    assert tool.calls == 1
    assert kinds(chat) == ["effect.intended", "effect.indeterminate"]
    with pytest.raises(EffectIndeterminate):
        chat.effects.compensate("refund-4711")


def test_a_guard_says_the_outcome_itself(chat: Any) -> None:
    def guard() -> Any:
        return chat.effects.guard("refund", key="refund-4711", arguments=ARGUMENTS)

    with guard() as effect:
        assert not effect.done
        effect.fail(Doubt("card refused"))
    assert only(chat).error == "Doubt: card refused"
    with guard() as effect:
        assert not effect.done
        effect.succeed({"n": 2})
        assert (effect.done, effect.result) == (True, {"n": 2})
        with pytest.raises(EffectRefused, match="already"):
            effect.succeed({"n": 3})
    with guard() as effect:
        assert (effect.done, effect.result) == (True, {"n": 2})
        with pytest.raises(EffectRefused, match="already"):
            effect.succeed({"n": 3})
    assert only(chat).attempt == 2
    with pytest.raises(EffectRefused, match="not begun"):
        guard().succeed(1)
    with pytest.raises(Doubt), guard() as effect:
        assert effect.done
        raise Doubt  # after the outcome: it stands
    assert only(chat).state == "succeeded"


def test_a_guard_left_without_an_outcome_makes_it_indeterminate(chat: Any) -> None:
    with chat.effects.guard("refund", key="k"):
        pass
    with pytest.raises(EffectIndeterminate, match="left without an outcome"):
        chat.effects.run("refund", Tool(), key="k")


def test_a_failure_for_certain_frees_the_key_for_the_next_attempt(chat: Any) -> None:
    with pytest.raises(EffectFailed):
        refund(chat, Tool(error=EffectFailed({"declined": "no money"})))
    assert (only(chat).state, only(chat).error) == ("failed", {"declined": "no money"})
    with pytest.raises(EffectRefused, match="nothing to undo"):
        chat.effects.compensate("refund-4711")
    with pytest.raises(IdempotencyConflict):
        refund(chat, Tool(), arguments={})
    tool = Tool()
    assert refund(chat, tool) == refund(chat, tool) == {"refund": "re_1"}
    assert tool.calls == 1
    assert [e.data["attempt"] for e in chat.events()] == [1, 1, 2, 2]


def test_who_looked_resolves_it_once(chat: Any, any_store: Any) -> None:
    tool = Tool(error=Doubt())
    with pytest.raises(Doubt):
        refund(chat, tool)
    desk = any_store.conversation("desk", context="ctx").effects
    with pytest.raises(EffectRefused, match="attempt 1 counts"):
        desk.resolve("refund-4711", succeeded=True, attempt=2)
    effect = desk.resolve("refund-4711", succeeded=True, result="re_9", attempt=1, reason="in the ledger", agent="ops")
    assert (effect.state, effect.result, effect.resolved, effect.reason) == ("succeeded", "re_9", True, "in the ledger")
    head = chat.head(), any_store.conversation("desk").head()
    assert desk.resolve("refund-4711", succeeded=True, result="re_9").settled_by == "ops"
    assert desk.resolve("refund-4711", succeeded=True).result == "re_9"
    for other in ({"succeeded": False}, {"succeeded": True, "result": "re_8"}):
        with pytest.raises(IdempotencyConflict, match="re_9"):
            desk.resolve("refund-4711", **other)
    assert (chat.head(), any_store.conversation("desk").head()) == head
    assert refund(chat, tool) == "re_9"
    assert tool.calls == 1


def test_what_was_resolved_as_failed_runs_again(chat: Any) -> None:
    with pytest.raises(Doubt):
        refund(chat, Tool(error=Doubt()))
    assert chat.effects.resolve("refund-4711", succeeded=False).state == "failed"
    assert chat.effects.resolve("refund-4711", succeeded=False).attempt == 1
    tool = Tool()
    refund(chat, tool)
    assert (tool.calls, only(chat).attempt) == (1, 2)


def test_what_was_undone_is_not_run_again(chat: Any) -> None:
    tool = Tool()
    refund(chat, tool)
    undone = chat.effects.compensate("refund-4711", {"credit": 7}, agent="ops")
    assert (undone.state, undone.compensation, undone.result) == ("compensated", {"credit": 7}, {"refund": "re_1"})
    assert chat.effects.compensate("refund-4711", {"credit": 7}).state == "compensated"
    with pytest.raises(IdempotencyConflict):
        chat.effects.compensate("refund-4711", {"credit": 8})
    with pytest.raises(EffectCompensated, match="by 'ops'") as caught:
        refund(chat, tool)
    assert caught.value.result == {"credit": 7}
    with pytest.raises(EffectCompensated):
        refund(chat.fork("plan-b", at=1), tool)
    assert tool.calls == 1
    assert len(list(chat.events())) == 3


@pytest.mark.parametrize("result", [{"at": datetime(2026, 1, 1, tzinfo=UTC)}, float("nan"), {1: 2}, (1,), object()])
def test_a_result_that_is_no_json_is_given_to_its_caller_and_never_made_again(chat: Any, result: Any) -> None:
    tool = Tool(result)
    with pytest.raises(EffectIndeterminate, match="result") as caught:
        refund(chat, tool)
    assert caught.value.happened
    assert caught.value.result is result
    assert isinstance(caught.value.__cause__, InvalidItem)
    with pytest.raises(EffectIndeterminate, match="it happened"):
        refund(chat, tool)
    with pytest.raises(EffectRefused, match="it happened"):
        chat.effects.resolve("refund-4711", succeeded=False)
    chat.effects.resolve("refund-4711", succeeded=True, result="kept")
    assert refund(chat, tool) == "kept"
    assert tool.calls == 1


def test_where_the_outcome_can_not_be_written_its_caller_is_told_and_nobody_runs_it_again(
    chat: Any, any_store: Any, contract_db: Any
) -> None:
    with (
        pytest.raises(EffectIndeterminate, match="closed") as caught,
        chat.effects.guard("refund", key="refund-4711", arguments=ARGUMENTS) as effect,
    ):
        chat.append_events([Event(type="stream.closed", data={})])
        effect.succeed("re_1")
    assert (caught.value.happened, caught.value.result) == (True, "re_1")
    assert isinstance(caught.value.__cause__, StreamClosed)
    other = any_store.conversation("other", context="ctx")
    with pytest.raises(EffectPending):
        refund(other, Tool())
    expire(contract_db, any_store)
    with pytest.raises(EffectIndeterminate):
        refund(other, Tool())
    assert other.effects.resolve("refund-4711", succeeded=True, result="re_1").state == "succeeded"


def test_in_a_transaction_nothing_runs_but_what_happened_can_be_said(chat: Any, any_store: Any, driver: Any) -> None:
    tool = Tool()
    with pytest.raises(Doubt):
        refund(chat, Tool(error=Doubt()))
    with any_store.transaction() as scope, pytest.raises(EffectRefused, match="outside of any transaction"):
        refund(scope.conversation("support"), tool, key="other")
    with driver.connect() as conn:
        bound = any_store.using(conn).conversation("support")
        with pytest.raises(EffectRefused, match="committed"):
            refund(bound, tool)
        bound.effects.resolve("refund-4711", succeeded=True, result=1)
        assert only(chat).state == "indeterminate", "not committed yet"
    assert only(chat).state == "succeeded"
    assert tool.calls == 0


def test_what_can_not_be_is_refused_before_anything_is_written(chat: Any, any_store: Any, contract_db: Any) -> None:
    with Untouched(contract_db):
        for given, error in (
            ({"key": ""}, InvalidName),
            ({"arguments": {"x": {1}}}, InvalidItem),
            ({"lease": 0}, InvalidItem),
            ({"agent": 7}, InvalidName),
        ):
            with pytest.raises(error):
                refund(chat, Tool(), **given)
        with pytest.raises(InvalidItem, match="call"):
            refund(chat, "no function")  # type: ignore[arg-type]
        for said in (chat.effects.resolve, chat.effects.compensate):
            with pytest.raises(EffectRefused, match="none with this key"):
                said("unknown", True)
        with pytest.raises(EffectRefused):
            chat.effects.find("unknown")
        with pytest.raises(InvalidItem, match="succeeded"):
            chat.effects.resolve("unknown", "yes")
        with pytest.raises(InvalidItem, match="result"):
            chat.effects.resolve("unknown", False, 7)
        assert chat.effects.list() == []
    held = claim("refund", "k", None, 60, None, None, None).intended(1).unique_key
    chat.append_events([Event(type="x.mine", data=1, unique_key=held)])  # no effect is behind it
    with pytest.raises(UniqueKeyConflict):
        chat.effects.run("refund", Tool(), key="k")


def test_effects_of_many_streams_and_pages_are_all_listed(any_store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("effects", "effects_async"):
        monkeypatch.setattr(f"eventstore.log.{module}.PAGE", 2)
    chats = [any_store.conversation(f"s{n}", context="ctx") for n in range(3)]
    for n in range(7):
        chat = chats[n % 3]
        chat.append([{"id": f"k{n}", "filler": n}])
        if n % 2:
            chat.effects.run("t", lambda n=n: n, key=f"k{n}")
        else:
            with chat.effects.guard("t", key=f"k{n}") as effect:
                effect.fail("x" * 700_000)  # a page is cut by size too
    for n in range(7, 12):  # events of one type side by side
        chats[0].effects.guard("t", key=f"k{n}").__enter__()
    listed = chats[1].effects.list()
    assert [effect.key for effect in listed] == [f"k{n}" for n in range(12)]
    assert [effect.result for effect in listed[:7]] == [n if n % 2 else None for n in range(7)]
    assert [effect.state for effect in listed[7:]] == ["pending"] * 5
    assert any_store.conversation("nowhere").effects.list() == []
