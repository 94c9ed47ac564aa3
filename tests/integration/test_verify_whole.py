"""``verify`` as a whole: any change, any size, beside writers, by those who may."""

from __future__ import annotations

import random
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.conninfo import make_conninfo

from eventstore import Event, EventStore
from eventstore.errors import NotPermitted, StreamNotFound, TenantRequired, UniqueKeyConflict

STREAMS = ("a", "b", "c")
MANY, BATCH = 50_000, 10_000
MIB = 2**20

# How a value of each kind of column becomes another: by a number that is drawn, from what there is.
OTHER = {
    "bytea": "set_byte({c}, {n} % length({c}), get_byte({c}, {n} % length({c})) # (1 + {n} % 255))",
    "bigint": "{c} # (1::bigint << ({n} % 62))",
    "smallint": "({c}::integer # (1 << ({n} % 14)))::smallint",
    "integer": "{c} # (1 << ({n} % 30))",
    "text": "overlay({c} placing chr(33 + {n} % 90) from 1 + {n} % length({c}) for 1)",
    "json": "overlay({c}::text placing chr(32 + {n} % 90) from 1 + {n} % length({c}::text) for 1)::json",
    "uuid": "overlay({c}::text placing to_hex({n} % 16) from 1 + {n} % 8 for 1)::uuid",
    "timestamp with time zone": "{c} + (({n} % 2) * 2 - 1) * interval '1 us' * (1 << ({n} % 30))",
}
# And what a null becomes.
SOME = {"bytea": "sha256('')", "text": "'x'", "json": "'{}'"}


@pytest.fixture
def filled(store: EventStore) -> EventStore:
    """A store with some streams of appends of all sizes and all columns used."""
    number = count()
    for name in STREAMS:
        chat = store.conversation(name, context="shared" if name != "c" else None)
        for size in (1, 3, 1, 2):
            chat.append_events(
                [
                    Event(
                        type="x.note",
                        data={"n": n, "text": "some text"},
                        metadata={"trace": n} if n % 2 else None,
                        subject=f"subject {n}",
                        agent="agent" if n % 3 else None,
                        call_id=f"call {n}",
                        task_id="task",
                        run_id="run" if n % 2 else None,
                        unique_key=f"key {n}" if n % 4 == 0 else None,
                    )
                    for n in (next(number) for _ in range(size))
                ]
            )
    return store


