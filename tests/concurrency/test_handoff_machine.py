"""Random steps of handoffs, facts, artifacts and branches against a model in memory."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from eventstore import Event, EventStore
from eventstore.errors import HandoffRefused

IDS = ["h1", "h2", "h3"]
AGENTS = ["b", "c"]
BRANCHES = ["main", "side"]
ids, agents, branches = st.sampled_from(IDS), st.sampled_from(AGENTS), st.sampled_from(BRANCHES)
_number = count(1)


@dataclass
class Model:
    """What a branch should hold: statuses, artifacts that are current, points to return to, the newest version."""

    name: str
    status: dict[str, str] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)
    owner: dict[str, str] = field(default_factory=dict)
    drafted: dict[str, int] = field(default_factory=dict)
    decided: dict[str, list[str]] = field(default_factory=dict)
    points: list[tuple[str, int, int]] = field(default_factory=list)  # handoff, version of the step, artifact version
    starts: dict[str, tuple[int, int]] = field(default_factory=dict)
    accepted: set[str] = field(default_factory=set)
    stepped: dict[str, int] = field(default_factory=dict)
    artifact: int = 1
    newest: int = -1
    decision: str | None = None

    def standing(self) -> list[tuple[str, int, int]]:
        return [p for p in self.points if self.status.get(p[0]) in ("accepted", "committed")]


class Handoffs(RuleBasedStateMachine):
    """A store beside its model; each run has a context of its own in one database."""

    store: ClassVar[EventStore]

    def __init__(self) -> None:
        super().__init__()
        self.run = next(_number)
        self.published = 1
        self.used: dict[str, str] = {}  # handoff → the branch whose it is
        self.models = {"main": Model("main")}
        chat = self.store.conversation(self.stream("main"), context=f"ctx {self.run}")
        chat.append([1])
        chat.append_events(
            [
                Event(type="task.opened", data={"task_id": "t", "goal": "g"}, subject="t"),
                Event(type="artifact.published", data={"name": "n", "uri": "u", "version": 1}, subject="u"),
            ]
        )
        self.chats: dict[str, Any] = {"main": chat}

    def stream(self, branch: str) -> str:
        return f"{branch} {self.run}"

    def at(self, branch: str) -> tuple[Any, Model]:
        there = branch if branch in self.chats else "main"
        return self.chats[there], self.models[there]

    @rule()
    def fork(self) -> None:
        if "side" in self.chats:
            return
        self.chats["side"] = self.chats["main"].fork(self.stream("side"))
        model = copy.deepcopy(self.models["main"])
        model.name = "side"
        model.own = set()
        for handoff_id in [h for h, status in model.status.items() if status == "offered"]:
            del model.status[handoff_id]
            model.starts.pop(handoff_id)
        self.models["side"] = model

    @rule(branch=branches)
    def publish(self, branch: str) -> None:
        chat, model = self.at(branch)
        self.published += 1
        data = {"name": "n", "uri": "u", "version": self.published}
        chat.append_events([Event(type="artifact.published", data=data, subject="u")])
        model.artifact = self.published

    @rule(branch=branches)
    def decide(self, branch: str) -> None:
        chat, model = self.at(branch)
        if model.decision is None:
            model.decision = f"d {chat.head()}"
            chat.facts.confirm(model.decision, [1])
        else:
            fact = next(f for f in chat.facts.list() if f.text == model.decision)
            chat.facts.revoke(fact, "wrong")
            model.decision = None

    @rule(branch=branches, handoff_id=ids, to=agents)
    def offer(self, branch: str, handoff_id: str, to: str) -> None:
        chat, model = self.at(branch)
        env = chat.handoffs.draft(goal="g", to=to, handoff_id=handoff_id)
        assert [(a.uri, a.version) for a in env.artifacts] == [("u", model.artifact)]
        assert env.decisions == ([] if model.decision is None else [model.decision])
        status = model.status.get(handoff_id)
        free = handoff_id not in self.used
        again = handoff_id in model.own and (
            status == "offered" or (status == "failed" and handoff_id not in model.accepted)
        )
        if not (free or again):
            self.refused("handoff_id", lambda: chat.handoffs.offer(env, True))
            return
        head = chat.head()
        version = chat.handoffs.offer(env, True).version
        self.used[handoff_id] = model.name
        model.own.add(handoff_id)
        model.status[handoff_id] = "offered"
        model.owner[handoff_id] = to
        model.drafted[handoff_id] = head
        model.decided[handoff_id] = env.decisions
        model.stepped[handoff_id] = version
        model.starts.setdefault(handoff_id, (head, model.artifact))

    @rule(branch=branches, handoff_id=ids, by=agents)
    def accept(self, branch: str, handoff_id: str, by: str) -> None:
        chat, model = self.at(branch)
        where = self.models.get(self.used.get(handoff_id, ""))
        call = lambda: chat.handoffs.accept(handoff_id, by=by)  # noqa: E731
        if where is not None and handoff_id in where.accepted:
            if where.owner[handoff_id] == by:
                assert call().deduplicated
            else:
                self.refused("owner", call)
        elif where is not model or model.status.get(handoff_id) != "offered":
            self.refused("handoff_id", call)
        elif model.owner[handoff_id] != by:
            self.refused("owner", call)
        elif model.drafted[handoff_id] <= model.newest:
            self.refused("context_version", call)
        elif not set(model.decided[handoff_id]) <= {model.decision}:
            self.refused("decisions", call)
        else:
            ack = call()
            assert not ack.deduplicated
            model.status[handoff_id] = "accepted"
            model.accepted.add(handoff_id)
            model.newest = model.drafted[handoff_id]
            offered = next(h for h in chat.handoffs.list() if h.handoff_id == handoff_id)
            model.artifact = offered.envelope["artifacts"][0]["version"]
            model.points.append((handoff_id, ack.version, model.artifact))
            model.stepped[handoff_id] = ack.version

    @rule(branch=branches, handoff_id=ids, step=st.sampled_from(["commit", "reject", "fail"]))
    def end(self, branch: str, handoff_id: str, step: str) -> None:
        chat, model = self.at(branch)
        wanted = {"commit": ("accepted",), "reject": ("offered",), "fail": ("offered", "accepted")}[step]
        call = {
            "commit": lambda: chat.handoffs.commit(handoff_id),
            "reject": lambda: chat.handoffs.reject(handoff_id, "busy"),
            "fail": lambda: chat.handoffs.fail(handoff_id, "failed"),
        }[step]
        if handoff_id not in model.own or model.status.get(handoff_id) not in wanted:
            self.refused("handoff_id", call)
            return
        done = call()
        model.status[handoff_id] = {"commit": "committed", "reject": "rejected", "fail": "failed"}[step]
        model.stepped[handoff_id] = done.version
        if step == "commit":
            model.points = [p for p in model.points if p[0] != handoff_id]
            model.points.append((handoff_id, done.version, model.artifact))
        if step == "fail":
            before = model.standing()
            point = before[-1] if before else (None, *model.starts[handoff_id])
            told = done.return_to
            assert (told.get("handoff_id"), told["version"], told["artifacts"][0]["version"]) == point

    @rule(branch=branches, to=st.none() | ids)
    def roll_back(self, branch: str, to: str | None) -> None:
        chat, model = self.at(branch)
        standing = model.standing()
        if to is not None:
            chosen = [p for p in standing if p[0] == to]
        elif standing:
            chosen = standing[-1:]
        else:
            first = sorted(model.starts.values())[:1]
            chosen = [(None, *start) for start in first]  # type: ignore[misc]
        undone = []
        if chosen:
            undone = [
                h
                for h, status in model.status.items()
                if h != chosen[0][0]
                and status in ("offered", "accepted", "committed", "failed")
                and model.stepped[h] > chosen[0][1]
            ]
        if not chosen or (chosen[0][0] is None and not undone):
            self.refused("to", lambda: chat.handoffs.roll_back(to))
            return
        back = chat.handoffs.roll_back(to)
        assert (back.handoff_id, back.version, back.artifacts[0].version) == chosen[0]
        assert set(back.undone) == set(undone)
        model.artifact = chosen[0][2]
        for handoff_id in undone:
            model.status[handoff_id] = "rolled_back"

    @invariant()
    def the_folds_equal_the_model(self) -> None:
        for branch, model in self.models.items():
            told = {h.handoff_id: h.status for h in self.chats[branch].handoffs.list()}
            assert told == model.status

    @staticmethod
    def refused(fields: str, call: Any) -> None:
        with pytest.raises(HandoffRefused) as caught:
            call()
        assert caught.value.field == fields, str(caught.value)

    def teardown(self) -> None:
        assert all(self.store.verify(self.stream(branch)).ok for branch in self.chats)


def test_handoffs_equal_the_model(store: EventStore) -> None:
    Handoffs.store = store
    run_state_machine_as_test(
        Handoffs,
        settings=settings(
            max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
