"""Pages of the feed: what the filter passes over, how pages are cut, which cursors are refused; by each client."""

from __future__ import annotations

import random
from typing import Any

import psycopg
import pytest

from eventstore import Event, EventStore
from eventstore.errors import CursorInvalid, InvalidItem
from eventstore.log import cursors


def walk(store: Any, after: str | None = None, **options: Any) -> tuple[list[Any], list[int]]:
    """Read to the end; give the events, and how many there were on each page."""
    events: list[Any] = []
    sizes: list[int] = []
    while True:
        page = store.feed(after, **options)
        if not page.events:
            return events, sizes
        assert page.cursor is not None
        events += page.events
        sizes.append(len(page.events))
        after = page.cursor


def mixed(store: Any, n: int = 40) -> None:
    """Events of several types and streams; runs of one type are longer than a small page."""
    dice = random.Random(1)
    for number in range(n):
        kinds = [dice.choice(["x.a", "x.b", "x.c"])] * dice.randint(1, 6)
        store.conversation(f"s{number % 3}").append_events([Event(type=kind, data=number) for kind in kinds])


def test_a_feed_has_the_events_of_all_streams_as_they_were_recorded(any_store: Any) -> None:
    mixed(any_store)
    events, sizes = walk(any_store)
    assert len(sizes) == 1
    assert [e.position for e in events] == sorted(e.position for e in events)
    for name in ("s0", "s1", "s2"):
        mine = [e for e in events if e.stream == name]
        assert mine == list(any_store.conversation(name).events())
        assert {(e.tenant, e.context) for e in mine} == {(any_store.tenant, name)}


@pytest.mark.parametrize("limit", [1, 2, 7])
@pytest.mark.parametrize("types", [None, ["x.a"], ["x.b", "x.c"]], ids=str)
def test_small_pages_are_one_large_page(any_store: Any, limit: int, types: list[str] | None) -> None:
    mixed(any_store)
    events, sizes = walk(any_store, limit=limit, types=types)
    assert set(sizes[:-1]) <= {limit}
    assert events == walk(any_store, types=types)[0]
    assert events == [e for e in walk(any_store)[0] if types is None or e.type in types]


def test_the_cursor_of_an_event_goes_on_right_after_it(any_store: Any) -> None:
    mixed(any_store, 10)
    for types in (None, ["x.a"]):
        events, _ = walk(any_store, types=types)
        for n, event in enumerate(events):
            assert any_store.feed(event.cursor, types=types).events == events[n + 1 :]


def test_a_filter_passes_over_what_does_not_match_and_skips_no_later_match(any_store: Any) -> None:
    chat = any_store.conversation("s")
    assert any_store.feed(types=["x.wanted"]).cursor is None
    chat.append(list(range(30)))
    page = any_store.feed(types=["x.wanted"], limit=5)
    assert page.events == []
    assert page.cursor == any_store.feed().events[-1].cursor  # all 30 were passed over at once
    assert any_store.feed(page.cursor).events == []
    chat.append_events([Event(type="x.wanted", data=1)])
    chat.append(["not"])
    chat.append_events([Event(type="x.wanted", data=2)])
    (first,) = any_store.feed(page.cursor, types=["x.wanted"], limit=1).events
    (second,) = any_store.feed(first.cursor, types=["x.wanted"], limit=1).events
    assert (first.data, second.data) == (1, 2)
    assert any_store.feed(second.cursor, types=["x.wanted"], limit=1).events == []
    assert any_store.feed(types=[]).events == []


@pytest.mark.parametrize("types", [None, ["item.appended"]], ids=["all", "filtered"])
def test_pages_cut_by_bytes_have_every_event(any_store: Any, types: list[str] | None) -> None:
    dice = random.Random(2)
    large = [dice.randbytes(150_000).hex() for _ in range(12)]  # 300 kB that don't compress well
    chat = any_store.conversation("s")
    for number, text in enumerate(large):
        chat.append([text])
        if number % 3 == 0:
            chat.append_events([Event(type="x.a", data=number)])
    chat.append([dice.randbytes(1_500_000).hex(), "small"])  # larger than a page's share alone
    events, sizes = walk(any_store, types=types)
    assert [e.data for e in events if e.type == "item.appended"][:12] == large
    assert len(events) == (18 if types is None else 14)
    assert [e.data for e in events][-1] == "small"
    assert 3 <= len(sizes) <= len(events)


@pytest.mark.parametrize("limit", [0, -1, 10_001, 1.5, True, None, "5"])
def test_a_limit_out_of_range_is_refused(any_store: Any, limit: Any) -> None:
    with pytest.raises(InvalidItem, match="1 to 10,000"):
        any_store.feed(limit=limit)


def test_one_type_given_as_text_is_refused(any_store: Any) -> None:
    with pytest.raises(InvalidItem, match="list of event types"):
        any_store.feed(types="x.a")


# --- cursors that are refused ---


@pytest.mark.parametrize("cursor", ["", "5", "garbage", "A" * 31, "A" * 36, "é"])
def test_what_is_no_cursor_is_refused(any_store: Any, cursor: str) -> None:
    with pytest.raises(CursorInvalid, match="None for the beginning"):
        any_store.feed(cursor)


def test_a_cursor_ahead_of_the_log_is_refused_and_tells_both_positions(any_store: Any) -> None:
    any_store.conversation("s").append([1])
    place = cursors.decode(any_store.feed().cursor)
    assert place.incarnation is not None
    ahead = cursors.encode(place.position + 1_000_000, place.incarnation)
    with pytest.raises(CursorInvalid, match=rf"position {place.position + 1_000_000}, ahead .* at {place.position}"):
        any_store.feed(ahead)


def rewound(db: psycopg.Connection) -> None:
    db.execute("SELECT setval('position', 2)")


def emptied(db: psycopg.Connection) -> None:
    db.execute("TRUNCATE events, streams, directory, contexts")
    db.execute("ALTER SEQUENCE position RESTART")


@pytest.mark.parametrize("harm", [rewound, emptied])
def test_a_sequence_set_back_is_an_error_and_not_silence(store: EventStore, db: psycopg.Connection, harm: Any) -> None:
    store.conversation("s").append(list(range(5)))
    cursor = store.feed().cursor
    harm(db)
    for options in ({}, {"all_tenants": True}, {"types": ["x.a"]}):
        with pytest.raises(CursorInvalid, match=r"ahead of the log.*set back.*restore"):
            store.feed(cursor, **options)
    with pytest.raises(CursorInvalid):
        next(store.subscribe(cursor))


def test_after_a_restart_of_the_sequence_no_event_comes_to_position_0(
    store: EventStore, url: str, db: psycopg.Connection
) -> None:
    store.conversation("s").append(["lost"])
    with EventStore.open(url) as fresh:
        emptied(db)
        with pytest.raises(psycopg.errors.CheckViolation):
            fresh.conversation("t").append(["at 0"])
        fresh.conversation("t").append(["at 1"])
        assert [(e.position, e.data) for e in fresh.feed().events] == [(1, "at 1")]


def test_a_cursor_of_another_life_of_the_log_is_refused(store: EventStore, db: psycopg.Connection) -> None:
    store.conversation("s").append([1, 2])
    cursor = store.feed(limit=1).cursor
    db.execute("UPDATE store SET incarnation = gen_random_uuid()")
    with pytest.raises(CursorInvalid, match=r"restored or failed over.*from the beginning"):
        store.feed(cursor)
    assert [e.data for e in store.feed().events] == [1, 2]
