# Generated from checkpoints_async.py by ops/generate_sync.py: edit that one.
"""Proving that the checkpoints of transcripts are what their events come to: each is folded anew and compared."""

from __future__ import annotations

from typing import Final, LiteralString

from eventstore.log import codec
from eventstore.log.audit import Bad
from eventstore.log.connection import Caller
from eventstore.log.ranges import read_material
from projections.transcript import EMPTY, Ranges

PAGE: Final = 100
_CHECKPOINTS: Final[LiteralString] = "SELECT * FROM convstore.audit_checkpoints($1, $2, $3, $4)"


def check_checkpoints(caller: Caller, tenant: str, stream: str | None) -> Bad | None:
    """Give the first checkpoint of a stream and its ancestry, or of all of the tenant, that its events don't come to.

    The events are taken to be right; verify them first.
    """
    after: list[int] | None = None
    place: tuple[int, int] | None = None
    ranges = EMPTY
    while True:
        rows = caller.call(
            _CHECKPOINTS, [tenant, stream, after, PAGE], tenant=tenant, action="verify", role="convstore_auditor"
        )
        for name, context_id, stream_id, version, tenant_fits, kept in rows:
            after = [context_id, stream_id, version]
            if name is None or not tenant_fits:
                return Bad(name or f"#{stream_id}", version, "a checkpoint that is none of this tenant's streams")
            if place != (context_id, stream_id):
                place, ranges = (context_id, stream_id), EMPTY
            known = ranges.control
            found = read_material(caller, tenant, name, version, known=known, limit=0)
            ranges = ranges if found is None else ranges.fold(found.control)
            wrong = _wrong(kept, version, ranges)
            if wrong is not None:
                return Bad(name, version, wrong)
        if len(rows) < PAGE:
            return None


def _wrong(kept: bytes, version: int, ranges: Ranges) -> str | None:
    if ranges.control != version:
        return f"a checkpoint of control event {version}; the last one up to there is {ranges.control}"
    try:
        same = Ranges.loads(codec.decode(codec.STDLIB, kept), version) == ranges
    except (ValueError, RecursionError) as e:
        return f"its checkpoint can't be read: {e}"[:500]
    return None if same else "its checkpoint is not what the control events up to there come to"
