"""A connection lost in the middle of a fork or of its COMMIT, and a killed server: the same call gives one branch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from clients import AsyncClient, Client, SyncClient, wait_until
from proxy import Moment, Proxy

from eventstore import EventStore
from eventstore.errors import StoreUnavailable

FORK = b"convstore.fork_stream"
POINTS: list[dict[str, Any]] = [{}, {"key": "k"}, {"at": 1}, {"after_items": 2, "key": "k"}]


def fork(client: Client, parent: str, name: str, **named: Any) -> str:
    """Fork by either kind of store, and return the branch's name."""
    if isinstance(client, AsyncClient):
        return client.run(client.store.conversation(parent).fork(name, **named)).name
    assert isinstance(client, SyncClient)
    return client.store.conversation(parent).fork(name, **named).name


def fork_in_transaction(client: Client, name: str, **named: Any) -> None:
    if isinstance(client, AsyncClient):

        async def block() -> None:
            async with client.store.transaction() as scope:
                branch = await scope.conversation("p").fork(name, **named)
                await branch.append([4], key="in the block")

        client.run(block())
        return
    assert isinstance(client, SyncClient)
    with client.store.transaction() as scope:
        scope.conversation("p").fork(name, **named).append([4], key="in the block")


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("point", POINTS, ids=repr)
def test_a_lost_connection_leaves_one_branch_and_does_not_show(
    client: Client, proxy: Proxy, store: EventStore, moment: Moment, point: dict[str, Any]
) -> None:
    client.append("p", [1, 2, 3])
    proxy.cut(moment, FORK)
    assert fork(client, "p", "b", **point) == "b"
    assert (proxy.cuts, client.retries()) == (1, 1)
    at = point.get("at", point.get("after_items", 3))
    assert client.data("b") == [*[1, 2, 3][:at], {"parent": "p", "at": at}]
    client.append("b", ["more"])
    report = store.verify()
    assert (report.ok, report.checked, report.streams) == (True, 5, 2)


@pytest.mark.parametrize(("moment", "made"), [("before", False), ("after", True)])
@pytest.mark.parametrize("key", [None, "k"])
def test_unknown_where_the_server_stays_away_and_the_same_call_gives_one_branch(
    make_client: Callable[..., Client], proxy: Proxy, store: EventStore, moment: Moment, made: bool, key: str | None
) -> None:
    client = make_client(proxy.url, timeout=2.0)
    client.append("p", [1, 2, 3])
    point = {"key": key} if key else {"at": 3}
    proxy.cut(moment, FORK, then_down=True)
    with pytest.raises(StoreUnavailable) as caught:
        fork(client, "p", "b", **point)
    assert caught.value.outcome == "unknown"
    assert store.conversation("b").head() == (4 if made else 0)
    if made:
        store.conversation("p").append(["meanwhile"])  # the head moves, the fork's point does not

    proxy.up()
    answers: list[str] = []

    def answered() -> bool:
        try:
            answers.append(fork(client, "p", "b", **point))
        except StoreUnavailable:
            return False
        return True

    wait_until(answered, "the store finds its server again")
    assert answers == ["b"]
    assert client.data("b") == [1, 2, 3, {"parent": "p", "at": 3}]
    assert store.verify().ok


@pytest.mark.parametrize(("moment", "made"), [("before", False), ("after", True)])
def test_a_transactions_lost_commit_is_unknown_and_its_block_with_a_fork_can_be_run_again(
    client: Client, proxy: Proxy, store: EventStore, moment: Moment, made: bool
) -> None:
    client.append("p", [1, 2, 3])
    proxy.cut(moment, b"COMMIT")
    with pytest.raises(StoreUnavailable) as caught:
        fork_in_transaction(client, "b", key="k")
    assert caught.value.outcome == "unknown"
    assert store.conversation("b").head() == (5 if made else 0)
    store.conversation("p").append(["meanwhile"])
    fork_in_transaction(client, "b", key="k")
    shared = [1, 2, 3] if made else [1, 2, 3, "meanwhile"]
    assert client.data("b") == [*shared, {"parent": "p", "at": len(shared)}, 4]
    assert store.verify().ok


def test_a_backend_that_dies_between_a_fork_and_its_commit_leaves_nothing(
    url: str, store: EventStore, db: psycopg.Connection
) -> None:
    store.conversation("p").append([1])
    with psycopg.connect(url) as conn:
        store.using(conn).conversation("p").fork("b")
        db.execute("SELECT pg_terminate_backend(%s, 10000)", [conn.info.backend_pid])
        with pytest.raises(psycopg.OperationalError):
            conn.commit()
    assert store.conversation("b").head() == 0
    store.conversation("p").fork("b", at=0).append([2])
    assert store.verify().ok
