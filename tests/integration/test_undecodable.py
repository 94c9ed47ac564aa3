"""Events that nobody can decode, as a hostile login may append by calling the function itself: no reader is held up."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from eventstore import EventStore, RecordedEvent, UndecodableEvent, errors

GOOD = ["before", "after"]
POISON = {
    "beyond a float, for orjson": ("item.appended", 1, 1, "1e999", None),
    "beyond a float, for json": ("item.appended", 1, 2, '{"a": [-1e999]}', None),
    "refused by orjson": ("x.note", 1, 1, r'"\ud800"', None),
    "more digits than Python converts": ("item.appended", 1, 2, "1" * 5_000, None),
    "nested too deep": ("item.appended", 1, 2, "[" * 2_000 + "]" * 2_000, None),
    "a newer version of a type": ("item.appended", 2, 1, '{"text": "hello"}', None),
    "a newer version of an own type": ("x.note", 7, 1, "1", None),
    "metadata beyond a float": ("item.appended", 1, 1, "1", '{"a": 1e999}'),
}


def write(
    conn: psycopg.Connection, tenant: str, kind: str, version: int, form: int, data: str, beside: str | None
) -> None:
    """Append to the stream ``s`` past the client, as any login with the right to append can."""
    row = conn.execute(
        "SELECT (convstore.append_event(%s, 's', NULL, NULL, NULL, NULL, NULL, NULL, false, %s, %s::smallint,"
        " %s::smallint, %s, NULL, 'mallory', NULL, NULL, NULL, NULL, %s::json, %s::json)).outcome",
        [tenant, uuid.uuid4(), version, form, kind, beside, data],
    ).fetchone()
    assert row == ("appended",)


@pytest.fixture(params=POISON)
def poisoned(request: pytest.FixtureRequest, any_store: Any, contract_db: psycopg.Connection) -> Any:
    """A store with a poison event in the middle of a stream."""
    chat = any_store.conversation("s")
    chat.append([GOOD[0]], metadata={"n": 1})
    write(contract_db, any_store.tenant, *POISON[request.param])
    chat.append([GOOD[1]])
    return any_store


def check(events: list[RecordedEvent], poison: tuple[Any, ...]) -> None:
    assert [event.version for event in events] == [1, 2, 3]
    assert [event.data for event in (events[0], events[2])] == GOOD
    bad = events[1]
    kind, version, form, data, beside = poison
    assert isinstance(bad, UndecodableEvent)
    assert isinstance(bad, RecordedEvent)
    assert (bad.stream, bad.type, bad.schema_version, bad.format) == ("s", kind, version, form)
    assert (bad.agent, bad.raw_data, bad.raw_metadata) == ("mallory", data.encode(), beside and beside.encode())
    assert bad.position > events[0].position
    assert len(bad.hash) == 32
    with pytest.raises(errors.EventUndecodable, match=r"version 2 of stream 's'") as caught:
        _ = bad.data
    assert caught.value is bad.error
    assert caught.value.__cause__ is not None
    assert 0 < len(bad.error.reason) <= 500
    if beside is None:
        assert bad.metadata == {}
    else:
        with pytest.raises(errors.EventUndecodable):
            _ = bad.metadata
    assert repr(bad.error.reason) in repr(bad)


def test_a_page_gives_the_rest_and_a_poison_event_as_what_it_is(poisoned: Any, request: pytest.FixtureRequest) -> None:
    poison = POISON[request.node.callspec.params["poisoned"]]
    page = poisoned.feed()
    check(page.events, poison)
    check(list(poisoned.subscribe(idle=0)), poison)
    check(list(poisoned.conversation("s").events()), poison)
    bad = page.events[1]
    assert [e.data for e in poisoned.feed(bad.cursor).events] == GOOD[1:]
    again = poisoned.feed(page.events[0].cursor, limit=1).events
    assert again == [bad]
    assert len({*again, bad}) == 1
    assert bad not in page.events[::2]


def test_a_reader_parks_what_it_cannot_read_and_goes_on(poisoned: Any) -> None:
    folded, parked, cursor = [], [], None
    for event in poisoned.subscribe(idle=0):
        if isinstance(event, UndecodableEvent):
            parked.append((event.position, event.error.reason, event.raw_data))
        else:
            folded.append(event.data)
        cursor = event.cursor
    assert folded == GOOD
    assert len(parked) == 1
    assert poisoned.feed(cursor).events == []


def test_a_reader_that_does_not_know_of_poison_stops_there_and_keeps_its_place(poisoned: Any) -> None:
    seen, cursor = [], None
    with pytest.raises(errors.EventUndecodable):
        for event in poisoned.subscribe():
            seen.append(event.data)
            cursor = event.cursor
    assert seen == GOOD[:1]
    assert isinstance(poisoned.feed(cursor).events[0], UndecodableEvent)


@pytest.mark.parametrize("kind", ["task.escalated", "X.Odd", ""])
def test_a_type_that_newer_code_brought_is_given_with_its_data(
    any_store: Any, contract_db: psycopg.Connection, kind: str
) -> None:
    write(contract_db, any_store.tenant, kind, 3, 1, '{"to": ["a", 1]}', '{"n": 1}')
    (event,) = any_store.feed().events
    assert not isinstance(event, UndecodableEvent)
    assert (event.type, event.schema_version, event.data, event.metadata) == (kind, 3, {"to": ["a", 1]}, {"n": 1})
    assert list(any_store.conversation("s").events()) == [event]
    write(contract_db, any_store.tenant, kind, 3, 1, "1e999", None)
    assert isinstance(any_store.feed().events[1], UndecodableEvent)


def test_a_hostile_login_of_one_tenant_holds_up_no_reader_of_all(
    make_login: Callable[..., str], store: EventStore
) -> None:
    store.for_tenant("acme").conversation("s").append([1])
    with psycopg.connect(make_login("writer", "rival"), autocommit=True) as hostile:
        for poison in POISON.values():
            write(hostile, "rival", *poison)
    store.for_tenant("acme").conversation("s").append([2])
    events = store.feed(all_tenants=True).events
    assert [event.data for event in events if event.tenant == "acme"] == [1, 2]
    assert [type(event) for event in events[1:-1]] == [UndecodableEvent] * len(POISON)
    assert [event.data for event in store.for_tenant("acme").feed().events] == [1, 2]
