"""Which projections there are: those that ship with the store, and those that an application adds.

An installed package adds its own by the entry point group ``convstore.projections``; anything else is named as
``package.module:attribute``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from eventstore.errors import InvalidItem, ProjectionRefused, ProjectionUnknown
from projections.models import SHIPPED
from projections.projection import Projection, check

GROUP: Final = "convstore.projections"


def known(also: Iterable[str] = ()) -> list[Projection]:
    """Return the shipped projections, those of installed packages, and those named in ``also``.

    Raises:
        InvalidItem: a name that leads to none.
        ProjectionRefused: two of one name.
    """
    found = list(SHIPPED)
    found += [_one(f"entry point {entry.name!r}", entry.load()) for entry in entry_points(group=GROUP)]
    found += [_named(path) for path in also]
    names = [projection.name for projection in found]
    for name in names:
        if names.count(name) > 1:
            raise ProjectionRefused(name, "is there twice; name another")
    return found


def pick(projections: Iterable[Projection], name: str) -> Projection:
    """Return the projection of a name; raise ``ProjectionUnknown`` where there is none."""
    projections = list(projections)
    for projection in projections:
        if projection.name == name:
            return projection
    raise ProjectionUnknown(name, [p.name for p in projections], "this code has none of this name; --also names others")


def _named(path: str) -> Projection:
    module, colon, attribute = path.partition(":")
    if not (module and colon and attribute):
        raise InvalidItem("also", f"{path!r}; give package.module:attribute")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as python -m does; a command's own path is that of its folder
    try:
        value: Any = importlib.import_module(module)
        for name in attribute.split("."):
            value = getattr(value, name)
    except (ImportError, AttributeError) as e:
        raise InvalidItem("also", f"{path!r} leads to nothing: {e}") from e
    return _one(path, value)


def _one(path: str, value: Any) -> Projection:
    if isinstance(value, type) and issubclass(value, Projection):
        value = value()
    if not isinstance(value, Projection):
        raise InvalidItem(path, f"is {type(value).__name__}; give a subclass of Projection, or an instance of one")
    return check(value)
