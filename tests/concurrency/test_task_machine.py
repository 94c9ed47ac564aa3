"""Random sequences over tasks and artifacts, on a few branches and in transactions, against a model in memory."""

from __future__ import annotations

import contextlib
import copy
import uuid
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from eventstore import Artifact, EventStore
from eventstore.errors import (
    ArtifactConflict,
    ConvstoreError,
    IdempotencyConflict,
    InvalidItem,
    TaskClosed,
    TaskExists,
    TaskNotFound,
    TaskStatusConflict,
)
from eventstore.log.catalogue.tasks import STATES, TERMINAL

ROOTS = ["a", "b"]
BRANCHES = ["c", "d"]
TASKS = ["t", "u", "v"]
KEYS = [None, "k", "l"]
URIS = ["x", "y"]

streams = st.sampled_from(ROOTS + BRANCHES)
ids = st.sampled_from(TASKS)


class RolledBack(Exception):
    """Ends a transaction without its effects."""


@dataclass
class Model:
    """What the context should hold: versions of streams are lists of (what, …), shared prefixes copied."""

    streams: dict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: {name: [] for name in ROOTS})
    keys: dict[tuple[str, str], tuple[int, tuple[Any, ...]]] = field(default_factory=dict)
    tasks: dict[str, list[tuple[str, str, int]]] = field(default_factory=dict)  # status, stream, version
    facts: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    artifacts: dict[tuple[str, int], tuple[str | None, str, int]] = field(default_factory=dict)  # digest, stream, at


