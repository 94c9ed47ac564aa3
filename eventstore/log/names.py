"""Names, keys and ids: what may be one, and how it becomes what the log stores.

Names of tenants, contexts and streams are 1 to 512 characters that Postgres can hold. Other ids (an item's id, a call
id, an agent) come from outside and are never refused: what is too long or not storable is kept as its digest, and
look-ups do the same.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
import time
import uuid
from collections.abc import Mapping

from eventstore.errors import InvalidItem, InvalidName, describe

MAX_NAME = 512
MAX_ID_BYTES = 512


def check_name(what: str, value: object) -> str:
    """Return ``value`` if it can name a ``what`` (tenant, context, stream); raise ``InvalidName`` if not."""
    if type(value) is not str:
        raise InvalidName(what, value, f"a name is a str, not {type(value).__name__}")
    if not value:
        raise InvalidName(what, value, "a name has at least one character")
    if len(value) > MAX_NAME:
        raise InvalidName(what, value, f"{len(value)} characters; a name has at most {MAX_NAME}")
    if "\x00" in value:
        raise InvalidName(what, value, "a name can't hold U+0000")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as e:
            raise InvalidName(what, value, f"a lone surrogate at character {e.start}") from None
    return value


def storable(what: str, value: object) -> str | None:
    """Turn an id from outside into what the log stores: itself, or ``sha256:…`` where it can't be held.

    Raises ``InvalidName`` where it is not a string at all.
    """
    if value is None:
        return None
    if type(value) is not str:
        raise InvalidName(what, value, f"an id is a str, not {type(value).__name__}")
    if value.isascii():
        if len(value) <= MAX_ID_BYTES and "\x00" not in value:
            return value
        return "sha256:" + hashlib.sha256(value.encode()).hexdigest()
    raw = value.encode("utf-8", "surrogatepass")
    try:
        raw.decode()
    except UnicodeDecodeError:
        pass
    else:
        if len(raw) <= MAX_ID_BYTES and "\x00" not in value:
            return value
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def check_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return ``tags`` if they are a mapping of str to str that the database can hold."""
    if not isinstance(tags, Mapping):
        raise InvalidItem("tags", f"{describe(tags)}; give a mapping of str to str")
    for key, value in tags.items():
        check_name("tag", key)
        if type(value) is not str:
            raise InvalidName(f"tag {key!r}", value, "a tag's value is a str")
        if value:
            check_name(f"tag {key!r}", value)
    return dict(tags)


def check_key(key: object) -> str:
    """Return ``key`` if it can be an append's idempotency key: any string."""
    if type(key) is not str:
        raise InvalidName("key", key, f"a key is a str, not {type(key).__name__}")
    return key


def check_event_id(value: object, path: str) -> uuid.UUID:
    """Return an event id given as a UUID or its text; raise ``InvalidName`` where it is neither."""
    if isinstance(value, uuid.UUID):
        return value
    if isinstance(value, str):
        try:
            return uuid.UUID(value)
        except ValueError:
            pass
    raise InvalidName(path, value, "an event id is a uuid.UUID or its text")


def fresh_ids(n: int) -> list[uuid.UUID]:
    """Make ``n`` ids that nobody had before: UUIDv7, in order, so that they go to one place of their index."""
    now = time.time_ns()
    milliseconds, rest = divmod(now, 1_000_000)
    # RFC 9562, section 5.7: 48 bits of milliseconds, the version, 12 bits of what is below, the variant, 62 at random.
    base = milliseconds << 80 | 0x7 << 76 | (rest * 4096 // 1_000_000) << 64 | 0b10 << 62
    random = secrets.randbits(62)
    return [uuid.UUID(int=base | (random + index) % (1 << 62)) for index in range(n)]


_NAMESPACE = uuid.UUID("6f0e1d3c-5b0a-5c3e-9f0e-2d1c7a4b8e55")


def derived_ids(tenant: str, stream: str, key: str, n: int) -> list[uuid.UUID]:
    """Give the ids of an append's ``n`` events, derived from its key: UUIDv5 of (stream, key, index).

    The same call again has the same ids, whoever makes it. ``hashlib`` instead of ``uuid.uuid5`` because a key is any
    string, lone surrogates included, and ``uuid5`` takes only what UTF-8 can hold.
    """
    parts = [part.encode("utf-8", "surrogatepass") for part in (tenant, stream, key)]
    head = hashlib.sha1(_NAMESPACE.bytes, usedforsecurity=False)
    for part in parts:
        head.update(struct.pack(">I", len(part)) + part)
    ids = []
    for index in range(n):
        h = head.copy()
        h.update(struct.pack(">I", index))
        ids.append(uuid.UUID(bytes=h.digest()[:16], version=5))
    return ids
