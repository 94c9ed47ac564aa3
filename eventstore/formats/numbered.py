r"""Nested history, dialect "numbered": a conversation as one numbered block in an assistant message.

A lead-in, the start marker, a line ``N. <compact JSON>`` an item, the end marker. Lines are joined and split at ``\n``
only. In the JSON everything is escaped that a reader could take for a marker or for the end of a line, so no content
closes the block or begins a line of its own. What was rendered parses back equal, types included.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from eventstore.errors import InvalidItem
from eventstore.errors import describe as show
from eventstore.log import codec
from eventstore.log.events import Json

LEAD_IN: Final = "For context, here is the conversation so far between the user and the previous agent:"
EMPTY: Final = "(no previous turns recorded)"

# U+0085 too: readers that split at every line break of Unicode take it for one; JSON escapes the others itself.
_ESCAPED: Final = "<>&\x85\u2028\u2029"
# What JSON without blanks, and the number before it, is written with: escaping these is not possible everywhere.
_SYNTAX: Final = frozenset('{}[]:,"\\/ .+-0123456789truefalsenullbfnrtuabcdefE')
_KEYS: Final = frozenset({"type", "role", "content"})


class Markers(NamedTuple):
    """The lines that begin and end the block."""

    start: str
    end: str


MARKERS: Final = Markers("<CONVERSATION HISTORY>", "</CONVERSATION HISTORY>")


def check_markers(markers: Sequence[str] | None, lead_in: str = LEAD_IN) -> Markers:
    """Give the pair to render with, the default one for None.

    Raises:
        InvalidItem: no pair of lines, both the same, or one that could occur in what stands between them.
    """
    if markers is None:
        return MARKERS
    if not isinstance(markers, list | tuple) or len(markers) != 2:
        raise InvalidItem("markers", f"{show(markers)} should be a pair of texts, as {tuple(MARKERS)}")
    for name, marker in zip(Markers._fields, markers, strict=True):
        path = f"markers.{name}"
        if not isinstance(marker, str):
            raise InvalidItem(path, f"{show(marker)} should be text")
        if not marker.strip():
            raise InvalidItem(path, f"{show(marker)} should not be blank")
        if marker.splitlines() != [marker]:
            raise InvalidItem(path, f"{show(marker)} should be one line")
        if marker in lead_in or marker in EMPTY or not _shield(marker):
            raise InvalidItem(path, f"{show(marker)} could occur inside the block; give it a sign such as '<' or '#'")
    if markers[0] == markers[1]:
        raise InvalidItem("markers.end", f"{show(markers[1])} should differ from the start marker")
    return Markers(*markers)


def render(items: Sequence[Json], markers: Sequence[str] | None = None) -> dict[str, Json]:
    """Give the one assistant message that holds ``items``.

    Raises:
        InvalidItem: an item that is no JSON value, or markers that ``check_markers`` refuses.
    """
    return {"type": "message", "role": "assistant", "content": render_text(items, markers)}


def render_text(items: Sequence[Json], markers: Sequence[str] | None = None) -> str:
    """Give the text of ``render``."""
    return block([f"{n}. {line(item, markers, f'items[{n - 1}]')}" for n, item in enumerate(items, 1)], markers)


def block(lines: Sequence[str], markers: Sequence[str] | None = None, lead_in: str = LEAD_IN) -> str:
    """Join finished lines to a block; ``line`` makes what stands in them."""
    start, end = check_markers(markers, lead_in)
    return "\n".join([lead_in, start, *(lines or [EMPTY]), end])


def line(value: Json, markers: Sequence[str] | None = None, path: str = "item") -> str:
    """Give a value as compact JSON in which neither marker nor a line break can occur."""
    text = codec.encode(value, path)[1].decode()
    for sign in _ESCAPED + "".join(map(_shield, markers or ())):
        if sign in text:
            text = text.replace(sign, _escape(sign))
    return text


def parse(message: Json, markers: Sequence[str] | None = None) -> list[Json]:
    """Give the items of a message that ``render`` made with the same markers.

    Raises:
        InvalidItem: ``render`` did not make it; the reason says where.
    """
    lines = lines_of(message, check_markers(markers))
    if lines is None:
        raise InvalidItem("message", f"{show(message)} is no numbered block between these markers")
    items = []
    for number, text in enumerate(lines, 1):
        prefix = f"{number}. "
        if not text.startswith(prefix):
            raise InvalidItem(f"line {number}", f"{show(text)} should begin with {prefix!r}")
        try:
            items.append(decode(text.removeprefix(prefix)))
        except ValueError as e:
            raise InvalidItem(f"line {number}", f"{show(text)}: {e}") from None
    return items


def lines_of(message: Json, markers: Markers = MARKERS) -> list[str] | None:
    """Give the lines between the markers, none where the history is empty; None where it is not exactly the frame.

    The frame is an assistant message with no keys but type, role and content, whose content is the block as one text.
    """
    if not isinstance(message, dict) or message.get("role") != "assistant" or not message.keys() <= _KEYS:
        return None
    content: Any = message.get("content")
    head, tail = f"{LEAD_IN}\n{markers.start}\n", f"\n{markers.end}"
    if message.get("type", "message") != "message" or not isinstance(content, str):
        return None
    if not (content.startswith(head) and content.endswith(tail) and len(content) >= len(head) + len(tail)):
        return None
    body = content[len(head) : -len(tail)]
    return [] if body == EMPTY else body.split("\n")


def decode(text: str) -> Json:
    """Decode JSON exactly, integers of any size included.

    Raises:
        ValueError: not JSON, or not a value that the log can hold.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not codec.holds(value):
        raise ValueError(f"nested deeper than {codec.MAX_DEPTH}, or a number that is not finite")
    return value


def _escape(sign: str) -> str:
    units = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _shield(marker: str) -> str:
    """Give the sign of a marker that is escaped in all content, so that it can't occur there; empty if none can be."""
    able = [sign for sign in marker if sign not in _SYNTAX]
    able.sort(key=lambda sign: (sign not in _ESCAPED, sign.isalnum()))
    return able[0] if able else ""
