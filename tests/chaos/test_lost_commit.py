"""A connection lost in the middle of an append, or of COMMIT: the store makes it good, or says that it can't tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from clients import AsyncClient, Client, SyncClient, wait_until
from proxy import Moment, Proxy

from eventstore import NO_STREAM, AppendResult, Event, EventStore
from eventstore.errors import StoreUnavailable

MOMENTS: list[Moment] = ["before", "after"]
EVENTS = [Event(type="x.note", data={"n": n}, unique_key=f"once {n}") for n in range(3)]
NOTES = [event.data for event in EVENTS]
SHORT = 2.0
COMMIT = b"COMMIT"

WRITES: dict[str, tuple[Callable[[Client], AppendResult], list[Any]]] = {
    "one": (lambda c: c.append("s", [1]), [1]),
    "one with a key": (lambda c: c.append("s", [1], key="k"), [1]),
    "a batch": (lambda c: c.append("s", [1, 2, 3]), [1, 2, 3]),
    "a batch with a key": (lambda c: c.append("s", [1, 2, 3], key="k"), [1, 2, 3]),
    "events": (lambda c: c.append_events("s", EVENTS), NOTES),
    "events with a key": (lambda c: c.append_events("s", EVENTS, key="k"), NOTES),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("earlier", [0, 2], ids=["a new stream", "a known stream"])
def test_a_lost_connection_leaves_one_copy_and_does_not_show(
    client: Client, proxy: Proxy, store: EventStore, moment: Moment, write: str, earlier: int
) -> None:
    for n in range(earlier):
        client.append("s", [f"earlier {n}"])
    do, data = WRITES[write]
    proxy.cut(moment)
    result = do(client)
    assert proxy.cuts == 1
    assert client.retries() == 1
    stored = list(store.conversation("s").events())
    assert [event.data for event in stored] == [f"earlier {n}" for n in range(earlier)] + data
    ours = stored[earlier:]
    assert (result.first_version, result.last_version) == (ours[0].version, ours[-1].version)
    assert result.position == ours[-1].position
    assert result.event_ids == tuple(event.event_id for event in ours)
    assert store.verify().ok


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("key", [None, "k"])
def test_a_retry_does_not_conflict_with_what_it_wrote_itself(
    client: Client, proxy: Proxy, moment: Moment, key: str | None
) -> None:
    proxy.cut(moment)
    assert client.append("s", [1], expected=NO_STREAM, key=key).last_version == 1
    proxy.cut(moment)
    assert client.append("s", [2, 3], expected=1, key=None if key is None else "l").last_version == 3
    assert client.data("s") == [1, 2, 3]
    assert client.retries() == 2


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_was_not_asked_to_be_a_repeat_is_not_called_one(client: Client, proxy: Proxy, moment: Moment) -> None:
    proxy.cut(moment)
    assert not client.append("s", [1]).deduplicated


def test_a_read_that_is_cut_off_is_read_again(client: Client, proxy: Proxy) -> None:
    client.append("s", [1, 2, 3])
    proxy.cut("before", b"convstore.read_events")
    assert client.data("s") == [1, 2, 3]
    proxy.cut("after", b"convstore.read_events")
    assert client.data("s") == [1, 2, 3]
    assert proxy.cuts == 2


@pytest.mark.parametrize(("moment", "copies"), [("before", []), ("after", [1])])
def test_unknown_where_the_server_stays_away_after_it_was_sent(
    make_client: Callable[..., Client], proxy: Proxy, store: EventStore, moment: Moment, copies: list[int]
) -> None:
    client = make_client(proxy.url, timeout=SHORT)
    client.append("other", [0])
    proxy.cut(moment, then_down=True)
    with pytest.raises(StoreUnavailable) as caught:
        client.append("s", [1], key="k")
    assert caught.value.outcome == "unknown"
    assert [event.data for event in store.conversation("s").events()] == copies

    proxy.up()
    result = until_it_answers(lambda: client.append("s", [1], key="k"))
    assert result.deduplicated == bool(copies)
    assert client.data("s") == [1]
    assert store.verify().ok


def test_not_done_where_there_was_no_connection_to_send_it_on(
    make_client: Callable[..., Client], proxy: Proxy, store: EventStore
) -> None:
    client = make_client(proxy.url, timeout=SHORT)
    proxy.down()
    with pytest.raises(StoreUnavailable):
        client.append("s", [1], key="on a connection that is dead")
    with pytest.raises(StoreUnavailable) as caught:
        client.append("s", [2], key="k")
    assert caught.value.outcome == "not_done"
    assert store.conversation("s").head() == 0

    proxy.up()
    assert not until_it_answers(lambda: client.append("s", [2], key="k")).deduplicated
    assert client.data("s") == [2]


def test_unknown_where_nobody_answers(make_client: Callable[..., Client], proxy: Proxy, store: EventStore) -> None:
    client = make_client(proxy.url, timeout=SHORT)
    proxy.cut("never")
    with pytest.raises(StoreUnavailable) as caught:
        client.append("s", [1], key="k")
    assert caught.value.outcome == "unknown"
    assert client.append("s", [1], key="k").last_version == 1
    assert [event.data for event in store.conversation("s").events()] == [1]


@pytest.mark.parametrize(("moment", "written"), [("before", False), ("after", True)])
def test_a_transactions_lost_commit_is_unknown_and_its_block_can_be_run_again(
    client: Client, proxy: Proxy, store: EventStore, moment: Moment, written: bool
) -> None:
    block = (("a", [1], "first"), ("b", [2, 3], "second"))
    proxy.cut(moment, COMMIT)
    with pytest.raises(StoreUnavailable) as caught:
        client.in_transaction(*block)
    assert caught.value.outcome == "unknown"
    assert proxy.cuts == 1
    assert client.retries() == 0
    assert store.conversation("a").head() == (1 if written else 0)

    results = client.in_transaction(*block)
    assert [result.deduplicated for result in results] == [written, written]
    assert [event.data for event in store.conversation("a").events()] == [1]
    assert [event.data for event in store.conversation("b").events()] == [2, 3]
    assert store.verify().ok


def test_a_transaction_that_is_cut_off_in_its_middle_leaves_nothing(
    client: Client, proxy: Proxy, store: EventStore
) -> None:
    proxy.cut("before", b"second")
    with pytest.raises(StoreUnavailable):
        client.in_transaction(("a", ["first"], None), ("b", ["second"], None))
    assert store.conversation("a").head() == store.conversation("b").head() == 0
    assert client.append("a", [1]).last_version == 1


def test_connections_that_the_server_closed_while_idle_do_not_show(
    make_client: Callable[..., Client], url: str, db: psycopg.Connection
) -> None:
    client = make_client(url)
    fill_pool(client)
    for n in range(3):
        assert end_all_others(db) >= 1
        assert client.append("s", [n]).last_version == n + 1
    assert client.data("s") == [0, 1, 2]


def test_a_transaction_does_not_begin_on_a_connection_that_the_server_closed(
    make_client: Callable[..., Client], url: str, db: psycopg.Connection
) -> None:
    client = make_client(url)
    fill_pool(client)
    for n in range(3):
        assert end_all_others(db) >= 1
        assert client.in_transaction(("s", [n], None))[0].last_version == n + 1


def test_a_store_that_lost_its_server_looks_for_it_again_and_again(
    make_client: Callable[..., Client], proxy: Proxy
) -> None:
    client = make_client(proxy.url, timeout=SHORT)
    proxy.turn_away = True
    proxy.cut("before")
    with pytest.raises(StoreUnavailable):
        client.append("s", [1])
    if isinstance(client, AsyncClient):
        client.run(many_tries(proxy))
    else:
        wait_until(lambda: proxy.turned_away > 13, "the 14th try to connect", 20)
    proxy.turn_away = False
    assert client.append("s", [2]).last_version == 1


async def many_tries(proxy: Proxy) -> None:
    await asyncio.to_thread(wait_until, lambda: proxy.turned_away > 13, "the 14th try to connect", 20)


def fill_pool(client: Client) -> None:
    """Have the store open all the connections that it may."""
    if isinstance(client, SyncClient):
        with ExitStack() as stack:
            for _ in range(8):
                stack.enter_context(client.store.transaction())
        return
    assert isinstance(client, AsyncClient)
    blocks = [client.store.transaction() for _ in range(8)]
    for block in blocks:
        client.run(block.__aenter__())
    for block in blocks:
        client.run(block.__aexit__(None, None, None))


def end_all_others(db: psycopg.Connection) -> int:
    """End every other connection to the database, and return how many there were."""
    others = "datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    found = db.execute(f"SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}").fetchall()
    still = "SELECT FROM pg_stat_activity WHERE pid = ANY (%s)"
    wait_until(lambda: not db.execute(still, [[pid for pid, _ in found]]).fetchall(), "the connections end")
    return len(found)


def until_it_answers(call: Callable[[], AppendResult]) -> AppendResult:
    """Repeat a call while the store has not found its server again."""
    answers: list[AppendResult] = []

    def answered() -> bool:
        try:
            answers.append(call())
        except StoreUnavailable:
            return False
        return True

    wait_until(answered, "the store finds its server again")
    return answers[0]
