"""Random appends that go at once, with keys and expected versions, against a model that does them in order."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventstore import ANY, EXISTS, NO_STREAM, AsyncEventStore
from eventstore.errors import IdempotencyConflict, VersionConflict

STREAMS = 6


@dataclass
class Stream:
    """What a stream holds, and what was appended under which key."""

    rows: list[Any] = field(default_factory=lambda: ["before"])
    keys: dict[str, tuple[int, list[Any]]] = field(default_factory=dict)

    def append(self, items: list[Any], key: str | None, expected: Any) -> tuple[Any, ...]:
        """Say what has to happen."""
        if key is not None and key in self.keys:
            first, held = self.keys[key]
            if held != items:
                return (IdempotencyConflict,)
            return ("repeated", first, first + len(items) - 1)
        head = len(self.rows)
        if expected not in (ANY, EXISTS, head):
            return (VersionConflict, head)
        self.rows += items
        if key is not None:
            self.keys[key] = (head + 1, items)
        return ("appended", head + 1, head + len(items))

    def expect(self, condition: str) -> Any:
        head = len(self.rows)
        return {"any": ANY, "exists": EXISTS, "none": NO_STREAM, "right": head, "wrong": head + 1}[condition]


appends = st.tuples(
    st.integers(0, STREAMS - 1),
    st.lists(st.integers(0, 2), min_size=1, max_size=3),
    st.none() | st.sampled_from(["k", "l"]),
    st.sampled_from(["any", "any", "right", "right", "exists", "none", "wrong"]),
)
waves = st.lists(st.lists(appends, min_size=1, max_size=24), min_size=1, max_size=4)


async def one(store: Any, stream: int, items: list[Any], key: str | None, expected: Any) -> tuple[Any, ...]:
    try:
        result = await store.conversation(f"s{stream}").append(items, key=key, expected=expected)
    except VersionConflict as e:
        return (VersionConflict, e.actual)
    except IdempotencyConflict:
        return (IdempotencyConflict,)
    return ("repeated" if result.deduplicated else "appended", result.first_version, result.last_version)


async def run(store: AsyncEventStore, given_waves: Sequence[Sequence[Any]]) -> None:
    """Let each wave go at once; the model takes its appends in the order in which they were made."""
    scope = store.for_tenant(uuid.uuid4().hex)
    streams = [Stream() for _ in range(STREAMS)]
    await asyncio.gather(*(scope.conversation(f"s{n}", context="ctx").append(["before"]) for n in range(STREAMS)))
    for wave in given_waves:
        wanted, calls = [], []
        for stream, items, key, condition in wave:
            expected = streams[stream].expect(condition)
            wanted.append(streams[stream].append(items, key, expected))
            calls.append(one(scope, stream, items, key, expected))
        assert await asyncio.gather(*calls) == wanted
    for number, stream in enumerate(streams):
        events = [event async for event in scope.conversation(f"s{number}").events()]
        assert [event.data for event in events] == stream.rows
        assert [event.version for event in events] == list(range(1, len(stream.rows) + 1))
        positions = [event.position for event in events]
        assert positions == sorted(set(positions))
    report = await scope.verify()
    assert report.ok, report.first_bad
    assert report.checked == sum(len(stream.rows) for stream in streams)


def test_random_appends_at_once_equal_the_model_that_does_them_in_order(url: str) -> None:
    with asyncio.Runner() as runner:

        async def opened() -> AsyncEventStore:
            return await AsyncEventStore.open(url)

        store = runner.run(opened())

        @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
        @given(waves)
        def check(given_waves: list[list[Any]]) -> None:
            runner.run(run(store, given_waves))

        check()
        sets = store.telemetry.registry.get_sample_value("convstore_append_set_appends_sum")
        assert sets is not None
        assert sets > 200
        runner.run(store.close())
