"""The event catalogue: what each type of event carries, and how old data becomes current.

Pure, no I/O. ``check`` before an append (the log then stores the data as it was given), ``upcast``
after a read, ``load`` where a typed model is wanted. The models are in one module a kind.
"""

from __future__ import annotations

from typing import Final

from eventstore.log.catalogue import effects, facts, handoffs, items, streams, tasks  # noqa: F401  (they register)
from eventstore.log.catalogue.envelope import Envelope
from eventstore.log.catalogue.registry import CATALOGUE, Catalogue

CATALOGUE.freeze()

check = CATALOGUE.check
upcast = CATALOGUE.upcast
load = CATALOGUE.load
knows = CATALOGUE.knows
types = CATALOGUE.types
current_version = CATALOGUE.current_version

CONTROL: Final = frozenset({"history.compacted", "items.retracted", "history.cleared"})
"""The types that change a transcript."""

__all__ = [
    "CATALOGUE",
    "CONTROL",
    "Catalogue",
    "Envelope",
    "check",
    "current_version",
    "knows",
    "load",
    "types",
    "upcast",
]
