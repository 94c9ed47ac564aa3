"""When to compact: pure predicates over what the model would be shown now.

A policy is anything callable with a ``Situation`` that gives a bool. Those made here combine with ``|`` and ``&``:
``items(400) | tokens(100_000) & age(timedelta(hours=1))``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias, cast

from eventstore.compaction.counting import Counter, Tokenizer, encoded_size, estimate, exact
from eventstore.errors import InvalidItem, describe
from eventstore.log.events import Json


@dataclass(frozen=True)
class Situation:
    """What a policy may look at.

    ``items`` is the transcript, ``oldest`` the ``recorded_at`` of the first of them that is no summary (None where
    there is none), ``now`` the time to compare it with; ``version`` is the stream's head, ``last_compaction`` the
    version of its last ``history.compacted``, 0 where there was none.
    """

    items: Sequence[Json]
    now: dt.datetime
    oldest: dt.datetime | None = None
    version: int = 0
    last_compaction: int = 0

    @cached_property
    def bytes(self) -> int:
        """Bytes of the items' compact JSON, counted when first asked for."""
        return sum(map(encoded_size, self.items))

    @property
    def age(self) -> float:
        """Seconds since ``oldest``; 0 where there is none, or where a clock went back."""
        return max(0.0, (self.now - self.oldest).total_seconds()) if self.oldest else 0.0

    def tokens(self, counter: Counter = estimate) -> int:
        """Tokens of the items by ``counter``."""
        return sum(map(counter, self.items))


Predicate: TypeAlias = Callable[[Situation], bool]


class Policy:
    """A predicate over a ``Situation`` with a name that can be read, and ``|`` and ``&``."""

    def __init__(self, name: str, holds: Predicate) -> None:
        self._name: Final = name
        self._holds: Final = holds

    def __call__(self, situation: Situation) -> bool:
        """Say whether to compact."""
        return self._holds(situation)

    def __or__(self, other: Predicate) -> Policy:
        return any_of(self, other)

    def __and__(self, other: Predicate) -> Policy:
        return all_of(self, other)

    def __repr__(self) -> str:
        return self._name


def items(count: int) -> Policy:
    """Hold from ``count`` items on."""
    _check_count("items", count)
    return Policy(f"items({count})", lambda situation: len(situation.items) >= count)


def tokens(count: int, counter: Counter | Tokenizer | None = None) -> Policy:
    """Hold from ``count`` tokens on: estimated, or counted by a function of one item, or by a tokenizer."""
    _check_count("tokens", count)
    each = estimate if counter is None else _counter(counter)
    return Policy(f"tokens({count})", lambda situation: situation.tokens(each) >= count)


def age(limit: dt.timedelta | float) -> Policy:
    """Hold once the oldest item is as old as ``limit``, a timedelta or seconds."""
    if isinstance(limit, dt.timedelta):
        seconds = limit.total_seconds()
    elif isinstance(limit, int | float) and not isinstance(limit, bool):
        seconds = float(limit)
    else:
        raise InvalidItem("age", f"{describe(limit)} should be a timedelta, or seconds")
    if not 0 < seconds < float("inf"):
        raise InvalidItem("age", f"{describe(limit)} should be above 0 and finite")
    return Policy(f"age({seconds:g})", lambda situation: situation.oldest is not None and situation.age >= seconds)


def any_of(*policies: Predicate) -> Policy:
    """Hold where one of the policies does; they are asked in order until one does."""
    _check_policies(policies)
    return Policy(_joined(" | ", policies), lambda situation: any(each(situation) for each in policies))


def all_of(*policies: Predicate) -> Policy:
    """Hold where each of the policies does; they are asked in order until one does not."""
    _check_policies(policies)
    return Policy(_joined(" & ", policies), lambda situation: all(each(situation) for each in policies))


def _counter(given: Counter | Tokenizer) -> Counter:
    # A tokenizer may be callable too, as those of transformers are.
    if hasattr(given, "encode") or not callable(given):
        return exact(cast("Tokenizer", given))
    return given


def _check_count(name: str, count: int) -> None:
    if type(count) is not int or count < 1:
        raise InvalidItem(name, f"{describe(count)} should be a number from 1 on")


def _check_policies(policies: Sequence[Predicate]) -> None:
    if not policies:
        raise InvalidItem("policies", "missing; give at least one")
    for policy in policies:
        if not callable(policy):
            raise InvalidItem("policies", f"{describe(policy)} should be a policy: callable with a Situation")


def _joined(sign: str, policies: Sequence[Predicate]) -> str:
    return f"({sign.join(map(repr, policies))})"
