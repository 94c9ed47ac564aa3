"""Items of the SDK as plain JSON: what the SDK gives are dicts, what its users give may be its models too."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from pydantic import BaseModel

from eventstore.errors import InvalidItem, describe
from eventstore.log.events import Json


def plain_items(items: object) -> list[Json]:
    """Give a list of items as plain JSON.

    Raises:
        InvalidItem: not a list of items.
    """
    if not isinstance(items, list | tuple):
        raise InvalidItem("items", f"{describe(items)} should be a list of items")
    return [plain(item) for item in items]


def plain(value: Any) -> Json:
    """Give a value as plain JSON: models as they came from the server, mappings as dicts, tuples as lists.

    What is no JSON stays as it is, for the append to refuse it by its place.
    """
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True, warnings=False)
    if isinstance(value, Mapping):
        return {plain(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, str) and type(value) is not str:
        return str(value)
    return value
