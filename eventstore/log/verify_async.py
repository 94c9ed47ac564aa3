"""Proving that nothing was changed: reads what is stored, page by page, and checks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, LiteralString

from eventstore.errors import StreamNotFound
from eventstore.log import hashing
from eventstore.log.audit import Bad, StoredRow, StreamCheck, VerifyReport
from eventstore.log.connection_async import AsyncCaller

PAGE: Final = 1000
_STREAMS: Final[LiteralString] = "SELECT * FROM convstore.audit_streams($1, $2, $3, $4)"
_EVENTS: Final[LiteralString] = "SELECT * FROM convstore.audit_events($1, $2, $3, $4, $5)"
_ORPHANS: Final[LiteralString] = "SELECT * FROM convstore.audit_orphans($1)"


async def verify_async(
    caller: AsyncCaller,
    tenant: str,
    stream: str | None,
    progress: Callable[[str, int], None] | None,
) -> VerifyReport:
    """Check one stream, or all of the tenant; stop at the first bad place.

    ``progress`` is called with the stream's name and the number of events checked so far, after each page.
    """
    checked = streams = 0
    after: int | None = None
    while True:
        page = await _rows(caller, tenant, _STREAMS, [tenant, stream, after, PAGE])
        if stream is not None and not page:
            raise StreamNotFound(stream, tenant)
        for context, name, context_id, stream_id, secret, stored_origin, _ in page:
            after = stream_id
            streams += 1
            origin = hashing.names_hash(tenant, context or "", name)
            if secret is None or stored_origin is None:
                return VerifyReport(
                    checked,
                    streams,
                    Bad(name, 0, "the row of its context or stream is missing, or their secrets differ"),
                )
            if stored_origin != origin:
                return VerifyReport(
                    checked,
                    streams,
                    Bad(name, 0, "it goes by other names than when it was created"),
                )
            check = StreamCheck(secret, origin)
            while True:
                rows = [
                    StoredRow(*row)
                    for row in await _rows(
                        caller,
                        tenant,
                        _EVENTS,
                        [tenant, context_id, stream_id, check.version or None, PAGE],
                    )
                ]
                for row in rows:
                    if row.version is None:
                        break
                    reason = check.row(row)
                    if reason is not None:
                        return VerifyReport(checked, streams, Bad(name, row.version, reason))
                    checked += 1
                if progress is not None:
                    progress(name, checked)
                if not rows or rows[-1].version is None or rows[-1].version == rows[-1].head:
                    # Once more where the head was reached: a row beyond it would come now.
                    if rows and rows[-1].version is not None:
                        continue
                    reason = check.end(rows[0]) if rows else "the stream is gone"
                    if reason is not None:
                        return VerifyReport(checked, streams, Bad(name, check.version, reason))
                    break
        if stream is not None or len(page) < PAGE:
            break
    if stream is None:
        for _, stream_id, version, position in await _rows(caller, tenant, _ORPHANS, [tenant]):
            reason = f"the event at position {position} belongs to no stream of the directory"
            return VerifyReport(checked, streams, Bad(f"#{stream_id}", version, reason))
    return VerifyReport(checked, streams, None)


async def _rows(caller: AsyncCaller, tenant: str, query: LiteralString, params: list[Any]) -> list[tuple[Any, ...]]:
    return await caller.call(query, params, tenant=tenant, action="verify", role="convstore_auditor")
