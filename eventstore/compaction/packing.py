"""Packing: a compactor that needs no model. What stays, and how short, follows from rules alone.

What the user said stays word for word; of the rest there is a line each: the beginning of what an assistant said, a
call's tool with the beginnings of its arguments and of its outcome. ``cut`` counts the characters left out of a line.
The lines are JSON, escaped as in a numbered block, so nothing in them passes for a line or a message of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from eventstore.compaction.counting import encoded_size
from eventstore.compaction.outcome import Compacted
from eventstore.errors import InvalidItem, describe
from eventstore.formats.chat import for_model
from eventstore.formats.numbered import Markers, block, line
from eventstore.log import codec
from eventstore.log.events import Json

MARKERS: Final = Markers("<EARLIER CONVERSATION>", "</EARLIER CONVERSATION>")
_LEAD_IN: Final = (
    "Earlier in this conversation, packed by rule: {all} items in {kept} lines; 'cut' counts characters left out."
)
_MIN_BYTES: Final = 1_024
_INPUTS: Final = ("arguments", "input", "action")
_OUTCOMES: Final = ("output", "outputs", "result", "results", "error")


@dataclass(slots=True)
class _Entry:
    """What stands for an item: ``full`` where it fits, else ``short``."""

    number: int
    full: dict[str, Json]
    short: dict[str, Json]
    spoken_by_user: bool = False


class Packing:
    """A compactor without a model: the same items give the same text, for ever.

    System and developer messages stay items of their own, before the packed one. That is an assistant message of at
    most ``max_bytes`` bytes of compact JSON. Where that is too little for all, the user's messages go first, the newest
    of each kind before older ones, and a message of the user that does not fit is cut like the rest. ``short`` is the
    number of characters that a cut text keeps.
    """

    method: Final = "packing"

    def __init__(self, *, max_bytes: int = 32_768, short: int = 200) -> None:
        if type(max_bytes) is not int or max_bytes < _MIN_BYTES:
            raise InvalidItem("max_bytes", f"{describe(max_bytes)} should be a number of bytes from {_MIN_BYTES:,} on")
        if type(short) is not int or short < 1:
            raise InvalidItem("short", f"{describe(short)} should be a number of characters from 1 on")
        self._max_bytes = max_bytes
        self._short = short

    def __call__(self, items: list[Json]) -> Compacted:
        """Pack ``items``.

        Raises:
            InvalidItem: an item is no JSON value.
        """
        instructions: dict[bytes, Json] = {}
        entries: list[_Entry] = []
        open_calls: dict[str, list[_Entry]] = {}
        for number, item in enumerate(items, 1):
            encoded = codec.encode(item, f"items[{number - 1}]")[1]
            if isinstance(item, dict) and item.get("role") in ("system", "developer"):
                instructions[encoded] = item  # the same one again stays once
            elif not self._answers(item, open_calls):
                entry = self._entry(number, for_model(item), open_calls)
                if entry:
                    entries.append(entry)
        packed = [self._message(entries, len(items))] if entries or not instructions else []
        return Compacted([*instructions.values(), *packed], self.method)

    def _entry(self, number: int, item: Json, open_calls: dict[str, list[_Entry]]) -> _Entry | None:
        fields = item if isinstance(item, dict) else {}
        kind, role = fields.get("type", "message" if "role" in fields else None), fields.get("role")
        if not isinstance(kind, str):
            made = self._shortened({}, item=item)
            return _Entry(number, made, made)
        if kind == "reasoning":
            return None
        if kind == "message":
            made = self._shortened({"role": role}, content=item.get("content"))
            return _Entry(number, item if role == "user" else made, made, role == "user")
        if not kind.endswith(("_call", "_output")):
            made = {"type": self._clip(kind)[0], "cut": len(_text(item))}
            return _Entry(number, made, made)
        made = {"tool": self._clip(item.get("name") or kind)[0]}
        if kind.endswith("_call"):
            made = self._shortened(made, arguments=_first(item, _INPUTS))
        made = self._shortened(made, outcome=_first(item, _OUTCOMES))
        entry = _Entry(number, made, made)
        if kind.endswith("_call") and isinstance(call_id := item.get("call_id"), str):
            open_calls.setdefault(call_id, []).append(entry)
        return entry

    def _answers(self, item: Json, open_calls: dict[str, list[_Entry]]) -> bool:
        """Note an output on the nearest earlier call that is still open; say whether there was one."""
        if not isinstance(item, dict) or not str(item.get("type")).endswith("_output"):
            return False
        call_id = item.get("call_id")
        waiting = open_calls.get(call_id) if isinstance(call_id, str) else None
        if not waiting:
            return False
        entry = waiting.pop()
        entry.full = entry.short = self._shortened(entry.full, outcome=_first(item, _OUTCOMES))
        return True

    def _shortened(self, made: dict[str, Json], **texts: Json) -> dict[str, Json]:
        """Add the beginnings of ``texts``, and to ``cut`` what they lack."""
        cut = made.get("cut", 0)
        made = {key: value for key, value in made.items() if key != "cut"}
        for name, value in texts.items():
            if value is not None:
                made[name], lacking = self._clip(value)
                cut += lacking
        return made | {"cut": cut} if cut else made

    def _clip(self, value: Json) -> tuple[str, int]:
        text = _text(value)
        return text[: self._short], max(0, len(text) - self._short)

    def _message(self, entries: list[_Entry], total: int) -> dict[str, Json]:
        room = self._max_bytes - encoded_size(_message([], total, total))
        chosen: dict[int, str] = {}
        for entry in sorted(entries, key=lambda entry: (not entry.spoken_by_user, -entry.number)):
            for value in (entry.full, entry.short):
                text = f"{entry.number}. {line(value)}"
                size = encoded_size(text)  # the quotes around it weigh as much as the \n that joins it
                if size <= room:
                    chosen[entry.number] = text
                    room -= size
                    break
        return _message([chosen[number] for number in sorted(chosen)], len(chosen), total)


def _message(lines: list[str], kept: int, total: int) -> dict[str, Json]:
    content = block(lines, MARKERS, _LEAD_IN.format(kept=kept, all=total))
    return {"type": "message", "role": "assistant", "content": content}


def _first(item: dict[str, Any], names: Iterable[str]) -> Json:
    return next((item[name] for name in names if item.get(name) is not None), None)


def _text(value: Json) -> str:
    """Give the text of a content, of its parts, or the JSON of anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        texts = [part.get("text", part.get("refusal")) for part in value]
        if texts and all(isinstance(text, str) for text in texts):
            return "\n".join(texts)
    return codec.encode(value, "item")[1].decode()
