# Generated from ranges_async.py by ops/generate_sync.py: edit that one.
"""Reading what a transcript is made of, and appending what changes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, LiteralString, NamedTuple

from orjson import loads

from eventstore.errors import EventUndecodable, InvalidEvent
from eventstore.log import binary, catalogue, codec
from eventstore.log.appending import many
from eventstore.log.batch import Batch
from eventstore.log.connection import Caller, Row
from eventstore.log.events import ITEM, Entry, Json

_TRANSCRIPT: Final[LiteralString] = "SELECT * FROM convstore.read_transcript($1, $2, $3, $4, $5, $6)"
_RANGES: Final[LiteralString] = "SELECT * FROM convstore.read_ranges($1, $2, $3, $4, $5, $6)"
_CONTROL: Final[LiteralString] = """SELECT * FROM convstore.append_control(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)"""


SUMMARY: Final = "summary.appended"
_CHECKPOINT, _ITEM = 1, 3


class ControlEvent(NamedTuple):
    """An event that changes a transcript."""

    version: int
    type: str
    data: Json


@dataclass(slots=True)
class Material:
    """What a transcript is made of as of ``version``: of the control events those since the checkpoint.

    ``rows`` are the items after the last control event, the newest first, at most as many as were asked for.
    """

    stream: str
    context: str
    version: int
    head: int
    closed: bool
    checkpoint: tuple[int, Json] | None = None
    control: list[ControlEvent] = field(default_factory=list)
    rows: Sequence[Row] = ()
    _entries: list[Entry] | None = None

    @property
    def entries(self) -> list[Entry]:
        """The items after the last control event, in order."""
        if self._entries is None:
            values = self.items()
            self._entries = [Entry(row[1], value) for row, value in zip(self.rows[::-1], values, strict=True)]
        return self._entries

    def items(self) -> list[Json]:
        """Decode those items, in order.

        Raises ``EventUndecodable`` where one of them is none that the client wrote.
        """
        return _values(self.stream, self.rows[::-1])


def read_material(
    caller: Caller,
    tenant: str,
    stream: str,
    at: int | datetime | None,
    *,
    known: int | None,
    limit: int | None,
) -> Material | None:
    """Read what the transcript as of a version or a moment is made of; None where the stream does not exist.

    Where the ranges as of control event ``known`` are at hand, only those after it are read, or none if it is the last.
    """
    moment = at if isinstance(at, datetime) else None
    version = None if isinstance(at, datetime) else at
    rows = caller.call(
        _TRANSCRIPT,
        [tenant, stream, version, moment, known, limit],
        tenant=tenant,
        action="read",
        role="convstore_reader",
    )
    if not rows:
        return None
    head, context, closed = codec.decode(codec.STDLIB, rows[0][3])
    found = Material(stream, context, rows[0][1], head, closed)
    first = 1
    for kind, number, form, data in rows[1:]:
        if kind == _ITEM:
            break
        first += 1
        if kind == _CHECKPOINT:
            found.checkpoint = (number, _decoded(codec.STDLIB, data))
        else:
            found.control.append(_control(number, form, data))
    found.rows = rows[first:]
    return found


def read_ranges(
    caller: Caller,
    tenant: str,
    stream: str,
    backwards: Sequence[tuple[int, int, bool]],
    limit: int | None,
) -> list[Entry]:
    """Read what ranges of (first, last, whether its summaries) hold: at most the last ``limit``.

    The ranges are given from the last one back; the items come in order.
    """
    rows = caller.call(
        _RANGES,
        [
            tenant,
            stream,
            [first for first, _, _ in backwards],
            [last for _, last, _ in backwards],
            binary.texts([SUMMARY if summaries else ITEM for _, _, summaries in backwards]),
            limit,
        ],
        tenant=tenant,
        action="read",
        role="convstore_reader",
    )
    rows = rows[::-1]
    return [Entry(row[0], value, row[1]) for row, value in zip(rows, _values(stream, rows), strict=True)]


def _values(stream: str, rows: Sequence[Row]) -> list[Json]:
    """Decode rows that end with format and data."""
    decode, orjson = codec.decode, codec.ORJSON
    try:
        return [loads(row[3]) if row[2] == orjson else decode(row[2], row[3]) for row in rows]
    except (ValueError, RecursionError):
        for row in rows:
            try:
                decode(row[2], row[3])
            except (ValueError, RecursionError) as e:
                number, kind = (row[1], ITEM) if type(row[1]) is int else (row[0], SUMMARY if row[1] else ITEM)
                raise EventUndecodable(stream, number, kind, f"{type(e).__name__}: {e}"[:500]) from e
        raise


def _decoded(form: int, data: bytes) -> Json:
    try:
        return codec.decode(form, data)
    except (ValueError, RecursionError):
        return None


def _control(version: int, form: int, data: bytes) -> ControlEvent:
    """Read a control event; one that no client wrote is as a retraction of nothing."""
    nothing = ControlEvent(version, "items.retracted", {"ranges": []})
    told = _decoded(form, data)
    if told is None:
        return nothing
    kind, schema_version, value = told
    value = catalogue.upcast(kind, schema_version, value)
    try:
        catalogue.check(kind, value)
    except InvalidEvent:
        return nothing
    return ControlEvent(version, kind, value)


def append_control(
    caller: Caller,
    tenant: str,
    stream: str,
    batch: Batch,
    expected: int | None,
    control: int,
    ranges: Json | None,
) -> Row:
    """Append events that were decided on as of control event ``control``; return the server's answer.

    ``ranges`` are those as of that event, to be kept as a checkpoint.
    """
    kept = None if ranges is None else binary.JsonBytes(codec.encode(ranges, "ranges")[1])
    where: list[Any] = [control, kept, tenant, stream, expected]
    columns = many(batch)
    rows = caller.call(
        _CONTROL,
        [*where, batch.may_repeat, *columns],
        again=[*where, True, *columns],
        tenant=tenant,
        action="append events",
        role="convstore_writer",
    )
    return rows[0]
