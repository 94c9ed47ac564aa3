"""Files of conversations, read a line at a time: plain or gzip, from disk or standard input.

A line is JSON that the log can hold exactly: integers of any size, no NaN. A bad one is refused by file, line and
place.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import stat
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, NoReturn, cast

from eventstore.errors import ConvstoreError, InvalidItem
from eventstore.formats import import_lines
from eventstore.log.events import Json

MAX_LINE: Final = 256 * 1024 * 1024
_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"


class BadLine(ConvstoreError):
    """A line that can't be imported."""

    def __init__(self, place: Place, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.place = place
        self.reason = reason


class Place(NamedTuple):
    """Where a conversation stands."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Read:
    """A conversation that was read."""

    place: Place
    form: str
    conversation: import_lines.Conversation


@dataclass(slots=True)
class Files:
    """The files of one import, and how far they are read, in bytes as stored."""

    names: Sequence[str]
    format: str | None = None
    total: int | None = None
    done: int = 0
    _before: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        try:
            found = [Path(name).stat() for name in self.names if name != "-"]
        except OSError:  # told when its turn comes: what stands before it is imported
            return
        if len(found) == len(self.names) and all(stat.S_ISREG(each.st_mode) for each in found):
            self.total = sum(each.st_size for each in found)

    def read(self) -> Iterator[Read]:
        """Yield the conversations, one a line; blank lines are skipped.

        Raises:
            BadLine: with file, line and what would be right.
        """
        for name in self.names:
            with _opened(name) as (stored, content):
                for place, text in _lines("<stdin>" if name == "-" else name, content):
                    if self.total is not None:
                        self.done = self._before + stored.tell()
                    yield parse(place, text, self.format)
            self._before = self.done


@contextmanager
def _opened(name: str) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Give the stored bytes and, through them, what they mean: gzip is known by its first two bytes."""
    with ExitStack() as stack:
        raw = sys.stdin.buffer if name == "-" else stack.enter_context(Path(name).open("rb"))
        # A second buffer on a pipe would wait until it is full.
        stored = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(cast("io.RawIOBase", raw))
        packed = stored.peek(2)[:2] == _GZIP
        yield stored, cast("BinaryIO", gzip.GzipFile(fileobj=stored)) if packed else stored


def _lines(name: str, content: BinaryIO) -> Iterator[tuple[Place, bytes]]:
    number = 0
    while True:
        number += 1
        place = Place(name, number)
        try:
            text = content.readline(MAX_LINE + 2)
        except (EOFError, gzip.BadGzipFile, zlib.error) as e:
            raise BadLine(place, f"the gzip file is damaged or cut off: {e}") from e
        if not text:
            return
        if len(text) > MAX_LINE and len(text.rstrip(b"\r\n")) > MAX_LINE:
            raise BadLine(place, f"longer than 256 MiB ({MAX_LINE:,} bytes); split the conversation")
        if number == 1:
            text = text.removeprefix(_BOM)
        if text and not text.isspace():
            yield place, text


def parse(place: Place, text: bytes, format: str | None = None) -> Read:
    """Read one line; ``format`` is that of ``import_lines.parse``."""
    try:
        record = decode(text)
        conversation = import_lines.parse(record, format)
    except ConvstoreError as e:
        raise BadLine(place, str(e)) from e
    form = next(form for form in ("items", "messages", "steps", "events") if form in record)
    return Read(place, form, conversation)


class _NotFinite(ValueError):
    """A number that JSON does not have."""


def _refuse(text: str) -> NoReturn:
    raise _NotFinite(text)


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def decode(text: bytes) -> Json:
    """Decode JSON exactly; raises ``InvalidItem`` where that can't be."""
    try:
        decoded = text.decode()
    except UnicodeDecodeError as e:
        raise InvalidItem("line", f"byte {e.start + 1} is not UTF-8 ({e.reason})") from None
    try:
        return json.loads(decoded, parse_constant=_refuse, parse_float=_finite)
    except _NotFinite as e:
        path = _path_of_not_finite(json.loads(decoded))
        raise InvalidItem(path, f"{e} is no number that JSON can hold; use null or a string") from None
    except json.JSONDecodeError as e:
        raise InvalidItem("line", f"not JSON: {e.msg} at character {e.pos + 1}") from None
    except RecursionError:
        raise InvalidItem("line", "nested too deep; a value is nested at most 200 deep") from None
    except ValueError as e:  # an integer of more digits than Python converts
        raise InvalidItem("line", f"{e}; an integer has at most 4,300 digits") from None


def _path_of_not_finite(value: Json) -> str:
    try:
        return (_not_finite(value) or "line").removeprefix(".")
    except RecursionError:
        return "line"


def _not_finite(value: Json) -> str | None:
    """Find the path of the first number that is not finite."""
    if isinstance(value, float):
        return "" if not math.isfinite(value) else None
    inner: Iterator[tuple[str, Json]] = iter(())
    if isinstance(value, dict):
        inner = ((f".{key}" if key.isidentifier() else f"[{json.dumps(key)}]", each) for key, each in value.items())
    elif isinstance(value, list):
        inner = ((f"[{index}]", each) for index, each in enumerate(value))
    for step, each in inner:
        found = _not_finite(each)
        if found is not None:
            return step + found
    return None
