"""Whose events and whose blockers a login is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from eventstore import EventStore
from eventstore.errors import CursorInvalid, TenantRequired
from eventstore.log.rows import Blocker

SECRET = "the other tenant's secret"


@pytest.fixture
def hung(store: EventStore, url: str) -> Iterator[psycopg.Connection]:
    """A writer of the tenant ``rival`` that hangs in its transaction, with what it wrote as its last query."""
    for tenant in ("acme", "rival"):
        store.for_tenant(tenant).conversation("first").append([tenant])
    with psycopg.connect(url, application_name="worker-7") as conn:
        store.using(conn).for_tenant("rival").conversation("hung").append(["never"])
        conn.execute(f"SELECT '{SECRET.replace(chr(39), chr(39) * 2)}'")  # type: ignore[call-overload]
        yield conn
        if conn.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            conn.rollback()


def blocker(store: EventStore, *, all_tenants: bool = False) -> Blocker | None:
    cursor = store.feed(all_tenants=all_tenants).cursor
    page = store.feed(cursor, all_tenants=all_tenants)
    assert page.events == []
    assert page.cursor == cursor
    return page.blocked_by


def test_a_login_of_one_tenant_reads_its_feed_and_no_other(
    make_login: Callable[..., str], store: EventStore, filled: EventStore
) -> None:
    url = make_login("reader", "acme")
    with EventStore.open(url, tenant="acme") as mine:
        assert {e.tenant for e in mine.feed().events} == {"acme"}
        assert [e.data for e in mine.feed().events] == ["acme secret", 2]
        for call in (
            lambda: mine.feed(all_tenants=True),
            lambda: next(mine.subscribe(all_tenants=True)),
            lambda: mine.for_tenant("rival").feed(),
            lambda: mine.for_tenant("nobody").feed(),
        ):
            with pytest.raises(TenantRequired, match=str(urlsplit(url).username)):
                call()
        end = store.for_tenant("rival").feed().cursor
        assert mine.feed(end).events == []
    everybody = store.feed(all_tenants=True).events
    assert {e.tenant for e in everybody} == {"acme", "rival"}


def test_a_login_bound_to_all_tenants_reads_every_feed(make_login: Callable[..., str], filled: EventStore) -> None:
    with EventStore.open(make_login("reader", None), tenant="nobody") as store:
        assert store.feed().events == []
        assert store.feed().cursor is None
        assert len(store.for_tenant("rival").feed().events) == 2
        assert len(store.feed(all_tenants=True).events) == 4


def test_all_tenants_does_not_follow_from_being_bound_to_each(
    make_login: Callable[..., str], filled: EventStore
) -> None:
    with EventStore.open(make_login("reader", "acme", "rival"), tenant="acme") as store:
        assert len(store.for_tenant("rival").feed().events) == 2
        with pytest.raises(TenantRequired):
            store.feed(all_tenants=True)


def test_a_hung_writer_is_named_with_pid_age_and_query(
    make_login: Callable[..., str], store: EventStore, hung: psycopg.Connection
) -> None:
    store.for_tenant("acme").conversation("first").append(["waits"])
    with EventStore.open(make_login("reader", None), tenant="acme") as reading:
        for found in (blocker(reading), blocker(reading, all_tenants=True), blocker(store, all_tenants=True)):
            assert found is not None
            assert found.pid == hung.info.backend_pid
            assert found.age_s is not None
            assert found.age_s >= 0
            assert found.who == "postgres (worker-7)"
            assert found.state == "idle in transaction"
            assert found.query is not None
            assert SECRET.split("'")[0] in found.query
        hung.rollback()
        assert [e.data for e in reading.feed().events] == ["acme", "waits"]
        assert blocker(reading) is None


def test_a_login_of_one_tenant_is_told_the_pid_and_no_text_of_others(
    make_login: Callable[..., str], store: EventStore, hung: psycopg.Connection
) -> None:
    store.for_tenant("acme").conversation("first").append(["waits"])
    with EventStore.open(make_login("reader", "acme"), tenant="acme") as mine:
        found = blocker(mine)
        assert found is not None
        assert (found.pid, found.who, found.query) == (hung.info.backend_pid, None, None)
        assert found.state == "idle in transaction"
        assert found.age_s is not None


def test_a_prepared_writer_is_named_by_its_gid(
    make_login: Callable[..., str], store: EventStore, db: psycopg.Connection, hung: psycopg.Connection
) -> None:
    gid = f"order-{hung.info.backend_pid}"
    hung.execute(f"PREPARE TRANSACTION '{gid}'")  # type: ignore[call-overload]
    try:
        found = blocker(store, all_tenants=True)
        assert found is not None
        assert (found.pid, found.state, found.query) == (None, "prepared", None)
        assert found.who == f"prepared transaction {gid}"
        assert found.age_s is not None
        assert found.age_s >= 0
        with EventStore.open(make_login("reader", "acme"), tenant="acme") as mine:
            told = blocker(mine)
            assert told is not None
            assert (told.pid, told.who, told.state) == (None, None, "prepared")
    finally:
        db.execute(f"ROLLBACK PREPARED '{gid}'")  # type: ignore[call-overload]
    assert blocker(store, all_tenants=True) is None


def test_a_page_with_events_names_no_blocker(store: EventStore, hung: psycopg.Connection) -> None:
    page = store.feed(all_tenants=True)
    assert [e.data for e in page.events] == ["acme", "rival"]
    assert page.blocked_by is None


def test_the_lowest_stamp_is_named_first_and_one_held_by_a_session_too(
    store: EventStore, url: str, hung: psycopg.Connection
) -> None:
    with psycopg.connect(url, autocommit=True) as strange:
        strange.execute("SELECT pg_advisory_lock_shared(4996180836614144000)")  # stamp 0, held until the session ends
        found = store.feed(all_tenants=True).blocked_by
        assert found is not None
        assert found.pid == strange.info.backend_pid
    assert [e.data for e in store.feed(all_tenants=True).events] == ["acme", "rival"]


def test_cursors_of_one_tenant_serve_in_the_feed_of_all(store: EventStore) -> None:
    for number in range(3):
        for tenant in ("acme", "rival"):
            store.for_tenant(tenant).conversation("s").append([number])
    cursor = store.for_tenant("acme").feed(limit=2).cursor
    assert [(e.tenant, e.data) for e in store.feed(cursor, all_tenants=True).events] == [
        ("rival", 1),
        ("acme", 2),
        ("rival", 2),
    ]
    with pytest.raises(CursorInvalid):
        store.feed("acme")
