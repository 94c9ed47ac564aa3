"""The check of a stream against its hashes and chain: pure, fed with rows as they are stored.

A branch folds on from its parent's chain at the fork point, so its check starts from a ``Mark`` of the parent's.

Every hash is made anew in Python from the stored bytes. The server's functions are not asked: who can change rows can
change functions. Memory stays constant: the digests of one append.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from eventstore.log import hashing
from eventstore.log.catalogue import CONTROL


class Bad(NamedTuple):
    """The first place that does not fit."""

    stream: str
    version: int
    reason: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What ``verify`` found: how many events of how many streams it checked, and the first bad place if any."""

    checked: int
    streams: int
    first_bad: Bad | None

    @property
    def ok(self) -> bool:
        """Whether everything fits."""
        return self.first_bad is None


class StoredRow(NamedTuple):
    """A row of ``audit_events``."""

    head: int | None
    control: int
    closed: bool
    streams_recorded_at: datetime
    tenant_fits: bool
    version: int | None
    position: int
    recorded_at: datetime
    event_id: UUID
    schema_version: int
    format: int
    hash: bytes
    chain: bytes | None
    type: str
    subject: str | None
    agent: str | None
    call_id: str | None
    task_id: str | None
    run_id: str | None
    unique_key: str | None
    metadata: bytes | None
    data: bytes


class AuditedStream(NamedTuple):
    """A row of ``audit_streams``."""

    context: str | None
    stream: str
    context_id: int
    stream_id: int
    secret: bytes | None
    origin: bytes | None
    created_at: datetime
    own_name: str | None
    parent_id: int | None
    parent: str | None
    fork_at: int | None
    fork_control: int | None
    forks: list[int] | None


class Mark(NamedTuple):
    """What a check knows at a version: all that a branch from there depends on."""

    version: int = 0
    chain: bytes | None = None
    position: int = 0
    recorded_at: datetime | None = None
    control: int = 0


class StreamCheck:
    """The check of one stream, fed with its own rows in order.

    ``fork`` is the parent's name and the version that it branches off at; ``start`` the parent's mark there. ``marks``
    keeps those at the versions ``wanted``.
    """

    def __init__(
        self,
        secret: bytes,
        origin: bytes,
        fork: tuple[str | None, int] | None = None,
        start: Mark = Mark(),  # noqa: B008 - it can't be changed
        wanted: Iterable[int] = (),
    ) -> None:
        self._secret = secret
        self._origin = origin
        self._fork = fork
        self._chain = start.chain
        self._append: list[tuple[int, bytes]] = []  # (position, hash) since the last chain
        self._position = start.position
        self._recorded_at = start.recorded_at
        self._control = start.control
        self._closed = False
        self._first = start.version + 1
        self._wanted = frozenset(wanted)
        self.marks: dict[int, Mark] = {}
        self.version = start.version

    def row(self, row: StoredRow) -> str | None:
        """Check the next row; return what is wrong with it."""
        if row.version is None or row.version < 1:
            return "versions count from 1"
        if row.version != self.version + 1:
            return f"a gap: version {self.version + 1} is missing"
        if row.head is None or row.version > row.head:
            return f"a row beyond the head, which is {row.head}"
        if not row.tenant_fits:
            return "the row's tenant is not the stream's"
        if row.position <= self._position:
            return f"its position {row.position} is not above {self._position}, that of the version before"
        if self._recorded_at is not None and row.recorded_at < self._recorded_at:
            return "its time is before that of the version before"
        if self._append and row.recorded_at != self._recorded_at:
            return "its time is not that of its append"
        if self._closed:
            return "it comes after stream.closed"
        if (row.type == "stream.forked") != (self._fork is not None and row.version == self._first):
            return "a branch begins with stream.forked, and nothing else does"
        digest = hashing.event_hash(
            row.event_id,
            row.schema_version,
            (
                row.type,
                row.subject,
                row.unique_key,
                row.agent,
                row.call_id,
                row.task_id,
                row.run_id,
            ),
            hashing.content_hash(self._secret, row.event_id, row.format, row.data, row.metadata),
        )
        if digest != row.hash or row.metadata == b"null":  # absent and a JSON null are the same in the hash
            return "its content does not have the hash that was recorded"
        if row.type == "stream.forked":
            told = json.loads(row.data)
            if not isinstance(told, dict) or (told.get("owner", told.get("parent")), told.get("at")) != self._fork:
                return f"it says that it branches off {told}, the stream's row says {self._fork}"
        self.version = row.version
        self._position = row.position
        self._recorded_at = row.recorded_at
        self._append.append((row.position, digest))
        if row.type in CONTROL:
            self._control = row.version
        self._closed = row.type == "stream.closed"
        if row.chain is not None:
            first = row.version - len(self._append) + 1
            self._chain = hashing.append_chain(self._chain, self._origin, first, row.recorded_at, self._append)
            self._append.clear()
            if self._chain != row.chain:
                return "the chain does not fit: an event of this append or before it was changed, moved or replaced"
        if row.version in self._wanted:
            self.marks[row.version] = self.mark()
        return None

    def mark(self) -> Mark:
        """Tell what a branch from here starts with; inside of an append, the chain of its rows up to here."""
        chain = self._chain
        if self._append and self._recorded_at is not None:
            first = self.version - len(self._append) + 1
            chain = hashing.append_chain(chain, self._origin, first, self._recorded_at, self._append)
        return Mark(self.version, chain, self._position, self._recorded_at, self._control)

    def end(self, row: StoredRow) -> str | None:
        """Check the stream's own row against what was read; return what is wrong."""
        if row.head != self.version:
            return f"the log ends here, but the stream's head is {row.head}"
        if self._append:
            return "the last append has no chain: its tail is missing"
        if row.control != self._control:
            return f"the stream says that version {row.control} changed the transcript last; it was {self._control}"
        if row.closed != self._closed:
            return f"the stream's closed is {row.closed}, its events say {self._closed}"
        if self._recorded_at is not None and row.streams_recorded_at != self._recorded_at:
            return "the stream's time is not that of its last event"
        return None
