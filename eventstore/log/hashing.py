"""The hash of an event and the chain of a stream, as the server makes them, for whoever wants to check it.

The preimages are specified in docs/hashing.md. Nothing here looks at a database, so an auditor can verify a file.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import struct
import uuid
from collections.abc import Iterable

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def field(text: str | None) -> bytes:
    """Encode one field: its length in bytes as a big-endian int4, then its UTF-8; None is the length -1."""
    if text is None:
        return b"\xff\xff\xff\xff"
    raw = text.encode()
    return struct.pack(">i", len(raw)) + raw


def origin(tenant: str, context: str, stream: str) -> bytes:
    """Digest the names that a stream goes by."""
    return _sha256(field(tenant) + field(context) + field(stream))


def data_hash(secret: bytes, event_id: uuid.UUID, form: int, data: bytes) -> bytes:
    """Digest an event's data, salted with the context's secret: it can stand in for data that was removed."""
    return _sha256(_sha256(secret + event_id.bytes) + struct.pack(">h", form) + data)


def event_hash(
    event_id: uuid.UUID,
    schema_version: int,
    fields: Iterable[str | None],
    metadata: bytes | None,
    data_digest: bytes,
) -> bytes:
    """Digest an event; ``fields`` are type, subject, unique_key, agent, call_id, task_id, run_id."""
    return _sha256(
        b"convstore/1"
        + event_id.bytes
        + struct.pack(">h", schema_version)
        + b"".join(map(field, fields))
        + _sha256(metadata or b"")
        + data_digest
    )


def append_chain(
    previous: bytes | None,
    origin_digest: bytes,
    first_version: int,
    recorded_at: dt.datetime,
    rows: Iterable[tuple[int, bytes]],
) -> bytes:
    """Fold one append onto a stream's chain; ``rows`` are (position, hash) of its events in order."""
    return _sha256(
        b"convstore/1/append"
        + (previous or b"")
        + origin_digest
        + struct.pack(">qq", first_version, (recorded_at - EPOCH) // dt.timedelta(microseconds=1))
        + b"".join(struct.pack(">q", position) + digest for position, digest in rows)
    )
