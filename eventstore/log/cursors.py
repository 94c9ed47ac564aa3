"""Cursors of the feed: opaque text that holds a position and the incarnation of the log that it belongs to."""

from __future__ import annotations

import base64
import binascii
import struct
import uuid
from typing import NamedTuple

from eventstore.errors import CursorInvalid


class Place(NamedTuple):
    """What a cursor stands for; no incarnation at the very beginning."""

    position: int
    incarnation: uuid.UUID | None


def encode(position: int, incarnation: uuid.UUID) -> str:
    """Make the cursor of a reader that has dealt with everything up to ``position``."""
    return base64.urlsafe_b64encode(incarnation.bytes + struct.pack(">q", position)).decode()


def decode(cursor: str | None) -> Place:
    """Read a cursor; None is the beginning. Raises ``CursorInvalid`` where it is none."""
    if cursor is None:
        return Place(0, None)
    try:
        raw = base64.b64decode(cursor, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError, TypeError):
        raw = b""
    if len(raw) != 24:
        raise CursorInvalid(cursor, "it is not one; give .cursor of a page or an event, or None for the beginning")
    (position,) = struct.unpack(">q", raw[16:])
    if position < 0:
        raise CursorInvalid(cursor, "it is not one; give .cursor of a page or an event, or None for the beginning")
    return Place(position, uuid.UUID(bytes=raw[:16]))
