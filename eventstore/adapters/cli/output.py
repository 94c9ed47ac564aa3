"""What reaches the terminal, a pipe or a script.

Standard output carries the answer, standard error everything else. Data is shown as text: nothing in it is markup, and
what a terminal would obey (escape sequences, control characters, changes of direction) is written out, also in pipes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from eventstore.log.events import Json

# C0 and C1 but for newline and tab, line and paragraph separators, marks that turn the direction, lone surrogates.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_BREAKS = re.compile("[\t\n]")


def visible(text: str) -> str:
    r"""Write out what a terminal would obey, as ``\x1b`` or ``\u202e``; newlines and tabs stay."""
    return _OBEYED.sub(lambda found: _escaped(found[0]), text)


def line(text: str) -> str:
    r"""Write out what would obey or break a line: a name can't pretend to be two."""
    return _BREAKS.sub(lambda found: "\\n" if found[0] == "\n" else "\\t", visible(text))


def _escaped(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def compact(value: Json) -> str:
    """Write a value as JSON for people: not escaped where it can be shown."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def dump(value: Json) -> str:
    """Write a value as JSON for machines: ASCII, and exact for what the log holds, such as 2**80."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def on_terminal() -> bool:
    """Tell whether standard output is a terminal."""
    return sys.stdout.isatty()


def console(*, error: bool = False) -> Console:
    """Give a console that takes text as it is. Rich itself respects NO_COLOR."""
    return Console(stderr=error, highlight=False, markup=False, emoji=False)


def say(*parts: str | tuple[str, str]) -> None:
    """Print a line of text and (text, style) parts: styled on a terminal, plain elsewhere, never wrapped."""
    if on_terminal():
        console().print(Text.assemble(*parts), soft_wrap=True)
    else:
        sys.stdout.write("".join(part if isinstance(part, str) else part[0] for part in parts) + "\n")


def say_json(value: Json) -> None:
    """Print one line of JSON."""
    sys.stdout.write(dump(value) + "\n")


def note(text: str) -> None:
    """Tell on standard error what is not the answer."""
    sys.stderr.write(visible(text) + "\n")


def fold(text: str, *, width: int, lines: int) -> list[str]:
    """Break text into at most ``lines`` lines of ``width`` cells; a last line more says what was left out."""
    folded: list[str] = []
    at = 0
    while len(folded) < lines:
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        row = _row(text[at : min(end, at + 2 * width + 1)], width)
        folded.append(row)
        at += len(row)
        if at < end and text[at] == " ":  # the break stands for it
            at += 1
        if at == end:
            at += 1
        if at >= len(text):
            return folded
    return [*folded, f"… {len(text) - at:,} more characters; --full shows all"]


def _row(text: str, width: int) -> str:
    """Give what fits, up to a space unless the word behind it would not fit into a row of its own."""
    row = chop_cells(text, width)[0] if text else ""
    if len(row) == len(text) or text[len(row)] == " ":
        return row
    space = row.rfind(" ")
    word = text[space + 1 :].split(" ", 1)[0]
    return row[:space] if row[: max(space, 0)].strip() and cell_len(word) <= width else row


def utc(time: datetime) -> str:
    """Write a time to the second, in UTC."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def events(count: int) -> str:
    """Count events in words."""
    return f"{count:,} event" if count == 1 else f"{count:,} events"


def items(count: int) -> str:
    """Count items in words."""
    return f"{count:,} item" if count == 1 else f"{count:,} items"


def streams(count: int) -> str:
    """Count streams in words."""
    return f"{count:,} stream" if count == 1 else f"{count:,} streams"


class Bar:
    """Progress on standard error, where that is a terminal."""

    def __init__(self, progress: Progress, title: str, total: float | None) -> None:
        self._progress = progress
        self._task = progress.add_task(title, total=total, detail="")

    def at(self, done: float | None, detail: str) -> None:
        """Show how far it is, and a few words on where."""
        self._progress.update(self._task, completed=done, detail=line(detail))


@contextmanager
def bar(title: str, total: float | None = None) -> Iterator[Bar]:
    """Give a progress bar; with no ``total`` it only shows that something goes on."""
    shape: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description}", markup=False)]
    if total is not None:
        shape += [BarColumn(), TimeRemainingColumn()]
    shape.append(TextColumn("{task.fields[detail]}", markup=False))
    to = console(error=True)
    with Progress(*shape, console=to, transient=True, disable=not to.is_terminal) as progress:
        yield Bar(progress, title, total)
