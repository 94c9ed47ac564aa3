# Generated from transcripts_async.py by ops/generate_sync.py: edit that one.
"""Reading transcripts: the version ranges are folded from the control events, then what they hold is fetched.

Two round trips at most, whatever the length; one where what is wanted lies after the last control event.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from eventstore.errors import InvalidItem, describe
from eventstore.log.connection import Caller
from eventstore.log.events import Entry
from eventstore.log.ranges import Material, read_material, read_ranges
from projections.transcript import EMPTY, Piece, Ranges

CHECKPOINT_EVERY: Final = 64
"""So many control events are folded at most, before one is appended with a checkpoint."""


@dataclass(frozen=True, slots=True)
class Basis:
    """A stream as of a version: its ranges, and the items after the last control event, as many as asked for."""

    material: Material
    ranges: Ranges

    @property
    def context(self) -> str:
        """Its context."""
        return self.material.context

    @property
    def version(self) -> int:
        """The version that it is of."""
        return self.material.version

    @property
    def entries(self) -> list[Entry]:
        """The items after the last control event, in order."""
        return self.material.entries

    @property
    def folded(self) -> int:
        """How many control events were folded since the checkpoint."""
        return len(self.material.control)


def read_basis(caller: Caller, tenant: str, stream: str, at: int | datetime | None, limit: int | None) -> Basis | None:
    """Read a stream as of a version or a moment; None where it does not exist.

    Raises ``InvalidItem`` where ``at`` is no version of it, or a moment without a time zone.
    """
    check_at(at)
    found = read_material(caller, tenant, stream, at, known=None, limit=limit)
    if found is None:
        return None
    if isinstance(at, int) and at > found.head:
        raise InvalidItem("at", f"{at}; stream {stream!r} has versions 1 to {found.head}")
    try:
        ranges = EMPTY if found.checkpoint is None else Ranges.loads(found.checkpoint[1], found.checkpoint[0])
    except ValueError:  # of newer code, or no client's: everything can be folded anew
        found = read_material(caller, tenant, stream, found.version, known=0, limit=limit) or found
        ranges = EMPTY
    return Basis(found, ranges.fold(found.control))


def check_at(at: object) -> None:
    """Refuse what is neither a version, a moment nor None."""
    if at is None or (type(at) is int and 0 <= at < 2**63):
        return
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise InvalidItem("at", f"{describe(at)} has no time zone; give an aware datetime")
        return
    raise InvalidItem("at", f"{describe(at)}; give a version, an aware datetime, or None for the head")


def read_shown(caller: Caller, tenant: str, stream: str, basis: Basis, limit: int | None = None) -> list[Entry]:
    """Give the items and summaries of the transcript, at most the last ``limit``."""
    return fetch(caller, tenant, stream, basis, basis.ranges.newest(basis.version), limit)


def read_originals(caller: Caller, tenant: str, stream: str, basis: Basis) -> list[Entry]:
    """Give the items that the transcript stands for, compactions undone."""
    pieces = reversed(basis.ranges.originals(basis.version))
    return fetch(caller, tenant, stream, basis, pieces, None)


def fetch(
    caller: Caller, tenant: str, stream: str, basis: Basis, newest: Iterable[Piece], limit: int | None
) -> list[Entry]:
    """Give what pieces hold, at most the last ``limit``; the pieces come from the last one back.

    What lies after the last control event is there already.
    """
    control = basis.ranges.control
    after: list[Entry] = []
    before: list[tuple[int, int, bool]] = []
    for piece in newest:
        if piece.last > control:
            after = [entry for entry in basis.entries if piece.first <= entry.version <= piece.last] + after
        if limit is not None and len(after) >= limit:
            return after[len(after) - limit :]
        if piece.first <= control:
            before.append((piece.first, min(piece.last, control), piece.summary))
    if not before:
        return after
    found = read_ranges(caller, tenant, stream, before, None if limit is None else limit - len(after))
    return found + after
