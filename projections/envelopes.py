"""Two envelopes beside each other, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that differs: its values, None where there is none; of lists what only one of them has."""

    field: str
    one: Any
    other: Any
    removed: tuple[Any, ...] = ()
    added: tuple[Any, ...] = ()


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Difference]:
    """Compare two envelopes as JSON objects; fields that hold nothing are equal, whether they are there or not.

    Objects within them, such as ``budget``, are compared by their own fields: ``budget.max_tokens``.
    """
    found: list[Difference] = []
    for field in dict.fromkeys([*one, *other]):
        found += _compared(field, one.get(field), other.get(field))
    return found


def _compared(field: str, one: Any, other: Any) -> list[Difference]:
    if one == other or (_empty(one) and _empty(other)):
        return []
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        inner = [_compared(f"{field}.{name}", one.get(name), other.get(name)) for name in dict.fromkeys([*one, *other])]
        return [each for several in inner for each in several]
    if isinstance(one, list | None) and isinstance(other, list | None):
        before, after = one or [], other or []
        removed = tuple(each for each in before if each not in after)
        added = tuple(each for each in after if each not in before)
        return [Difference(field, one, other, removed, added)]
    return [Difference(field, one, other)]


def _empty(value: Any) -> bool:
    return value is None or value == [] or value == {}
