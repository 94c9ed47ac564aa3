"""Cursors of the feed: opaque text that holds a position, the incarnation of the log, and a mark of the event there.

By the mark the server can tell whether the event that the reader had come to is still in the log.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import struct
import uuid
from typing import Final, NamedTuple

from eventstore.errors import CursorInvalid

_EPOCH: Final = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


class Place(NamedTuple):
    """What a cursor stands for; no incarnation at the very beginning, no mark where only a position was known."""

    position: int
    incarnation: uuid.UUID | None
    mark: bytes | None = None


def mark(digest: bytes, recorded_at: dt.datetime) -> bytes:
    """Tell an event from any other at its position, also from the same one appended again; as ``event_mark()``."""
    return digest[:4] + struct.pack(">q", (recorded_at - _EPOCH) // _MICROSECOND)[4:]


def encode(position: int, incarnation: uuid.UUID, mark: bytes | None = None) -> str:
    """Make the cursor of a reader that has dealt with everything up to ``position``, where the event of ``mark`` is."""
    return base64.urlsafe_b64encode(incarnation.bytes + struct.pack(">q", position) + (mark or b"")).decode()


def decode(cursor: str | None) -> Place:
    """Read a cursor; None is the beginning. Raises ``CursorInvalid`` where it is none."""
    if cursor is None:
        return Place(0, None)
    try:
        raw = base64.b64decode(cursor, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError, TypeError):
        raw = b""
    if len(raw) not in (24, 32):
        raise CursorInvalid(cursor, "it is not one; give .cursor of a page or an event, or None for the beginning")
    (position,) = struct.unpack(">q", raw[16:24])
    if position < 0:
        raise CursorInvalid(cursor, "it is not one; give .cursor of a page or an event, or None for the beginning")
    return Place(position, uuid.UUID(bytes=raw[:16]), raw[24:] or None)
