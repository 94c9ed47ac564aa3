"""Rows as events: what an upcaster fails on is an event that can't be decoded, and no defect of the reader."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import pytest
from pydantic import BaseModel

from eventstore import UndecodableEvent, errors
from eventstore.log import catalogue, rows
from eventstore.log.catalogue.registry import Catalogue

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Renamed(BaseModel):
    title: str


@pytest.fixture
def renaming(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue whose one type has renamed a field."""
    mine = Catalogue()
    mine.event("x-like.renamed", version=2)(Renamed)
    mine.upcaster("x-like.renamed", from_version=1)(lambda data: {"title": data["name"]})
    mine.freeze()
    monkeypatch.setattr(catalogue, "upcast", mine.upcast)
    monkeypatch.setattr(catalogue, "knows", mine.knows)


def row(kind: str, version: int, data: bytes) -> list[Any]:
    head: list[Any] = ["ctx", "s", 4, 9, uuid.uuid4(), kind, version, 1, data, None]
    return head + [None] * 6 + [NOW, b"hash"]


@pytest.mark.parametrize("data", [b'{"nome": "a"}', b"[]", b"1"])
def test_what_an_upcaster_fails_on_is_undecodable(renaming: None, data: bytes) -> None:
    event = rows.recorded("t", row("x-like.renamed", 1, data), "cursor")
    assert isinstance(event, UndecodableEvent)
    assert (event.tenant, event.version, event.raw_data, event.cursor) == ("t", 4, data, "cursor")
    assert type(event.error.__cause__).__name__ in event.error.reason
    with pytest.raises(errors.EventUndecodable):
        _ = event.data


def test_what_an_upcaster_understands_is_current(renaming: None) -> None:
    assert rows.recorded("t", row("x-like.renamed", 1, b'{"name": "a"}')).data == {"title": "a"}


def test_memory_that_runs_out_is_no_fault_of_the_event(renaming: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(rows.codec, "decode", full)
    with pytest.raises(MemoryError):
        rows.recorded("t", row("x-like.renamed", 2, b"{}"))
