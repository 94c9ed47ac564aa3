"""Random sequences of appends, repeats, refusals and transactions against a model in memory."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from eventstore import ANY, EXISTS, NO_STREAM, Event, EventStore
from eventstore.errors import IdempotencyConflict, StreamClosed, UniqueKeyConflict, VersionConflict

STREAMS = ["a", "b", "c"]
TENANTS = ["one", "two"]
KEYS = ["k1", "k2", "\ud800", ""]
UNIQUE = ["u1", "u2"]

values = (
    st.none()
    | st.booleans()
    | st.integers(0, 3)
    | st.sampled_from(["", "x", "\x00", 2**80, -0.0, [], {"b": 1, "a": 2}])
)
batches = st.lists(values, min_size=1, max_size=3)
places = st.tuples(st.sampled_from(TENANTS), st.sampled_from(STREAMS))
conditions = st.sampled_from(["any", "no stream", "exists", "right", "wrong"])


class RolledBack(Exception):
    """Ends a transaction without its effects."""


@dataclass
class Stream:
    """What a stream should hold."""

    rows: list[tuple[str, Any]] = field(default_factory=list)
    appends: list[tuple[str | None, int, int]] = field(default_factory=list)  # key, first, last
    closed: bool = False

    def copy(self) -> Stream:
        return Stream(list(self.rows), list(self.appends), self.closed)


def exact(value: Any) -> str:
    return repr(value)  # tells 1, True, 1.0 and -0.0 apart, and the order of keys


class Appends(RuleBasedStateMachine):
    """The store beside its model; tenants are fresh in each run, so one database serves all of them."""

    store: ClassVar[EventStore]

    def __init__(self) -> None:
        super().__init__()
        run = uuid.uuid4().hex
        self.scopes: dict[str, Any] = {tenant: self.store.for_tenant(f"{tenant}-{run}") for tenant in TENANTS}
        self.model: dict[tuple[str, str], Stream] = {(t, s): Stream() for t in TENANTS for s in STREAMS}
        self.unique: dict[tuple[str, str], tuple[str, str]] = {}
        self.touched: set[tuple[str, str]] = set()

    # --- the model ---

    def expect(self, place: tuple[str, str], condition: str) -> tuple[Any, bool]:
        """Give expected= and whether it fits."""
        head = len(self.model[place].rows)
        return {
            "any": (ANY, True),
            "no stream": (NO_STREAM, head == 0),
            "exists": (EXISTS, head > 0),
            "right": (head, True),
            "wrong": (head + 1, False),
        }[condition]

    def append(
        self, scopes: dict[str, Any], place: tuple[str, str], events: list[Event], key: str | None, condition: str
    ) -> None:
        """Append to the store and to the model, which says what has to happen."""
        stream = self.model[place]
        self.touched.add(place)
        expected, fits = self.expect(place, condition)
        chat = scopes[place[0]].conversation(place[1], context="ctx")
        known = [(first, last) for used, first, last in stream.appends if key is not None and used == key]
        given = [(e.type, exact(e.data)) for e in events]

        def send() -> Any:
            return chat.append_events(events, key=key, expected=expected)

        if known:
            first, last = known[0]
            held = [(kind, exact(data)) for kind, data in stream.rows[first - 1 : last]]
            if held != given:
                with pytest.raises(IdempotencyConflict):
                    send()
                return
            result = send()
            assert (result.deduplicated, result.first_version, result.last_version) == (True, first, last)
            return
        claims = {e.unique_key for e in events if e.unique_key is not None}
        taken = any((place[0], claim) in self.unique for claim in claims)
        if stream.closed or not fits or taken:
            with pytest.raises((StreamClosed, VersionConflict, UniqueKeyConflict)) as caught:
                send()
            if stream.closed:
                assert isinstance(caught.value, StreamClosed)
            elif not fits:
                assert isinstance(caught.value, VersionConflict)
                assert caught.value.actual == len(stream.rows)
            return
        result = send()
        first = len(stream.rows) + 1
        last = first + len(events) - 1
        assert (result.deduplicated, result.first_version, result.last_version) == (False, first, last)
        stream.rows += [(e.type, e.data) for e in events]
        stream.appends.append((key, first, last))
        stream.closed = events[-1].type == "stream.closed"
        for claim in claims:
            self.unique[place[0], claim] = place

    # --- what may happen ---

    @rule(place=places, items=batches, key=st.none() | st.sampled_from(KEYS), condition=conditions)
    def appends(self, place: tuple[str, str], items: list[Any], key: str | None, condition: str) -> None:
        self.append(self.scopes, place, [Event(type="item.appended", data=i) for i in items], key, condition)

    @rule(place=places, key=st.sampled_from(KEYS), condition=conditions)
    def repeats(self, place: tuple[str, str], key: str, condition: str) -> None:
        stream = self.model[place]
        for used, first, last in stream.appends:
            if used == key:
                events = [Event(type=kind, data=data) for kind, data in stream.rows[first - 1 : last]]
                self.append(self.scopes, place, events, key, condition)

    @rule(place=places, key=st.sampled_from(KEYS), how=st.sampled_from(["longer", "shorter", "changed", "reversed"]))
    def repeats_with_a_change(self, place: tuple[str, str], key: str, how: str) -> None:
        stream = self.model[place]
        for used, first, last in stream.appends:
            if used != key:
                continue
            rows = stream.rows[first - 1 : last]
            changed = {
                "longer": [*rows, ("x.more", 1)],
                "shorter": rows[:-1] or [("x.other", 1)],
                "changed": [*rows[:-1], ("item.appended", "changed")],
                "reversed": rows[::-1],
            }[how]
            if any(kind == "stream.closed" for kind, _ in changed[:-1]):
                continue
            self.append(self.scopes, place, [Event(type=k, data=d) for k, d in changed], key, "any")

    @rule(place=places, claim=st.sampled_from(UNIQUE), before=st.booleans(), condition=conditions)
    def claims(self, place: tuple[str, str], claim: str, before: bool, condition: str) -> None:
        events = [Event(type="x.before", data=0)] * before + [Event(type="x.claim", data=claim, unique_key=claim)]
        self.append(self.scopes, place, events, None, condition)

    @rule(place=places, key=st.none() | st.sampled_from(KEYS))
    def closes(self, place: tuple[str, str], key: str | None) -> None:
        if len(self.model[place].rows) > 4:
            self.append(self.scopes, place, [Event(type="stream.closed", data={})], key, "any")

    @rule(
        steps=st.lists(
            st.tuples(places, batches, st.none() | st.sampled_from(KEYS), conditions), min_size=1, max_size=4
        ),
        commits=st.booleans(),
        nested=st.booleans(),
    )
    def transacts(self, steps: list[Any], commits: bool, nested: bool) -> None:
        saved = {place: stream.copy() for place, stream in self.model.items()}
        with contextlib.suppress(RolledBack), self.store.transaction() as tx:
            inner: Any = tx.transaction() if nested else contextlib.nullcontext(tx)
            with inner as scope:
                scopes = {tenant: scope.for_tenant(self.scopes[tenant].tenant) for tenant in TENANTS}
                for place, items, key, condition in steps:
                    self.append(scopes, place, [Event(type="item.appended", data=i) for i in items], key, condition)
                if not commits:
                    raise RolledBack
        if not commits:
            self.model = saved

    # --- what always holds ---

    @invariant()
    def touched_streams_hold_what_the_model_holds(self) -> None:
        for place in self.touched:
            chat = self.scopes[place[0]].conversation(place[1])
            events = list(chat.events())
            rows = self.model[place].rows
            assert [(e.type, exact(e.data)) for e in events] == [(kind, exact(data)) for kind, data in rows]
            assert [e.version for e in events] == list(range(1, len(rows) + 1))
            assert chat.head() == len(rows)
        self.touched = set()

    def teardown(self) -> None:
        for tenant, scope in self.scopes.items():
            report = scope.verify()
            assert report.ok, report.first_bad
            assert report.checked == sum(len(s.rows) for (t, _), s in self.model.items() if t == tenant)
            positions = [e.position for s in STREAMS for e in scope.conversation(s).events()]
            assert len(positions) == len(set(positions))


def test_random_sequences_of_appends_equal_the_model(store: EventStore) -> None:
    Appends.store = store
    run_state_machine_as_test(
        Appends,
        settings=settings(
            max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
