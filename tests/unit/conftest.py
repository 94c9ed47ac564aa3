"""What unit tests share: the recorded conversations as lists of items."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def recorded_items(recordings: Path) -> list[list[Any]]:
    """The items of each recorded conversation, of one agent or of several."""
    conversations = []
    for name in ("airline.jsonl.gz", "team.jsonl.gz"):
        with gzip.open(recordings / name, "rt", encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
        conversations += [r["items"] if "items" in r else [step["item"] for step in r["steps"]] for r in records]
    assert len(conversations) == 129
    return conversations
