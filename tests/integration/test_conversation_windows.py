"""Views cut to size, through the store: what is read of the end gives what the whole transcript would."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from eventstore import EventStore
from projections.pairs import bonds
from projections.windows import window


@pytest.fixture(params=["airline.jsonl.gz", "team.jsonl.gz"])
def recording(request: pytest.FixtureRequest, recordings: Path) -> list[Any]:
    """The longest conversation of some."""
    with gzip.open(recordings / request.param, "rt", encoding="utf-8") as lines:
        found = [conversation_items(json.loads(line)) for line in lines]
    return max(found[:40], key=len)[:60]


def conversation_items(line: Any) -> list[Any]:
    """A recording's items; of one in messages or steps, those as they are."""
    return line.get("items") or line.get("messages") or line.get("steps") or []


@pytest.mark.parametrize("shape", ["plain", "holes", "compacted", "branch", "all of it"])
def test_every_limit_is_exact_and_pair_safe(store: EventStore, recording: list[Any], shape: str) -> None:
    chat = store.conversation("a")
    chat.append(recording)
    if shape in ("holes", "all of it"):
        chat.retract(versions=[(5, 6), (len(recording) - 4, len(recording) - 3)])
        chat.pop()
    if shape in ("compacted", "all of it"):
        chat.compact(lambda items: [{"role": "user", "content": f"{n}"} for n in range(2)], covers=(3, 12))
    if shape in ("branch", "all of it"):
        chat = chat.fork("b", at=chat.head()).fork("c", at=chat.head())
        chat.append(recording[:3])
    entries = chat.shown().entries
    whole = [entry.item for entry in entries]
    assert len(whole) > 10
    for limit in [*range(25), len(whole) - 1, len(whole), len(whole) + 1]:
        assert chat.transcript(limit=limit) == whole[max(0, len(whole) - limit) :]
        for pins in (False, True):
            given = chat.transcript(limit=limit, pair_safe=True, pin_summaries=pins)
            assert given == [e.item for e in window(entries, limit=limit, pair_safe=True, pin_summaries=pins)]
        safe = window(entries, limit=limit, pair_safe=True)
        assert all(call is not None for call, _ in bonds(safe)), "a result without its call"
    for budget in (0, 100, 1_000, 10_000):
        given = chat.transcript(max_tokens=budget, pin_summaries=True)
        assert given == [e.item for e in window(entries, max_tokens=budget, pin_summaries=True)]
