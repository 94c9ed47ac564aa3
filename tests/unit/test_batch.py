"""What an append may weigh, counted before anything is sent."""

from __future__ import annotations

import pytest

from eventstore import Event
from eventstore.errors import InvalidItem
from eventstore.log import batch

METADATA = {"m": "x" * (1 << 20)}


def test_metadata_counts_towards_a_batch_of_items() -> None:
    given = {"key": None, "ids": None, "agent": None, "task_id": None, "run_id": None, "metadata": METADATA}
    assert len(batch.of_items("t", "s", [1] * 63, **given).rows) == 63
    with pytest.raises(InvalidItem, match=r"\[63\].*64 MiB"):
        batch.of_items("t", "s", [1] * 65, **given)


def test_metadata_counts_towards_a_batch_of_events() -> None:
    event = Event(type="x.a", data=1, metadata=METADATA)
    assert len(batch.build("t", "s", [event] * 63, key=None).rows) == 63
    with pytest.raises(InvalidItem, match=r"\[63\].*64 MiB"):
        batch.build("t", "s", [event] * 65, key=None)
