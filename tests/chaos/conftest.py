"""Stores behind a proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from clients import KINDS, Client
from proxy import Proxy


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    """Both kinds of store, one after the other."""
    return str(request.param)


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    """A proxy before the test's database."""
    made = Proxy(url)
    yield made
    made.down()


@pytest.fixture
def make_client(kind: str) -> Iterator[Callable[..., Client]]:
    """Open stores that close with the test."""
    made: list[Client] = []

    def make(url: str, *, timeout: float = 20.0) -> Client:
        made.append(KINDS[kind](url, timeout=timeout))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(make_client: Callable[..., Client], proxy: Proxy) -> Client:
    """A store whose connections go through the proxy."""
    return make_client(proxy.url)
