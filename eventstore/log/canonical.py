"""The canonical form of a JSON value: two values that are the same have the same bytes, and so the same digest.

As in RFC 8785 there are no blanks and keys are sorted, by code point here. Numbers are exact: 1 and 1.0 are one number,
2**53 and 2**53 + 1 are two. What is no ASCII is escaped, so lone surrogates have a form too.
"""

from __future__ import annotations

import hashlib
import json

from eventstore.log.events import Json


def canonical(value: Json) -> bytes:
    """Give the canonical form of a value that the log can hold."""
    return json.dumps(_exact(value), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest(value: Json) -> str:
    """Give the SHA-256 of the canonical form, in hex."""
    return hashlib.sha256(canonical(value)).hexdigest()


def _exact(value: Json) -> Json:
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is dict:
        return {key: _exact(inner) for key, inner in value.items()}
    if type(value) is list:
        return [_exact(inner) for inner in value]
    return value
