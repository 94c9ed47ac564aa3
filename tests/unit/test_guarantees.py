"""Each promise names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
TEXT = (TESTS.parent / "docs" / "guarantees.md").read_text()
NAMED = re.findall(r"`((?:unit|integration|concurrency|chaos|peers)/\w+\.py)(?:::(\w+))?`", TEXT)


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_the_named_test_exists(path: str, name: str) -> None:
    text = (TESTS / path).read_text()
    assert re.search(rf"def {name}\(" if name else r"def test_", text) or f"{name} = " in text


def test_every_promise_names_one() -> None:
    sections = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]
    assert len(sections) >= 12
    for section in sections:
        assert re.search(r"^- `\w+/", section, re.MULTILINE), section.splitlines()[0]
