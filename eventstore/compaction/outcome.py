"""What a compactor gives back, and the check that it can be appended."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass

from eventstore.errors import InvalidItem, describe
from eventstore.log import codec
from eventstore.log.events import Json

CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class Compacted:
    """The items that stand for a range, and how they were made; ``usage`` is what the model's provider counted."""

    items: list[Json]
    method: str | None = None
    model: str | None = None
    usage: dict[str, Json] | None = None


def checked(result: object, *, method: str = CUSTOM) -> Compacted:
    """Give what a compactor returned as ``Compacted``, with ``method`` where it names none.

    Raises:
        InvalidItem: not a list of at least one JSON value (or ``Compacted`` with one); the path is like
            ``compactor[2].content``.
    """
    given = result if isinstance(result, Compacted) else Compacted(result)  # type: ignore[arg-type]
    found: object = given.items
    if inspect.isawaitable(found):
        close = getattr(found, "close", None)
        if callable(close):
            close()
        raise InvalidItem("compactor", "an awaitable came back; an async compactor needs AsyncEventStore")
    if type(found) is not list:
        raise InvalidItem("compactor", f"{_came_back(found)}; a compactor returns a list of items, or Compacted(items)")
    if not found:
        raise InvalidItem("compactor", "an empty list came back; something has to stand for the range, or retract it")
    for index, item in enumerate(found):
        codec.encode(item, f"compactor[{index}]")
    for name in ("method", "model"):
        value = getattr(given, name)
        if value is not None and (not isinstance(value, str) or not value):
            raise InvalidItem(f"compactor.{name}", f"{describe(value)} should be a name, or None")
    if given.usage is not None:
        if type(given.usage) is not dict:
            raise InvalidItem("compactor.usage", f"{describe(given.usage)} should be a dict, or None")
        codec.encode(given.usage, "compactor.usage")
    return Compacted(found, given.method or method, given.model, given.usage)


def method_of(compactor: object) -> str:
    """Name a compactor for the record: its ``method``, else the name of the function or class."""
    method = getattr(compactor, "method", None)
    if isinstance(method, str) and method:
        return method
    name = getattr(compactor, "__name__", None) or type(compactor).__name__
    return CUSTOM if not isinstance(name, str) or name == "<lambda>" else name


def _came_back(found: object) -> str:
    if isinstance(found, Mapping):
        return f"one item ({describe(found)}) came back, outside a list"
    return f"{describe(found)} ({type(found).__name__}) came back"
