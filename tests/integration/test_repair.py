"""Sequences that were set back or changed: the store refuses, says what to run, and that makes it safe again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from eventstore import AsyncEventStore, EventStore
from eventstore.adapters.cli import main
from eventstore.errors import (
    CursorInvalid,
    InvalidItem,
    NotPermitted,
    SequencesUnsafe,
    StoreUnavailable,
    TenantRequired,
)
from eventstore.log import cursors

JUMP = 1_000_000_000
LAST = 2**48 - 1
FAULTS = {
    "set back": ("SELECT setval('position', 2)", r"position is at 2, below position 3 of an event"),
    "restarted": ("ALTER SEQUENCE position RESTART", "has drawn nothing; there are events up to position 3"),
    "cached": ("ALTER SEQUENCE position CACHE 2", "CACHE 2 instead of 1"),
    "in other steps": ("ALTER SEQUENCE position INCREMENT 3", "INCREMENT 3 instead of 1"),
    "cyclic": ("ALTER SEQUENCE position CYCLE", "CYCLE true instead of false"),
    "of a lower end": ("ALTER SEQUENCE position MAXVALUE 9999", f"MAXVALUE 9999 instead of {LAST}"),
    "of a higher start": ("ALTER SEQUENCE position MINVALUE 1 START 1", "MINVALUE 1 instead of 0"),
    "of another type": ("ALTER SEQUENCE position MAXVALUE 99; ALTER SEQUENCE position AS integer", "type integer"),
    "unlogged": ("ALTER SEQUENCE position SET UNLOGGED", "persistence unlogged instead of logged"),
    "gone": ("DROP SEQUENCE position", "position does not exist"),
    "beyond the mark": ("UPDATE watermark SET position = 99", "at 3, below position 99 of the watermark"),
    "ids of tenants": (
        "ALTER SEQUENCE tenants_tenant_id_seq RESTART",
        "tenants_tenant_id_seq is at its start, below the id 1",
    ),
    "ids of contexts": (
        "SELECT setval('contexts_context_id_seq', 1)",
        "contexts_context_id_seq is at 1, below the id 2",
    ),
    "ids of streams": (
        "ALTER SEQUENCE directory_stream_id_seq RESTART",
        "directory_stream_id_seq is at its start, below",
    ),
}


LOSE_ALL_BUT_ONE = """
    DELETE FROM events WHERE position > 1; DELETE FROM directory; DELETE FROM streams; SELECT setval('position', 1)
