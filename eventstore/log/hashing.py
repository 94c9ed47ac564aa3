"""The hash of an event and the chain of a stream, as the server makes them, for whoever wants to check it.

The preimages are specified in docs/hashing.md. Nothing here looks at a database, so an auditor can verify a file.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import struct
import uuid
from collections.abc import Iterable, Sequence

_EPOCH = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)  # Postgres counts from here


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _array(*values: str | int | None) -> bytes:
    """Encode a JSON array as Postgres prints it: ``", "`` between values, quotes and control characters escaped."""
    return json.dumps(values, ensure_ascii=False).encode()


def names_hash(tenant: str, context: str, stream: str) -> bytes:
    """Digest the names that a stream goes by."""
    return _sha256(_array("convstore/1/stream", tenant, context, stream))


def content_hash(secret: bytes, event_id: uuid.UUID, form: int, data: bytes, metadata: bytes | None) -> bytes:
    """Digest an event's data and metadata, salted with the context's secret: it can stand in once they were removed."""
    content = b"[" + data + b", " + (b"null" if metadata is None else metadata) + b"]"
    return _sha256(_sha256(secret + event_id.bytes) + struct.pack(">h", form) + content)


def event_hash(event_id: uuid.UUID, schema_version: int, fields: Sequence[str | None], content_digest: bytes) -> bytes:
    """Digest an event; ``fields`` are type, subject, unique_key, agent, call_id, task_id, run_id."""
    return _sha256(content_digest + _array("convstore/1", str(event_id), schema_version, *fields))


def append_chain(
    previous: bytes | None,
    names_digest: bytes,
    first_version: int,
    recorded_at: dt.datetime,
    rows: Iterable[tuple[int, bytes]],
) -> bytes:
    """Fold one append onto a stream's chain; ``rows`` are (position, hash) of its events in order."""
    return _sha256(
        b"convstore/1/append"
        + names_digest
        + struct.pack(">qq", first_version, (recorded_at - _EPOCH) // dt.timedelta(microseconds=1))
        + (previous or b"")
        + b"".join(struct.pack(">q", position) + digest for position, digest in rows)
    )
