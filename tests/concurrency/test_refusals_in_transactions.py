"""What a failed or refused statement leaves of the transaction around it."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from eventstore import Event, EventStore
from eventstore.errors import StoreUnavailable, TransactionAborted, UniqueKeyConflict


def claim(key: str) -> Event:
    return Event(type="x.claim", data=1, unique_key=key)


def waits(db: psycopg.Connection, pid: int) -> bool:
    row = db.execute("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone()
    return row is not None and bool(row[0])


@pytest.mark.parametrize("stream", ["same", "other"])
def test_the_loser_of_a_unique_key_race_gets_an_answer_and_keeps_its_transaction(
    store: EventStore, db: psycopg.Connection, url: str, stream: str
) -> None:
    for name in ("same", "other"):
        store.conversation(name, context="c").append([0])
    drawn = "SELECT pg_sequence_last_value('position')"
    with psycopg.connect(url) as a, psycopg.connect(url) as b, ThreadPoolExecutor(1) as thread:
        b.execute("CREATE TABLE public.mine (n int)")
        b.execute("INSERT INTO public.mine VALUES (1)")
        store.using(a).conversation("same", context="c").append_events([claim("k")])
        before = db.execute(drawn).fetchone()
        losing = thread.submit(store.using(b).conversation(stream, context="c").append_events, [claim("k")])
        while not waits(db, b.info.backend_pid):
            assert not losing.done()
        held = db.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = %s", [b.info.backend_pid]
        ).fetchone()
        assert held == (0,)
        a.commit()
        with pytest.raises(UniqueKeyConflict, match="'k'"):
            losing.result(20)
        assert db.execute(drawn).fetchone() == before
        assert b.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        store.using(b).conversation("own").append([1])
        b.commit()
        assert b.execute("SELECT n FROM public.mine").fetchall() == [(1,)]
    assert store.conversation("own").head() == 1
    assert store.verify().ok


def test_a_block_that_caught_an_error_of_the_server_does_not_end_as_if_it_had_committed(store: EventStore) -> None:
    with pytest.raises(TransactionAborted), store.transaction() as tx:
        tx.conversation("a").append([1])
        with pytest.raises(psycopg.Error):
            tx._route.caller.call("SELECT 1/0", [], tenant=None, action="fail", role="none")
    assert store.conversation("a").head() == 0


def test_a_nested_block_that_caught_one_can_be_left_behind(store: EventStore) -> None:
    with store.transaction() as tx:
        tx.conversation("a").append([1])
        with pytest.raises(TransactionAborted), tx.transaction() as inner:
            inner.conversation("a").append([2])
            with pytest.raises(psycopg.Error):
                inner._route.caller.call("SELECT 1/0", [], tenant=None, action="fail", role="none")
    assert [e.data for e in store.conversation("a").events()] == [1]


def test_a_block_whose_connection_is_gone_does_not_end_well(store: EventStore, admin: psycopg.Connection) -> None:
    with pytest.raises(StoreUnavailable) as caught, store.transaction() as tx:
        tx.conversation("a").append([1])
        admin.execute("SELECT pg_terminate_backend(%s, 5000)", [tx._route.caller._conn.info.backend_pid])
        with pytest.raises(psycopg.OperationalError):
            tx.conversation("a").append([2])
    assert caught.value.outcome == "not_done"
    assert store.conversation("a").head() == 0


def test_a_forked_child_is_refused_and_harms_nothing(store: EventStore) -> None:
    store.conversation("a").append([1])
    child = os.fork()
    if child == 0:
        try:
            store.conversation("a").append([2])
        except StoreUnavailable:
            store.close()
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert store.conversation("a").append([3]).last_version == 2


@pytest.mark.parametrize("setting", ["standard_conforming_strings=off", "bytea_output=escape", "TimeZone=Asia/Tokyo"])
def test_no_setting_of_a_session_changes_the_chain(
    make_url: Callable[[str], str], store: EventStore, setting: str
) -> None:
    with EventStore.open(make_url(setting)) as other:
        other.conversation("s").append([1])
        other.conversation("s").append([2, 3], metadata={"a": "b"})
    assert store.verify().ok


@pytest.fixture
def make_url(url: str) -> Callable[[str], str]:
    return lambda setting: psycopg.conninfo.make_conninfo(url, options=f"-c {setting}")


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_any_never_conflicts_whatever_the_logins_isolation_level(
    make_url: Callable[[str], str], store: EventStore, level: str
) -> None:
    setting = "default_transaction_isolation=" + level.replace(" ", "\\ ")
    with EventStore.open(make_url(setting)) as other, ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda n: other.conversation("s").append([n]), range(120)))
    assert store.conversation("s").head() == 120
    assert store.verify().ok


def test_ids_without_the_names_that_they_stand_for_are_refused_at_once(
    store: EventStore, db: psycopg.Connection
) -> None:
    store.conversation("a").append([1])
    db.execute("SET statement_timeout = '10s'")
    row = db.execute(
        "SELECT r.outcome FROM streams s, append_event('default', 'a', NULL, NULL, s.context_id, s.stream_id, NULL,"
        " NULL, false, gen_random_uuid(), 1::smallint, 1::smallint, 'x.a', NULL, NULL, NULL, NULL, NULL,"
        " NULL, NULL, '1') r"
    ).fetchone()
    assert row == ("unknown_stream",)


@pytest.mark.parametrize("metadata", ["null", "[1]", '"x"'])
def test_metadata_that_is_no_object_is_refused_by_the_table(
    store: EventStore, db: psycopg.Connection, metadata: str
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute(
            "SELECT append_event('default', 'a', NULL, NULL, NULL, NULL, NULL, NULL, false, gen_random_uuid(),"
            " 1::smallint, 1::smallint, 'x.a', NULL, NULL, NULL, NULL, NULL, NULL, %s, '1')",
            [metadata],
        )
    assert store.verify().ok