class Work(RuleBasedStateMachine):
    """The store beside its model; each run has a context of its own in a tenant of its own."""

    store: ClassVar[EventStore]

    def __init__(self) -> None:
        super().__init__()
        self.scope: Any = self.store.for_tenant(f"tenant-{uuid.uuid4().hex}")
        self.model = Model()

    def chat(self, scope: Any, name: str) -> Any:
        return scope.conversation(name, context="ctx")

    # --- what each call has to do ---

    def known(self, name: str, key: str | None, what: tuple[Any, ...]) -> int | None:
        """Give the version that a key stands for; raise where it stands for something else."""
        if key is None or (name, key) not in self.model.keys:
            return None
        version, before = self.model.keys[name, key]
        if before != what:
            raise IdempotencyConflict(key, before, what)
        return version

    def write(self, name: str, key: str | None, what: tuple[Any, ...]) -> int:
        rows = self.model.streams[name]
        rows.append(what)
        if key is not None:
            self.model.keys[name, key] = (len(rows), what)
        return len(rows)

    def closed(self, task_id: str | None) -> str | None:
        steps = self.model.tasks.get(task_id or "")
        return steps[-1][0] if steps and steps[-1][0] in TERMINAL else None

    def append(self, scope: Any, name: str, key: str | None, task_id: str, n: int) -> None:
        items = list(range(n))
        what = ("items", n)

        def expected() -> int:
            version = self.known(name, key, what)
            if version is not None:
                return version
            if self.closed(task_id):
                raise TaskClosed(task_id, "", "")
            rows = self.model.streams[name]
            for _ in items:
                rows.append(("item", task_id))
            if key is not None:
                self.model.keys[name, key] = (len(rows), what)
            return len(rows)

        self.same(expected, lambda: self.chat(scope, name).append(items, key=key, task_id=task_id).last_version)

    def open(self, scope: Any, name: str, key: str | None, task_id: str, goal: str, follows: str | None) -> None:
        what = ("opened", task_id, goal, follows)

        def expected() -> int:
            version = self.known(name, key, what)
            if version is not None:
                return version
            if task_id in self.model.tasks:
                if self.model.facts[task_id] != (goal, follows):
                    raise TaskExists(task_id, "", "", "")
                return self.model.tasks[task_id][0][2]
            if follows is not None and follows not in self.model.tasks:
                raise TaskNotFound(follows, "")
            version = self.write(name, key, what)
            self.model.tasks[task_id] = [("submitted", name, version)]
            self.model.facts[task_id] = (goal, follows)
            return version

        def call() -> int:
            version: int = self.chat(scope, name).tasks.open(task_id, goal=goal, follows=follows, key=key).last_version
            return version

        self.same(expected, call)

    def change(self, scope: Any, name: str, key: str | None, task_id: str, status: str, was: str | None) -> None:
        what = ("changed", task_id, status)

        def expected() -> int:
            version = self.known(name, key, what)
            if version is not None:
                return version
            if task_id not in self.model.tasks:
                raise TaskNotFound(task_id, "")
            if self.closed(task_id):
                raise TaskClosed(task_id, "", "")
            now = self.model.tasks[task_id][-1][0]
            if was is not None and was != now:
                raise TaskStatusConflict(task_id, was, now, "")
            version = self.write(name, key, what)
            self.model.tasks[task_id].append((status, name, version))
            return version

        def call() -> int:
            version: int = self.chat(scope, name).tasks.set_status(task_id, status, expected=was, key=key).last_version
            return version

        self.same(expected, call)

    def publish(
        self, scope: Any, name: str, artifact: Artifact, task_id: str | None, source: tuple[str, int] | None
    ) -> None:
        place = (artifact.uri, artifact.version)
        what = ("published", *place, artifact.digest, source)

        def expected() -> tuple[str, int]:
            if source is not None and source not in self.model.artifacts:
                raise InvalidItem("", "")
            if self.closed(task_id):
                raise TaskClosed(task_id or "", "", "")
            if place in self.model.artifacts:
                digest, stream, version = self.model.artifacts[place]
                if self.model.streams[stream][version - 1] != what:
                    raise ArtifactConflict(*place, "", digest, "", "")
                return stream, version
            version = self.write(name, None, what)
            self.model.artifacts[place] = (artifact.digest, name, version)
            return name, version

        def call() -> tuple[str, int]:
            done = self.chat(scope, name).artifacts.publish(artifact, task_id=task_id)
            return done.stream, done.stream_version

        self.same(expected, call)

    def same(self, expected: Any, call: Any) -> None:
        """The call gives what the model gives, or raises the same."""
        try:
            wanted = expected()
        except ConvstoreError as e:
            with pytest.raises(type(e)):
                call()
        else:
            assert call() == wanted

    def act(self, scope: Any, action: tuple[Any, ...]) -> None:
        kind, name, *rest = action
        if name in self.model.streams:
            getattr(self, kind)(scope, name, *rest)

    # --- rules ---

    appends = st.tuples(st.just("append"), streams, st.sampled_from(KEYS), ids, st.integers(1, 2))
    opens = st.tuples(
        st.just("open"),
        streams,
        st.sampled_from(KEYS),
        ids,
        st.sampled_from(["g", "g", "h"]),
        st.sampled_from([None, None, *TASKS]),
    )
    changes = st.tuples(
        st.just("change"),
        streams,
        st.sampled_from(KEYS),
        ids,
        st.sampled_from([*STATES, "working", "working"]),
        st.sampled_from([None, None, *STATES]),
    )
    publications = st.builds(
        lambda name, uri, version, digest, task_id, source: (
            "publish",
            name,
            Artifact(uri, version, "n", digest, derived_from=[] if source is None else [source]),
            task_id,
            source,
        ),
        streams,
        st.sampled_from(URIS),
        st.integers(1, 4),
        st.sampled_from([None, "d", "d"]),
        st.none() | ids,
        st.none() | st.tuples(st.sampled_from(URIS), st.integers(1, 4)),
    )
    actions = appends | opens | changes | publications

    @rule(action=actions)
    def alone(self, action: tuple[Any, ...]) -> None:
        self.act(self.scope, action)

    @rule(actions=st.lists(actions, min_size=1, max_size=4), commits=st.booleans())
    def together(self, actions: list[tuple[Any, ...]], commits: bool) -> None:
        before = copy.deepcopy(self.model)
        with contextlib.suppress(RolledBack), self.scope.transaction() as tx:
            for action in actions:
                self.act(tx, action)
            if not commits:
                raise RolledBack
        if not commits:
            self.model = before

    @rule(parent=streams, name=st.sampled_from(BRANCHES), share=st.floats(0, 1))
    def fork(self, parent: str, name: str, share: float) -> None:
        rows = self.model.streams.get(parent)
        if not rows or name in self.model.streams:
            return
        at = round(share * len(rows))
        self.chat(self.scope, parent).fork(name, at=at)
        self.model.streams[name] = [*rows[:at], ("forked",)]

    @invariant()
    def what_is_told_equals_the_model(self) -> None:
        for name, rows in self.model.streams.items():
            chat = self.chat(self.scope, name)
            assert chat.head() == len(rows)
            told = {task.task_id: [(c.status, c.stream, c.version) for c in task.changes] for task in chat.tasks.list()}
            assert told == self.model.tasks
            published = [row[1:3] for row in rows if row[0] == "published"]
            listed = chat.artifacts.list()
            assert [(a.uri, a.version) for a in listed] == published
            for place, each in enumerate(listed):
                its = [version for uri, version in published if uri == each.uri]
                before = [version for uri, version in published[:place] if uri == each.uri]
                assert (each.regression, each.latest) == (
                    max(before, default=0) > each.version,
                    max(its) == each.version,
                )

    def teardown(self) -> None:
        report = self.scope.verify()
        assert report.ok, report.first_bad


def test_random_work_on_tasks_and_artifacts_equals_the_model(store: EventStore) -> None:
    Work.store = store
    run_state_machine_as_test(
        Work,
        settings=settings(
            max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
