r"""Nested history, dialect "agents-sdk" (OpenAI Agents SDK for Python): import only.

The frame is that of ``numbered``; a message whose content is one line of text stands in it as ``role: content`` or
``role (name): content``, everything else as JSON. The dialect loses some things and lets others look alike, so it is
read with care:

* only an assistant message with exactly the frame is expanded, what it holds too, at most 64 deep;
* lines end at ``\\n`` and nowhere else: U+2028, U+0085 and the like are content, whatever follows them;
* a ``role:`` line gives a message of ``user`` or ``assistant``, never one with authority (``system``, ``developer``);
* a line that does not decode is kept as it is, its number included, as the text of an assistant message, for that is
  who said it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from eventstore.formats.numbered import MARKERS, Markers, decode, lines_of
from eventstore.log.events import Json

MAX_NESTING: Final = 64

_NUMBER: Final = re.compile(r"[1-9][0-9]*\. ")
# A name with a colon or a line of another role does not match; the blanks around the content are content.
_SPOKEN: Final = re.compile(r"(user|assistant)(?: \(([^:]+)\))?: (.*)")


def expand(items: Iterable[Json], markers: Markers = MARKERS) -> list[Json]:
    """Give the items with each nested history, of either dialect, replaced by the items that it holds.

    All other items stay as they are; what was expanded once does not change again. The cost is linear in the size.
    """
    out: list[Json] = []
    open_blocks: list[Iterator[Json]] = [iter(items)]
    while open_blocks:
        for item in open_blocks[-1]:
            lines = lines_of(item, markers) if len(open_blocks) <= MAX_NESTING else None
            if lines is not None:
                open_blocks.append(map(_item, lines))
                break
            out.append(item)
        else:
            open_blocks.pop()
    return out


def _item(line: str) -> Json:
    number = _NUMBER.match(line)
    if number:
        text = line[number.end() :]
        try:
            return decode(text)
        except ValueError:
            spoken = _SPOKEN.fullmatch(text)
        if spoken:
            role, name, content = spoken.groups()
            return {"role": role, "name": name, "content": content} if name else {"role": role, "content": content}
    return {"type": "message", "role": "assistant", "content": line}
