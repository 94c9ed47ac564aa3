"""Forks at random: every branch beside a model that copies; and long lines of branches."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from eventstore import Event, EventStore
from eventstore.errors import ForkPointBeyondHead, IdempotencyConflict, InvalidItem, StreamExists

KEYS = ["k1", "k2"]
ITEM_IDS = ["i1", "i2", "i3"]
KINDS = ["item.appended", "item.appended", "summary.appended", "x.note", "history.cleared"]
events = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from([None, *ITEM_IDS])), min_size=1, max_size=5)
numbers = st.integers(0, 2**20)
MEANS = ["at", "after_items", "item", "event", "head", "end", "zero"]


@dataclass(frozen=True)
class Row:
    """One event as the model has it."""

    type: str
    data: Any
    subject: str | None
    owner: str


@dataclass
class Stream:
    """A stream of the model: all of its events, copied from the parent where it is a branch."""

    rows: list[Row]
    root: str
    fork: tuple[str, int] | None = None  # who owns the version, and the version
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)  # of appends: first and last version
    fork_key: str | None = None


class Forks(RuleBasedStateMachine):
    """The store beside its model; each run has a tenant of its own."""

    store: ClassVar[EventStore]

    def __init__(self) -> None:
        super().__init__()
        self.scope = self.store.for_tenant(uuid.uuid4().hex)
        self.model: dict[str, Stream] = {}
        for name in ("root", "other"):
            self.scope.conversation(name, context="ctx").append(["first"])
            self.model[name] = Stream([Row("item.appended", "first", None, name)], name)
        self.counter = 0
        self.touched: set[str] = set(self.model)

    def pick(self, number: int) -> tuple[str, Stream]:
        name = list(self.model)[number % len(self.model)]
        return name, self.model[name]

    # --- what may happen ---

    @rule(which=numbers, given=events, key=st.none() | st.sampled_from(KEYS))
    def appends(self, which: int, given: list[tuple[str, str | None]], key: str | None) -> None:
        name, stream = self.pick(which)
        self.counter += 1
        rows, batch = [], []
        for kind, item_id in given:
            data: Any = {"reason": "x"} if kind == "history.cleared" else {"n": self.counter, "id": item_id}
            if item_id is None and kind != "history.cleared":
                data.pop("id")
            subject = item_id if kind != "history.cleared" else None
            rows.append(Row(kind, data, subject, name))
            batch.append(Event(type=kind, data=data, subject=subject))
        chat = self.scope.conversation(name)
        if key is not None and (key in stream.keys or key == stream.fork_key):
            with pytest.raises(IdempotencyConflict):
                chat.append_events(batch, key=key)
            return
        head = len(stream.rows)
        result = chat.append_events(batch, key=key, expected=head)
        assert (result.first_version, result.last_version) == (head + 1, head + len(batch))
        stream.rows += rows
        if key is not None:
            stream.keys[key] = (result.first_version, result.last_version)
        self.touched.add(name)

    @rule(which=numbers, key=st.sampled_from(KEYS))
    def repeats_an_append(self, which: int, key: str) -> None:
        name, stream = self.pick(which)
        if key in stream.keys:
            first, last = stream.keys[key]
            batch = [Event(type=r.type, data=r.data, subject=r.subject) for r in stream.rows[first - 1 : last]]
            result = self.scope.conversation(name).append_events(batch, key=key)
            assert (result.deduplicated, result.first_version, result.last_version) == (True, first, last)

    @rule(which=numbers, means=st.sampled_from(MEANS), where=numbers, key=st.none() | st.sampled_from(KEYS))
    def forks(self, which: int, means: str, where: int, key: str | None) -> None:
        name, stream = self.pick(which)
        chat = self.scope.conversation(name)
        head = len(stream.rows)
        places = [n for n, row in enumerate(stream.rows, 1) if row.type == "item.appended"]
        named: dict[str, Any]
        if means == "after_items":
            count = where % (len(places) + 2)
            named, at = {"after_items": count}, 0 if count == 0 else [*places, None][count - 1]
        elif means == "item":
            item_id = ITEM_IDS[where % len(ITEM_IDS)]
            found = (n for n, r in enumerate(stream.rows, 1) if r.subject == item_id and r.type.endswith(".appended"))
            named, at = {"at_item": item_id}, next(found, None)
        elif means == "event":
            at = 1 + where % head
            (event,) = chat.events(at, at)
            named = {"at_item": event.event_id if where % 2 else str(event.event_id)}
        else:
            at = {"at": where % (head + 1), "head": head, "end": head, "zero": 0}[means]
            named = {} if means == "head" else {"at": at}
        fresh = f"branch {len(self.model)}"
        if at is None:
            with pytest.raises(ForkPointBeyondHead if means == "after_items" else InvalidItem):
                chat.fork(fresh, key=key, **named)
            return
        assert chat.fork(fresh, key=key, **named).name == fresh
        owner = stream.rows[at - 1].owner if at else name
        data: dict[str, Any] = {"parent": name, "at": at}
        if owner != name:
            data["owner"] = owner
        row = Row("stream.forked", data, None, fresh)
        self.model[fresh] = Stream([*stream.rows[:at], row], stream.root, (owner, at), {}, key)
        self.touched |= {fresh, name}

    @rule(which=numbers, again=numbers, where=numbers, key=st.none() | st.sampled_from(KEYS))
    def forks_again(self, which: int, again: int, where: int, key: str | None) -> None:
        parent, stream = self.pick(which)
        name, branch = self.pick(again)
        if branch.fork is None:
            return
        at = branch.fork[1] if where % 2 else where % (len(stream.rows) + 1)
        same = at <= len(stream.rows) and branch.fork == (stream.rows[at - 1].owner if at else parent, at)
        call = self.scope.conversation(parent).fork
        if same:
            assert call(name, at=at, key=key).head() == len(branch.rows)
            return
        with pytest.raises(IdempotencyConflict if key is not None and key == branch.fork_key else StreamExists):
            call(name, at=at, key=key)

    @rule(
        which=numbers, one=numbers, other=numbers, types=st.none() | st.sets(st.sampled_from([*KINDS, "stream.forked"]))
    )
    def reads(self, which: int, one: int, other: int, types: set[str] | None) -> None:
        name, stream = self.pick(which)
        head = len(stream.rows)
        first, last = 1 + one % (head + 2), other % (head + 3)
        wanted = None if types is None else sorted(types)
        for start, begin in ((first, first), (-first, max(head + 1 - first, 1))):
            seen = [(e.version, e.stream) for e in self.scope.conversation(name).events(start, last, types=wanted)]
            rows = list(enumerate(stream.rows, 1))[begin - 1 : last]
            assert seen == [(n, row.owner) for n, row in rows if types is None or row.type in types]

    @rule(which=numbers)
    def verifies(self, which: int) -> None:
        name, stream = self.pick(which)
        report = self.scope.verify(name)
        assert report.ok, report.first_bad
        assert report.checked == len(stream.rows)

    # --- what always holds ---

    @invariant()
    def what_was_touched_is_what_the_model_copied(self) -> None:
        for name in self.touched:
            self.compare(name)
        self.touched = set()

    def compare(self, name: str) -> None:
        stream = self.model[name]
        chat = self.scope.conversation(name)
        seen = [(e.version, e.type, e.data, e.subject, e.stream) for e in chat.events()]
        assert seen == [(n, r.type, r.data, r.subject, r.owner) for n, r in enumerate(stream.rows, 1)]
        owners = [owner for part in chat.lineage() for owner in [part.stream] * (part.last - part.first + 1)]
        assert owners == [row.owner for row in stream.rows]

    def teardown(self) -> None:
        for name in self.model:
            self.compare(name)
        report = self.scope.verify()
        assert report.ok, report.first_bad
        own = sum(row.owner == name for name, stream in self.model.items() for row in stream.rows)
        assert (report.checked, report.streams) == (own, len(self.model))
        for root in ("root", "other"):
            family = [s.name for s in self.scope.conversation(root).family()]
            assert sorted(family) == sorted(name for name, s in self.model.items() if s.root == root)
            for name in family:
                fork = self.model[name].fork
                assert fork is None or family.index(fork[0]) < family.index(name)
        fed = [(e.stream, e.version, e.position) for e in self.scope.feed().events]
        assert len(fed) == own
        place = {(stream, version): position for stream, version, position in fed}
        for name, stream in self.model.items():
            line = [place[row.owner, version] for version, row in enumerate(stream.rows, 1)]
            assert line == sorted(line), name


def test_forks_at_random_equal_copies(store: EventStore) -> None:
    Forks.store = store
    run_state_machine_as_test(
        Forks,
        settings=settings(
            max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_line_of_random_steps_equals_copies(store: EventStore, seed: int) -> None:
    draw = random.Random(seed)
    chat = store.conversation("b0")
    chat.append([0])
    copy: list[tuple[Any, str]] = [(0, "b0")]
    for n in range(1, 120):
        at = draw.choice([len(copy), max(0, len(copy) - draw.randint(0, 4)), draw.randint(0, len(copy))])
        owner = copy[at - 1][1] if at else chat.name
        data = {"parent": chat.name, "at": at} | ({} if owner == chat.name else {"owner": owner})
        chat = chat.fork(f"b{n}", at=at)
        copy = [*copy[:at], (data, chat.name)]
        items = [f"{n}.{i}" for i in range(draw.randint(0, 5))]
        if items:
            chat.append(items)
        copy += [(item, chat.name) for item in items]
        assert [(e.data, e.stream) for e in chat.events(-30)] == copy[-30:]
    assert [(e.data, e.stream) for e in chat.events()] == copy
    assert store.verify(chat.name).checked == len(copy)
    assert store.verify().ok


def test_a_line_1_000_deep_is_read_and_verified(store: EventStore) -> None:
    chat = store.conversation("b0")
    chat.append([0])
    with store.transaction() as tx:
        for n in range(1, 1_001):
            deeper = tx.conversation(f"b{n - 1}").fork(f"b{n}")
            deeper.append([n])
    chat = store.conversation("b1000")
    expected = [(1, "b0"), *((v, f"b{v // 2}") for v in range(2, 2_002))]
    assert chat.head() == 2_001
    assert [(e.version, e.stream) for e in chat.events()] == expected
    assert [(e.version, e.stream) for e in chat.events(-20)] == expected[-20:]
    assert [(e.version, e.stream) for e in chat.events(999, 1_003)] == expected[998:1003]
    assert [e.data for e in chat.events(types=["item.appended"])] == list(range(1_001))
    assert len(chat.lineage()) == len(chat.family()) == 1_001
    for point, at in ({"after_items": 501}, 1_001), ({"after_items": 1}, 1), ({"at": 1}, 1):
        assert chat.fork(f"at {at}", **point).head() == at + 1
        assert [(e.version, e.stream) for e in store.conversation(f"at {at}").events(1, at)] == expected[:at]
    assert chat.fork("deeper").append(["end"]).last_version == 2_003
    report = store.verify("b1000")
    assert (report.ok, report.checked, report.streams) == (True, 2_001, 1_001)
    whole = store.verify()
    assert (whole.ok, whole.checked, whole.streams) == (True, 2_001 + 2 + 2, 1_004)
