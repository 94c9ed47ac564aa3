"""JSON in and out, byte for byte, type for type.

A value is exactly dict with ``str`` keys, list, str, bool, None, int or finite float, at most 200 deep. orjson writes
it. What orjson can't hold (integers beyond 64 bits, lone surrogates) the standard library writes, and the row's format
byte says so: ``orjson.loads`` would turn 2**80 into a float without a word.
"""

from __future__ import annotations

import json
from math import isfinite

import orjson

from eventstore.errors import InvalidItem, describe
from eventstore.log.events import Json

MAX_DEPTH = 200
MAX_EVENT_BYTES = 16 * 1024 * 1024

ORJSON = 1
STDLIB = 2


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text[:20]} is beyond what a float holds")
    return value


_STDLIB = json.JSONDecoder(parse_float=_finite)
_PLAIN = frozenset((str, int, bool, type(None)))
# What orjson would convert by itself is refused by the walk before; these say it once more.
_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


def encode(value: Json, path: str) -> tuple[int, bytes]:
    """Return the format byte and the bytes of ``value``.

    Raises ``InvalidItem`` that names the place below ``path`` where the value can't be held, or its size where it is
    over 16 MiB encoded.
    """
    if not _holds(value, 0):
        raise _refusal(value, path, 0)
    try:
        data = orjson.dumps(value, option=_OPTIONS)
        form = ORJSON
    except (TypeError, ValueError):
        try:
            data = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
        except ValueError as e:  # an integer of more digits than Python converts
            raise InvalidItem(path, f"{e}; an integer has at most 4,300 digits") from None
        form = STDLIB
    if len(data) > MAX_EVENT_BYTES:
        raise InvalidItem(
            path,
            f"{len(data):,} bytes encoded; an event has at most 16 MiB ({MAX_EVENT_BYTES:,} bytes)",
        )
    return form, data


def decode(form: int, data: bytes | str | memoryview) -> Json:
    """Return the value that ``encode`` was given.

    Raises ``ValueError`` or ``RecursionError`` for data that it has not written.
    """
    if form == ORJSON:
        return orjson.loads(data)
    return _STDLIB.decode(_text(data))


def encode_metadata(value: object, path: str) -> bytes | None:
    """Return the bytes of an event's metadata, None where there is none. It needs no format byte: see below."""
    if not value:
        if value is None or value == {}:
            return None
        raise InvalidItem(path, f"metadata is a mapping with str keys, not {describe(value)}")
    mapping = value if type(value) is dict else dict(value) if hasattr(value, "keys") else None  # type: ignore[call-overload]
    if mapping is None:
        raise InvalidItem(path, f"metadata is a mapping with str keys, not {describe(value)}")
    return encode(mapping, path)[1]


def decode_metadata(data: bytes | str | None) -> dict[str, Json]:
    """Return an event's metadata. The standard library reads exactly what either encoder wrote."""
    if data is None:
        return {}
    decoded: dict[str, Json] = _STDLIB.decode(_text(data))
    return decoded


def holds(value: Json) -> bool:
    """Say whether ``value`` is one that the log can hold, whatever its size."""
    return _holds(value, 0)


def _text(data: bytes | str | memoryview) -> str:
    return data if isinstance(data, str) else str(data, "utf-8")


def _holds(value: Json, depth: int) -> bool:
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is dict:
        if depth >= MAX_DEPTH:
            return False
        for key, inner in value.items():
            if type(key) is not str or not (type(inner) in _PLAIN or _holds(inner, depth + 1)):
                return False
        return True
    if kind is list:
        if depth >= MAX_DEPTH:
            return False
        return all(type(inner) in _PLAIN or _holds(inner, depth + 1) for inner in value)
    return kind is float and isfinite(value)


def _refusal(value: Json, path: str, depth: int) -> InvalidItem:
    """Find the first place that ``_holds`` refused."""
    kind = type(value)
    if kind is float:
        return InvalidItem(path, f"{value} is no JSON value; use null or a string")
    if kind in (dict, list) and depth >= MAX_DEPTH:
        return InvalidItem(path, f"nested deeper than {MAX_DEPTH}")
    if kind is dict:
        for key, inner in value.items():
            if type(key) is not str:
                return InvalidItem(path, f"key {describe(key)} is {_named(type(key))}; keys are str")
            if not _holds(inner, depth + 1):
                return _refusal(
                    inner,
                    f"{path}.{key}" if key.isidentifier() else f"{path}[{json.dumps(key)}]",
                    depth + 1,
                )
    if kind is list:
        for index, inner in enumerate(value):
            if not _holds(inner, depth + 1):
                return _refusal(inner, f"{path}[{index}]", depth + 1)
    return InvalidItem(
        path,
        f"{describe(value)} is {_named(kind)}; a value is exactly dict, list, str, bool, None, int or a finite float",
    )


def _named(kind: type) -> str:
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"
