"""Connections to step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from stepping import Actor

from eventstore import EventStore


@pytest.fixture
def make_actor(store: EventStore, url: str) -> Iterator[Callable[..., Actor]]:
    made: list[Actor] = []

    def make(**kwargs: Any) -> Actor:
        made.append(Actor(store, url, **kwargs))
        return made[-1]

    yield make
    for actor in made:
        actor.close()


@pytest.fixture
def a(make_actor: Callable[..., Actor]) -> Actor:
    return make_actor()


@pytest.fixture
def b(make_actor: Callable[..., Actor]) -> Actor:
    return make_actor()
