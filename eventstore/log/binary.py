"""Parameters that are bytes already, passed to Postgres as they are.

psycopg's own array dumper visits each element in Python; a batch's columns are encoded once here and joined in C.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Sequence
from typing import Final

import psycopg
from psycopg import pq
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.types.string import ByteaBinaryLoader

BINARY = pq.Format.BINARY
_TEXT, JSON, _UUID, _INT2, _INT4, _INT8, _BOOL, _BYTEA = 25, 114, 2950, 21, 23, 20, 16, 17
_ARRAY = {_TEXT: 1009, JSON: 199, _UUID: 2951, _INT2: 1005, _INT4: 1007, _INT8: 1016, _BOOL: 1000, _BYTEA: 1001}


class JsonBytes(bytes):
    """Encoded JSON, passed as the type ``json``."""


class Array:
    """A one-dimensional array in Postgres' binary form."""

    __slots__ = ("oid", "wire")

    def __init__(self, element: int, values: Sequence[bytes | None]) -> None:
        self.oid = _ARRAY[element]
        has_null = None in values
        head = struct.pack(">iiIii", 1, has_null, element, len(values), 1)
        pack = _LENGTH.pack
        self.wire = head + b"".join([b"\xff\xff\xff\xff" if v is None else pack(len(v)) + v for v in values])


_LENGTH = struct.Struct(">i")


def texts(values: Sequence[str | None]) -> Array | None:
    """Make a ``text[]``; None where all are None."""
    if all(v is None for v in values):
        return None
    return Array(_TEXT, [None if v is None else v.encode() for v in values])


def nulls(size: int) -> Array:
    """Make a ``text[]`` of nulls."""
    return Array(_TEXT, [None] * size)


def jsons(values: Sequence[bytes | None]) -> Array | None:
    """Make a ``json[]``; None where all are None."""
    return None if all(v is None for v in values) else Array(JSON, values)


def uuids(values: Iterable[uuid.UUID]) -> Array:
    """Make a ``uuid[]``."""
    return Array(_UUID, [v.bytes for v in values])


def smallints(values: Iterable[int]) -> Array:
    """Make a ``smallint[]``."""
    pack = struct.Struct(">h").pack
    return Array(_INT2, [pack(v) for v in values])


def integers(values: Iterable[int]) -> Array:
    """Make an ``integer[]``."""
    pack = struct.Struct(">i").pack
    return Array(_INT4, [pack(v) for v in values])


def bigints(values: Iterable[int | None]) -> Array:
    """Make a ``bigint[]``."""
    pack = struct.Struct(">q").pack
    return Array(_INT8, [None if v is None else pack(v) for v in values])


def booleans(values: Iterable[bool]) -> Array:
    """Make a ``boolean[]``."""
    return Array(_BOOL, [b"\1" if v else b"\0" for v in values])


def blobs(values: Sequence[bytes]) -> Array:
    """Make a ``bytea[]``."""
    return Array(_BYTEA, values)


class _JsonDumper(Dumper):
    format = pq.Format.BINARY
    oid = JSON

    def dump(self, obj: JsonBytes) -> Buffer:
        return obj


class _ArrayDumper(Dumper):
    """One dumper a type of array: the key makes psycopg keep them apart."""

    format = pq.Format.BINARY

    def get_key(self, obj: Array, format: object) -> tuple[type, int]:  # type: ignore[override]  # noqa: A002, ARG002
        return (self.cls, obj.oid)

    def upgrade(self, obj: Array, format: object) -> _ArrayDumper:  # noqa: A002, ARG002
        dumper = type(self)(self.cls)
        dumper.oid = obj.oid
        return dumper

    def dump(self, obj: Array) -> Buffer:
        return obj.wire


def adapters() -> AdaptersMap:
    """Return psycopg's adapters with ours added, for our connections or for a cursor on somebody else's."""
    ours = AdaptersMap(psycopg.adapters)
    register(ours)
    return ours


def register(target: AdaptersMap | AdaptContext) -> None:
    """Add our adapters to a map, a connection or a cursor."""
    adapters_map: Final = target if isinstance(target, AdaptersMap) else target.adapters
    adapters_map.register_dumper(JsonBytes, _JsonDumper)
    adapters_map.register_dumper(Array, _ArrayDumper)
    adapters_map.register_loader("json", ByteaBinaryLoader)  # as the bytes that were stored, in C where it can be
