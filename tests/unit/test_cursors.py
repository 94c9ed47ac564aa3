"""Cursors: what is given comes back, anything else is refused with what to give instead."""

from __future__ import annotations

import base64
import datetime as dt
import uuid

import pytest

from eventstore.errors import CursorInvalid
from eventstore.log import cursors

LIFE = uuid.UUID("0190b3c8-7d7e-7cc3-9a4b-1f2e3d4c5b6a")


@pytest.mark.parametrize("position", [0, 1, 2**31, 2**48 - 1, 2**63 - 1])
@pytest.mark.parametrize("mark", [None, b"\x00" * 8, b"\xff" * 8])
def test_a_cursor_is_read_back(position: int, mark: bytes | None) -> None:
    text = cursors.encode(position, LIFE, mark)
    assert cursors.decode(text) == (position, LIFE, mark)
    assert text.isascii()
    assert not set(text) & set("+/ \n&")  # so that it can stand in a URL or a file's line


def test_none_is_the_beginning() -> None:
    assert cursors.decode(None) == (0, None, None)


def test_cursors_of_one_log_sort_as_their_positions() -> None:
    texts = [cursors.encode(position, LIFE) for position in range(0, 100_000, 97)]
    raw = [base64.urlsafe_b64decode(text) for text in texts]
    assert raw == sorted(raw)


def test_a_mark_tells_events_apart_by_their_hash_and_by_their_time() -> None:
    time = dt.datetime(2026, 7, 1, 12, 0, 0, 123_456, dt.UTC)
    first = cursors.mark(b"h" * 32, time)
    assert first == cursors.mark(b"h" * 32, time.astimezone(dt.timezone(dt.timedelta(hours=5))))
    others = [cursors.mark(b"i" * 32, time), cursors.mark(b"h" * 32, time + dt.timedelta(microseconds=1))]
    assert len({first, *others}) == 3


GOOD = cursors.encode(5, LIFE)
MARKED = cursors.encode(5, LIFE, b"12345678")
BAD = [
    *("", "0", "5", "abc", "é" * 32, "\x00" * 32, GOOD[:-1], GOOD + "A", GOOD[:-4], " " + GOOD, GOOD + "\n"),
    *(MARKED[:-1], MARKED + "A", MARKED[:-4], GOOD + MARKED),
    *(GOOD * 2, GOOD[:-1] + "!", base64.urlsafe_b64encode(b"x" * 23).decode()),
    base64.urlsafe_b64encode(LIFE.bytes + b"\xff" * 8).decode(),  # position -1
]


@pytest.mark.parametrize("cursor", BAD, ids=ascii)
def test_what_is_no_cursor_is_refused_with_what_to_give_instead(cursor: str) -> None:
    with pytest.raises(CursorInvalid, match=r"\.cursor of a page or an event, or None") as caught:
        cursors.decode(cursor)
    assert caught.value.cursor == cursor


@pytest.mark.parametrize("cursor", [5, 0, 1.5, ["x"], {"cursor": 1}, LIFE], ids=repr)
def test_other_types_are_no_cursors(cursor: object) -> None:
    with pytest.raises(CursorInvalid, match="None for the beginning"):
        cursors.decode(cursor)  # type: ignore[arg-type]