"""


def run(url: str, *args: str) -> Result:
    return CliRunner().invoke(main, args, env={"CONVSTORE_URL": url, "CONVSTORE_TENANT": None})


def harm(db: psycopg.Connection, statements: str) -> None:
    db.execute(statements)  # type: ignore[call-overload]


@pytest.fixture
def begun(store: EventStore) -> str:
    """Three events in two contexts; the cursor after them."""
    store.conversation("s").append([1, 2])
    store.conversation("t").append([3])
    cursor = store.feed().cursor
    assert cursor is not None
    return cursor


# --- refusing, and the way out ---


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_fault_of_the_sequences_is_refused_by_name_and_repaired(
    url: str, db: psycopg.Connection, store: EventStore, begun: str, fault: str
) -> None:
    statements, told = FAULTS[fault]
    harm(db, statements)
    with EventStore.open(url) as opened:
        calls: list[Callable[[], Any]] = [
            *(lambda: opened.conversation("s").append([4]), lambda: opened.feed(), lambda: opened.conversations()),
            *(
                lambda: list(opened.conversation("s").events()),
                lambda: next(opened.subscribe()),
                lambda: opened.verify(),
            ),
            *(lambda: opened.cursor_at(3), lambda: opened.transaction().__enter__()),
        ]
        for call in calls:
            with pytest.raises(SequencesUnsafe, match=rf"{told}.*; run: convstore repair sequence$") as caught:
                call()
        assert len(caught.value.faults) == (2 if fault == "of another type" else 1)
        assert opened.migrate() == []
        with pytest.raises(SequencesUnsafe):
            opened.feed()
        dry = opened.repair_sequence(dry_run=True)
        assert opened.sequence_faults() == list(dry.faults) == list(caught.value.faults)
        report = opened.repair_sequence()
        assert (report.faults, len(report.done)) == (dry.faults, len(dry.done))
        assert opened.sequence_faults() == []
        assert db.execute("SELECT position FROM watermark").fetchone() == (3,)

        # What was appended before is there, what is appended now lies far above it, and names get ids of their own.
        for name in ("s", "new"):
            opened.conversation(name).append([name])
        opened.for_tenant("other").conversation("s").append(["other"])
        assert [event.data for event in opened.feed().events] == [1, 2, 3, "s", "new"]
        after = [event.position for event in opened.feed(all_tenants=True).events][-3:]
        assert after == [report.position + n for n in (1, 2, 3)]
        assert report.position >= 3 + JUMP
        with pytest.raises(CursorInvalid, match="another life"):
            opened.feed(begun)
        assert opened.verify().ok
    store.conversation("s").append(["by who had it open"])
    assert store.feed(all_tenants=True).events[-1].data == "by who had it open"
    properties = db.execute(
        "SELECT data_type::text, start_value, min_value, max_value, increment_by, cycle, cache_size"
        " FROM pg_sequences WHERE sequencename = 'position'"
    ).fetchone()
    assert properties == ("bigint", 0, 0, LAST, 1, False, 1)


def test_positions_that_a_session_has_in_its_cache_are_not_drawn_after_the_repair(
    url: str, db: psycopg.Connection, store: EventStore, begun: str
) -> None:
    harm(db, "ALTER SEQUENCE position CACHE 10")
    assert store.conversation("s").append([4]).position == 4
    with EventStore.open(url) as opened:
        repaired = opened.repair_sequence()
        assert repaired.position == 13 + JUMP
        assert store.conversation("s").append([5]).position == repaired.position + 1
        assert [event.data for event in opened.feed(opened.cursor_at(3)).events] == [4, 5]


def test_a_sound_store_is_repaired_too_and_each_time_jumps(
    url: str, db: psycopg.Connection, store: EventStore, begun: str
) -> None:
    db.execute("SELECT record_watermark()")
    first, second = store.repair_sequence(), store.repair_sequence()
    assert (first.faults, second.faults) == ((), ())
    assert (first.position, second.position) == (3 + JUMP, 3 + 2 * JUMP)
    assert first.incarnation != second.incarnation
    assert store.feed().events[-1].position == 3
    with pytest.raises(CursorInvalid):
        store.feed(begun)
    assert db.execute("SELECT record_watermark()").fetchone() == (3,)


def test_a_dry_run_changes_nothing(db: psycopg.Connection, store: EventStore, begun: str) -> None:
    harm(db, "ALTER SEQUENCE position CACHE 5; ALTER SEQUENCE tenants_tenant_id_seq RESTART")
    harm(db, "UPDATE watermark SET position = 99")
    state = "SELECT incarnation, sequence_faults(), (SELECT position FROM watermark) FROM store"
    before = db.execute(state).fetchall()
    report = store.repair_sequence(dry_run=True)
    assert report.dry_run
    assert [line.split(" set ")[0] for line in report.done[1:4]] == [
        *("sequence position", "sequence tenants_tenant_id_seq", "watermark")
    ]
    assert db.execute(state).fetchall() == before


def test_ids_drawn_twice_are_refused_by_name_where_the_store_was_open_before(
    db: psycopg.Connection, store: EventStore, begun: str
) -> None:
    harm(db, "SELECT setval('position', 2)")
    with pytest.raises(SequencesUnsafe, match=r"position drew a value twice: Key \(\"position\"\)=\(3\)"):
        store.conversation("s").append([4])
    harm(db, "SELECT setval('position', 50), setval('contexts_context_id_seq', 1)")
    with pytest.raises(SequencesUnsafe, match=r"contexts_context_id_seq drew a value twice"):
        store.conversation("new").append([4])
    assert [event.data for event in store.feed().events] == [1, 2, 3]


def test_no_room_for_a_jump_is_refused_and_changes_nothing(url: str, db: psycopg.Connection, begun: str) -> None:
    at = LAST - JUMP
    db.execute("SELECT setval('position', %s)", [at])
    with EventStore.open(url) as store:
        with pytest.raises(SequencesUnsafe, match=rf"no room for a jump: {at} and {JUMP} more .* {LAST}.*position 3"):
            store.repair_sequence()
        assert store.feed(begun).events == []
        db.execute("SELECT setval('position', %s)", [at - 1])
        assert store.repair_sequence().position == LAST - 1
        store.conversation("s").append(["the last one"])
        assert store.feed().events[-1].position == LAST


@pytest.mark.usefixtures("begun")
def test_writers_beside_it_are_never_mistaken_for_a_fault(url: str, store: EventStore) -> None:
    with psycopg.connect(url) as conn:
        mine = store.using(conn)
        for n in range(20):
            mine.conversation(f"in flight {n}").append([n])
            store.conversation(f"done {n}").append([n])
            assert store.sequence_faults() == []
            (conn.commit if n % 2 else conn.rollback)()
            assert store.sequence_faults() == []


# --- who may, and what is in the way ---


@pytest.mark.parametrize("role", ["writer", "reader", "projector", "auditor"])
def test_a_login_that_does_not_own_the_store_is_told_what_it_lacks(
    make_login: Callable[..., str], db: psycopg.Connection, store: EventStore, begun: str, role: str
) -> None:
    harm(db, "SELECT setval('position', 2)")
    with EventStore.open(make_login(role, None)) as mine:
        with pytest.raises(SequencesUnsafe, match="below position 3"):
            mine.feed()
        for dry_run in (True, False):
            with pytest.raises(NotPermitted, match="convstore_owner"):
                mine.repair_sequence(dry_run=dry_run)


def test_a_member_of_the_owner_repairs(make_login: Callable[..., str], db: psycopg.Connection, begun: str) -> None:
    harm(db, "ALTER SEQUENCE position CACHE 3; SELECT setval('position', 2), setval('contexts_context_id_seq', 1)")
    with EventStore.open(make_login("owner", None)) as mine:
        assert [line.split(" set ")[0] for line in mine.repair_sequence().done[1:4]] == [
            *("sequence position", "sequence contexts_context_id_seq", "watermark")
        ]
        mine.conversation("new").append([4])


@pytest.mark.parametrize("prepared", [False, True], ids=["open", "prepared"])
@pytest.mark.usefixtures("begun")
def test_it_waits_for_writers_in_flight_and_names_what_is_in_the_way(
    url: str, store: EventStore, prepared: bool
) -> None:
    with psycopg.connect(url) as conn, EventStore.open(url, timeout=0.1) as hasty:
        store.using(conn).conversation("s").append([4])
        if prepared:
            conn.execute("PREPARE TRANSACTION 'before the repair'")
            conn.autocommit = True
        with pytest.raises(StoreUnavailable, match=r"open, or prepared.*'convstore\.position'"):
            hasty.repair_sequence()
        store.conversation("t").append(["who is not held up"])
        conn.execute("COMMIT PREPARED 'before the repair'" if prepared else "COMMIT")
        hasty.repair_sequence()
    assert [event.data for event in store.feed().events] == [1, 2, 3, 4, "who is not held up"]


# --- cursors ---


@pytest.mark.parametrize("types", [None, ["item.appended"], ["x.none"]])
def test_a_cursor_of_an_event_that_is_lost_is_refused_also_when_its_position_was_drawn_again(
    db: psycopg.Connection, store: EventStore, begun: str, types: list[str] | None
) -> None:
    kept = store.feed().events[0].cursor
    passed = store.feed(types=["x.none"]).cursor
    assert passed == begun
    again = store.conversation("again").append(["lost"], key="k")
    lost = [begun, store.feed().events[2].cursor, store.feed().cursor, store.feed(types=["x.none"]).cursor]
    harm(
        db,
        LOSE_ALL_BUT_ONE,
    )
    store.conversation("u").append(["drawn again", "and again"])
    repeat = store.conversation("again").append(["lost"], key="k")
    assert repeat.position == again.position  # the very event, at the very position: above others that are new
    store.conversation("u").append(["more"])
    for cursor in lost:
        with pytest.raises(CursorInvalid, match=r"event at position \d .* not in this log.*older cursor.*beginning"):
            store.feed(cursor, types=types)
        with pytest.raises(CursorInvalid):
            next(store.subscribe(cursor, types=types))
    found = [event.position for event in store.feed(kept).events]
    assert found == [2, 3, 4, 5]


def test_a_cursor_without_its_events_mark_would_skip_them(
    db: psycopg.Connection, store: EventStore, begun: str
) -> None:
    place = cursors.decode(begun)
    assert place.incarnation is not None
    harm(
        db,
        LOSE_ALL_BUT_ONE,
    )
    store.conversation("u").append(["skipped", "skipped", "seen"])
    unmarked = cursors.encode(place.position, place.incarnation)
    assert [event.data for event in store.feed(unmarked).events] == ["seen"]


def test_the_marks_of_pages_and_events_are_alike(store: EventStore, begun: str) -> None:
    events = store.feed().events
    assert events[-1].cursor == begun
    for n in (1, 2, 3):
        page = store.feed(limit=n)
        assert page.cursor == events[n - 1].cursor == store.cursor_at(events[n - 1].position)


def test_the_place_of_a_reader_is_found_by_the_position_it_had_come_to(url: str, store: EventStore, begun: str) -> None:
    store.for_tenant("other").conversation("s").append(["theirs"])
    assert store.cursor_at(0) is None
    assert store.cursor_at(4) == store.cursor_at(3) == begun != store.cursor_at(2)
    assert store.cursor_at(99, all_tenants=True) == store.feed(all_tenants=True).cursor != begun
    store.repair_sequence()
    store.conversation("s").append(["after"])
    assert [event.data for event in store.feed(store.cursor_at(2)).events] == [3, "after"]
    with psycopg.connect(url) as conn:  # never past a writer in flight
        store.using(conn).conversation("s").append(["in flight"])
        store.conversation("t").append(["above it"])
        tail = store.cursor_at(2**62)
        conn.commit()
    assert [event.data for event in store.feed(tail).events] == ["in flight", "above it"]
    for wrong in (-1, 1.0, True, None, "3", 2**63):
        with pytest.raises(InvalidItem, match="position"):
            store.cursor_at(wrong)  # type: ignore[arg-type]


def test_a_subscription_that_runs_is_told(store: EventStore, begun: str) -> None:
    events = store.subscribe()
    assert [next(events).data for _ in range(3)] == [1, 2, 3]
    store.repair_sequence()
    store.conversation("s").append([4])
    with pytest.raises(CursorInvalid, match=r"another life.*from the beginning"):
        next(events)


# --- the command ---


def test_the_command_repairs_and_tells(url: str, db: psycopg.Connection, store: EventStore, begun: str) -> None:
    harm(db, "SELECT setval('position', 2)")
    for command in (("ls",), ("verify",), ("replay", "s"), ("export", "s")):
        refused = run(url, *command)
        assert refused.exit_code == 2
        assert "below position 3 of an event; run: convstore repair sequence" in refused.stderr
    shown = run(url, "status")
    assert shown.exit_code == 0
    assert "below position 3 of an event; run: convstore repair sequence" in shown.stdout
    assert len(json.loads(run(url, "status", "--json").stdout)["store"]["faults"]) == 1
    dry = run(url, "repair", "sequence", "--dry-run")
    assert dry.exit_code == 0
    assert f"would have: sequence position set from 2 to {3 + JUMP}" in dry.stdout
    assert run(url, "ls").exit_code == 2
    done = run(url, "repair", "sequence")
    assert done.exit_code == 0
    assert "found: sequence position is at 2, below position 3 of an event" in done.stdout
    assert f"done: sequence position set from 2 to {3 + JUMP}; the last event is at 3" in done.stdout
    assert "incarnation" in done.stdout
    assert run(url, "ls").exit_code == 0
    report = json.loads(run(url, "repair", "sequence", "--json").stdout)
    assert (report["faults"], report["dry_run"], report["position"]) == ([], False, 3 + 2 * JUMP)
    assert store.feed().cursor is not None


def test_the_command_without_rights_or_server_says_so(
    url: str, make_login: Callable[..., str], make_database: Callable[..., str]
) -> None:
    refused = run(make_login("writer", None), "repair", "sequence")
    assert refused.exit_code == 2
    assert "convstore_owner" in refused.stderr
    empty = run(make_database(), "repair", "sequence")
    assert empty.exit_code == 2
    assert "run: convstore migrate" in empty.stderr
    nowhere = run("postgresql://nobody@127.0.0.1:1/none", "repair", "sequence", "--timeout", "2")
    assert nowhere.exit_code == 3


def test_the_async_client_is_refused_repairs_and_finds_its_place(url: str, db: psycopg.Connection, begun: str) -> None:
    harm(db, "SELECT setval('position', 2)")

    async def steps() -> None:
        async with AsyncEventStore.open(url) as store:
            with pytest.raises(SequencesUnsafe, match="below position 3"):
                await store.feed()
            assert len(await store.sequence_faults()) == 1
            assert (await store.repair_sequence(dry_run=True)).dry_run
            report = await store.repair_sequence()
            appended = await store.conversation("s").append([4])
            assert appended.position == report.position + 1
            with pytest.raises(CursorInvalid, match="another life"):
                await store.feed(begun)
            after = await store.cursor_at(2)
            assert [event.data for event in (await store.feed(after)).events] == [3, 4]

    asyncio.run(steps())


def test_a_login_of_one_tenant_makes_cursors_of_its_own_feed_only(
    make_login: Callable[..., str], store: EventStore, begun: str
) -> None:
    store.for_tenant("rival").conversation("s").append(["theirs"])
    with EventStore.open(make_login("reader", "default")) as mine:
        assert mine.cursor_at(99) == begun
        for wrong in (lambda: mine.cursor_at(99, all_tenants=True), lambda: mine.for_tenant("rival").cursor_at(99)):
            with pytest.raises(TenantRequired):
                wrong()
