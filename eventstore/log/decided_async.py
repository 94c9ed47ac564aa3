"""What a decision about a stream is made from, and appending what was decided, unless the ground has moved since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, LiteralString, NamedTuple
from uuid import UUID

from eventstore.log import binary, codec
from eventstore.log.appending import many
from eventstore.log.batch import Batch
from eventstore.log.connection_async import AsyncCaller, Row
from eventstore.log.events import Json, RecordedEvent
from eventstore.log.rows import recorded

LIMIT: Final = 1000
_LOOK: Final[LiteralString] = "SELECT * FROM convstore.read_decisive($1, $2, $3, $4, $5, $6, $7, $8)"
_EVIDENCE: Final[LiteralString] = "SELECT * FROM convstore.find_evidence($1, $2, $3, $4, $5, $6, $7)"
_APPEND: Final[LiteralString] = """SELECT * FROM convstore.append_decided(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)"""


@dataclass(slots=True)
class Look:
    """A stream as of ``head``: ``line`` are its events of the types asked for, its parents' included.

    ``last`` is the last one of a type, ``about`` what the whole context has about the subjects asked for. ``cut`` where
    the line has more than it holds.
    """

    context: str
    head: int
    line: list[RecordedEvent] = field(default_factory=list)
    last: RecordedEvent | None = None
    about: list[RecordedEvent] = field(default_factory=list)
    cut: bool = False


class Found(NamedTuple):
    """What a reference names; ``data`` is an artifact's."""

    place: int
    stream: str | None
    version: int | None
    event_id: UUID | None
    data: Json


async def look_async(
    caller: AsyncCaller,
    tenant: str,
    stream: str,
    context: str | None,
    *,
    types: Sequence[str] = (),
    last: str | None = None,
    subjects: Sequence[str] = (),
    subject_types: Sequence[str] = (),
) -> Look:
    """Look at a stream in one round trip; a stream that does not exist has head 0 and belongs to ``context``."""
    rows = await caller.call(
        _LOOK,
        [tenant, stream, context, list(types), LIMIT, last, list(subjects), list(subject_types)],
        tenant=tenant,
        action="read",
        role="convstore_reader",
    )
    found = Look(rows[0][0], rows[0][2])
    for row in rows[1:]:
        event = recorded(tenant, row)
        if row[-1] == 1:
            found.line.append(event)
        elif row[-1] == 2:
            found.last = event
        else:
            found.about.append(event)
    found.cut = len(found.line) >= LIMIT
    return found


async def find_evidence_async(
    caller: AsyncCaller,
    tenant: str,
    stream: str,
    context: str | None,
    references: Sequence[tuple[UUID | None, str | None, int | None, str | None]],
) -> list[Found]:
    """Find what references (event id, stream, version, uri) name in the stream's context, by their place in the list.

    An artifact's are all versions that were published under the uri.
    """
    rows = await caller.call(
        _EVIDENCE,
        [
            tenant,
            stream,
            context,
            [event_id for event_id, *_ in references],
            [name for _, name, _, _ in references],
            [version for _, _, version, _ in references],
            [uri for *_, uri in references],
        ],
        tenant=tenant,
        action="read",
        role="convstore_reader",
    )
    return [
        Found(ord_ - 1, name, version, event_id, None if data is None else codec.decode(form, data))
        for ord_, name, version, event_id, form, data in rows
    ]


async def append_decided_async(
    caller: AsyncCaller, tenant: str, stream: str, batch: Batch, seen: int, decisive: Sequence[str]
) -> Row:
    """Append events that were decided on as of head ``seen``; return the server's answer."""
    where: list[Any] = [seen, binary.texts(list(decisive)), tenant, stream]
    columns = many(batch)
    rows = await caller.call(
        _APPEND,
        [*where, batch.may_repeat, *columns],
        again=[*where, True, *columns],
        tenant=tenant,
        action="append events",
        role="convstore_writer",
    )
    return rows[0]