@given(data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_change_of_any_column_of_any_event_is_found(
    filled: EventStore, db: psycopg.Connection, data: st.DataObject
) -> None:
    columns = db.execute(
        "SELECT column_name, data_type FROM information_schema.columns"
        " WHERE table_schema = 'convstore' AND table_name = 'events' ORDER BY ordinal_position"
    ).fetchall()
    column, kind = data.draw(st.sampled_from(columns), label="column")
    position = data.draw(st.integers(1, len(STREAMS) * 7), label="position")
    n = data.draw(st.integers(0, 2**20), label="number")
    before = stored(db, position)
    other = OTHER[kind].format(c=column, n=n)
    some = SOME.get(kind, "NULL")
    try:
        changed = db.execute(
            f"UPDATE events e SET {column} = CASE WHEN {column} IS NULL THEN {some} ELSE {other} END"
            f" WHERE position = {position} RETURNING e::text".encode()
        ).fetchone()
    except (psycopg.DataError, psycopg.IntegrityError):
        return  # the column can't hold that
    assert changed is not None
    try:
        assert filled.verify().ok == (changed[0] == before)
    finally:
        put_back(db, before, changed[0])


def stored(db: psycopg.Connection, position: int) -> str:
    found = db.execute("SELECT e::text FROM events e WHERE position = %s", [position]).fetchone()
    assert found is not None
    return str(found[0])


def put_back(db: psycopg.Connection, before: str, after: str) -> None:
    """Exchange a row for what it was."""
    with db.transaction():
        assert db.execute("DELETE FROM events e WHERE e::text = %s", [after]).rowcount == 1
        db.execute("INSERT INTO events SELECT (%s::events).*", [before])


def test_what_was_put_back_is_right_again(filled: EventStore, db: psycopg.Connection) -> None:
    found = db.execute("SELECT e::text FROM events e ORDER BY position").fetchall()
    for (text,) in found:
        put_back(db, text, text)
    assert filled.verify().ok


def test_a_long_stream_is_verified_in_constant_memory(store: EventStore) -> None:
    chat = store.conversation("long")
    items = list(range(BATCH))
    for _ in range(MANY // BATCH):
        chat.append(items)
    text = random.Random(1).randbytes(MIB // 2).hex()  # what compresses well is read in larger pages
    store.conversation("large").append_events([Event(type="x.large", data=text) for _ in range(40)])
    told: list[tuple[str, int]] = []
    tracemalloc.start()
    try:
        report = store.verify(progress=lambda name, checked: told.append((name, checked)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.ok
    assert report.checked == MANY + 40
    assert peak < 20 * MIB
    assert [checked for _, checked in told] == sorted(checked for _, checked in told)
    assert told[-1] == ("large", MANY + 40)
    assert len(told) > 50
    assert {name for name, _ in told} == {"long", "large"}


def test_a_stream_whose_first_append_was_refused_is_no_obstacle(store: EventStore) -> None:
    once = Event(type="x.note", data=1, unique_key="once")
    store.conversation("a", context="c").append_events([once])
    with pytest.raises(UniqueKeyConflict):
        store.conversation("b", context="c").append_events([once])
    assert store.verify().ok
    assert {info.name: info.head for info in store.conversations().streams}["a"] == 1
    assert store.conversation("b", context="c").append([2]).last_version == 1
    assert store.verify().ok


def test_writers_beside_it_do_not_disturb(store: EventStore, url: str) -> None:
    for n in range(4):
        store.conversation(f"s{n}").append([0])
    done = threading.Event()

    def write(number: int) -> int:
        appended = 0
        with EventStore.open(url) as other:
            while not done.is_set():
                chat = other.conversation(f"s{number}")
                chat.append([appended] * (1 + appended % 3))
                appended += 1
        return appended

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write, number) for number in range(4)]
        try:
            checked = [store.verify() for _ in range(20)]
        finally:
            done.set()
        assert all(writer.result() > 0 for writer in writers)
    assert [report.first_bad for report in checked] == [None] * 20
    assert checked[0].checked < checked[-1].checked
    assert store.verify().ok


@pytest.fixture
def login(url: str, db: psycopg.Connection) -> Iterator[Callable[..., str]]:
    """Make logins with some roles, and return their URLs."""
    made: list[sql.Identifier] = []
    number = count(1)

    def make(*roles: str, tenant: str | None = "default") -> str:
        name = f"login_{next(number)}_{db.info.dbname}"
        made.append(sql.Identifier(name))
        db.execute(sql.SQL("CREATE ROLE {} LOGIN").format(made[-1]))
        for role in roles:
            db.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), made[-1]))
        if tenant is not None:
            db.execute("SELECT bind_login(%s, %s)", [name, tenant])
        return make_conninfo(url, user=name)

    yield make
    for name in made:
        db.execute(sql.SQL("DROP ROLE {}").format(name))


def test_an_auditor_needs_no_other_role(store: EventStore, login: Callable[..., str]) -> None:
    store.conversation("s").append([1, 2])
    with EventStore.open(login("convstore_auditor")) as auditor:
        assert auditor.verify().ok
        assert auditor.verify("s").checked == 2
        with pytest.raises(StreamNotFound):
            auditor.verify("absent")
        with pytest.raises(NotPermitted, match="convstore_writer"):
            auditor.conversation("s").append([3])


@pytest.mark.parametrize("role", ["convstore_writer", "convstore_reader", "convstore_projector"])
def test_who_is_no_auditor_is_told_which_role_it_takes(store: EventStore, login: Callable[..., str], role: str) -> None:
    store.conversation("s").append([1])
    with EventStore.open(login(role)) as other, pytest.raises(NotPermitted, match="convstore_auditor") as caught:
        other.verify()
    assert caught.value.role == "convstore_auditor"


def test_an_auditor_sees_the_tenants_that_its_login_is_bound_to(store: EventStore, login: Callable[..., str]) -> None:
    store.conversation("s").append([1])
    store.for_tenant("other").conversation("o").append([1, 2])
    with EventStore.open(login("convstore_auditor", tenant="other")) as auditor:
        assert auditor.for_tenant("other").verify().checked == 2
        with pytest.raises(TenantRequired):
            auditor.verify()
