"""The contract of conversations: every method, its repeats, what it refuses and that nothing is written then."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from contract import Untouched

from eventstore import Event, EventStore
from eventstore.errors import (
    CompactionConflict,
    ContextMismatch,
    IdempotencyConflict,
    InvalidEvent,
    InvalidItem,
    StreamClosed,
    StreamNotFound,
)


def told(items: list[Any]) -> list[Any]:
    """A compactor that says what it was given."""
    return [{"role": "user", "content": f"of {items}"}]


def summary(*items: Any) -> Any:
    return told(list(items))[0]


@pytest.fixture
def chat(any_store: Any) -> Any:
    """A conversation of the items 1 to 6."""
    made = any_store.conversation("a", context="ctx")
    made.append([1, 2, 3], agent="alice")
    made.append([4, 5, 6])
    return made


# --- every method ---


def test_transcript_and_originals_at_any_version_and_moment(chat: Any) -> None:
    chat.compact(told, keep_last=2)  # 7 summary, 8 compacted
    chat.append([9])
    chat.retract(versions=[(2, 3)])  # 10
    chat.pop()  # 11 takes 9
    chat.clear()  # 12
    chat.append([13])
    given = summary(1, 2, 3, 4)
    by_version: dict[int, tuple[list[Any], list[Any]]] = {
        0: ([], []),
        3: ([1, 2, 3], [1, 2, 3]),
        7: ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]),
        8: ([given, 5, 6], [1, 2, 3, 4, 5, 6]),
        9: ([given, 5, 6, 9], [1, 2, 3, 4, 5, 6, 9]),
        10: ([given, 5, 6, 9], [1, 4, 5, 6, 9]),
        11: ([given, 5, 6], [1, 4, 5, 6]),
        12: ([], []),
        13: ([13], [13]),
    }
    for at, (shown, kept) in by_version.items():
        assert chat.transcript(at=at) == shown, at
        assert chat.originals(at=at) == kept, at
        for limit in range(8):
            assert chat.transcript(at=at, limit=limit) == shown[max(0, len(shown) - limit) :], (at, limit)
    assert (chat.transcript(), chat.originals()) == by_version[13]
    for event in chat.events():
        then = chat.version_at(event.recorded_at)
        assert then >= event.version
        assert chat.transcript(at=event.recorded_at) == chat.transcript(at=then)
    first = next(iter(chat.events())).recorded_at
    assert chat.version_at(first - timedelta(microseconds=1)) == 0
    assert chat.transcript(at=first - timedelta(days=1)) == chat.originals(at=first - timedelta(days=1)) == []
    assert chat.transcript(at=datetime.now(UTC) + timedelta(days=1)) == [13]
    stale = chat.shown(at=10)
    assert [(c.version, c.covers, c.depth, c.stale) for c in stale.compactions] == [(8, (1, 4), 1, True)]
    assert [(e.version, e.summary) for e in stale.entries] == [(7, True), (5, False), (6, False), (9, False)]


def test_what_a_change_returns_and_records(chat: Any) -> None:
    done = chat.retract(2, reason="wrong\x00", agent="bob")
    assert (done.stream, done.first_version, done.last_version, done.deduplicated) == ("a", 7, 7, False)
    event = list(chat.events())[-1]
    assert (event.type, event.agent, event.position) == ("items.retracted", "bob", done.position)
    assert event.data == {"ranges": [[5, 6]], "control": 0, "last": 2, "reason": "wrong\x00"}
    assert chat.clear(reason="anew", agent="bob").last_version == 8
    event = list(chat.events())[-1]
    assert (event.type, event.agent, event.data) == ("history.cleared", "bob", {"reason": "anew"})


def test_a_compaction_says_what_it_did(chat: Any) -> None:
    done = chat.compact(told, keep_last=1, agent="bob")
    assert (done.covers, done.version, done.depth, done.method, done.model) == ((1, 5), 8, 1, "told", None)
    assert done.source_bytes == len("[1,2,3,4,5]")
    assert not done.deduplicated
    assert [e.agent for e in chat.events(7, 8)] == ["bob", "bob"]
    again = chat.compact(told, basis="summary", merge=True, keep_last=1)
    assert again is None  # one summary, nothing new
    chat.append([9])
    over = chat.compact(told, basis="summary", merge=True, keep_last=1)
    assert (over.covers, over.depth) == ((1, 6), 2)
    assert chat.transcript() == [summary(summary(1, 2, 3, 4, 5), 6), 9]
    assert chat.originals() == [1, 2, 3, 4, 5, 6, 9]


def test_pops_take_items_from_the_end_and_a_summary_with_all_that_it_stands_for(chat: Any) -> None:
    chat.compact(told, keep_last=1)
    chat.append([None, {"b": 1, "a": 2**80}])
    assert repr(chat.pop()) == repr({"b": 1, "a": 2**80})
    assert chat.pop() is None  # the item is null
    assert (chat.pop(), chat.pop()) == (6, summary(1, 2, 3, 4, 5))
    assert chat.transcript() == chat.originals() == []
    head = chat.head()
    assert chat.pop() is None
    assert chat.head() == head


def test_a_stream_that_does_not_exist_has_nothing_and_gets_nothing(any_store: Any, contract_db: Any) -> None:
    chat = any_store.conversation("none")
    with Untouched(contract_db):
        assert chat.transcript() == chat.transcript(at=datetime.now(UTC), limit=3) == chat.originals() == []
        assert chat.version_at(datetime.now(UTC)) == 0
        assert chat.pop(key="k") is chat.retract(3) is chat.retract(versions=[(1, 2)]) is chat.clear(key="k") is None
        assert chat.compact(told, key="k") is None
        seen = chat.model_input()
        assert (seen.items, seen.receipt.version) == ([], 0)
        assert chat.model_input(server_state="response").items == []
        for call in (chat.shown, lambda: chat.responses.seen("r")):
            with pytest.raises(StreamNotFound):
                call()


def test_a_closed_stream_is_read_and_not_changed(chat: Any, contract_db: Any) -> None:
    chat.pop(key="before")
    chat.append_events([Event(type="stream.closed", data={})])
    assert chat.transcript() == chat.originals() == [1, 2, 3, 4, 5]
    asked: list[Any] = []
    with Untouched(contract_db):
        for change in (chat.pop, lambda: chat.retract(0), chat.clear, lambda: chat.compact(asked.append)):
            with pytest.raises(StreamClosed):
                change()
        with pytest.raises(StreamClosed):
            chat.retract(versions=[(1, 1)])
        assert chat.pop(key="before") == 6  # a repeat is still the first call
    assert not asked  # no model was called for nothing


def test_another_context_is_refused_before_anything_is_made(any_store: Any, chat: Any, contract_db: Any) -> None:
    other = any_store.conversation("a", context="else")
    asked: list[Any] = []
    with Untouched(contract_db):
        for change in (other.pop, other.clear, lambda: other.compact(asked.append)):
            with pytest.raises(ContextMismatch):
                change()
    assert not asked


# --- repeats ---


def test_a_repeated_pop_gives_the_same_item_and_takes_nothing_more(chat: Any, contract_db: Any) -> None:
    assert chat.pop(key="k") == 6
    chat.append([7])
    chat.pop()
    with Untouched(contract_db):
        assert chat.pop(key="k") == 6
        assert chat.retract(1, key="k").deduplicated
    assert chat.transcript() == [1, 2, 3, 4, 5]


def test_a_repeat_gives_what_was_taken_and_not_what_was_hidden_beside_it(chat: Any) -> None:
    """Between the items taken stands a summary that another one replaced: it is in the range, and was not shown."""
    chat.compact(told, covers=(1, 2))  # 7, 8
    chat.append([9])
    chat.compact(told, covers=(1, 2))  # 10, 11 in place of 7
    assert chat.transcript() == [summary(1, 2), 3, 4, 5, 6, 9]
    assert (chat.pop(), chat.pop(key="k")) == (9, 6)
    assert chat.pop(key="k") == 6
    taken = chat.retract(9, key="all")
    assert chat.transcript() == []
    again = chat.retract(9, key="all")
    assert (again.deduplicated, again.last_version, again.event_ids) == (True, taken.last_version, taken.event_ids)


def test_a_repeated_pop_of_a_summary_gives_it_again(chat: Any) -> None:
    chat.compact(told)
    assert chat.pop(key="k") == chat.pop(key="k") == summary(1, 2, 3, 4, 5, 6)


def test_a_repeated_clear_and_retraction_are_the_first(chat: Any, contract_db: Any) -> None:
    first = chat.retract(versions=[(2, 2), (3, 3)], reason="r", key="k")
    cleared = chat.clear(reason="r", key="c")
    chat.append([9])
    with Untouched(contract_db):
        again = chat.retract(versions=[(2, 3)], reason="r", key="k")
        assert (again.deduplicated, again.last_version, again.position) == (True, first.last_version, first.position)
        assert chat.clear(reason="r", key="c").last_version == cleared.last_version
    assert chat.transcript() == [9]


def test_a_repeated_compaction_is_the_first_and_calls_no_compactor(chat: Any, contract_db: Any) -> None:
    first = chat.compact(told, keep_last=2, key="k")
    chat.append([9])
    chat.compact(told)
    asked: list[Any] = []
    with Untouched(contract_db):
        again = chat.compact(asked.append, keep_last=2, key="k")
    assert (again.deduplicated, again.version, again.covers, again.depth) == (True, first.version, first.covers, 1)
    assert again.source_bytes == first.source_bytes
    assert not asked


def test_a_key_of_something_else_is_refused(chat: Any, contract_db: Any) -> None:
    chat.append([7], key="append")
    chat.retract(2, reason="r", key="retract")
    chat.retract(versions=[(1, 1)], key="versions")
    chat.clear(reason="r", key="clear")
    chat.append([1, 2])
    chat.compact(told, key="compact")
    chat.append_events([Event(type="summary.appended", data=1)], key="a summary by hand")
    chat.responses.record("r1", key="record")
    chat.append([3])
    chat.compact(told)
    asked: list[Any] = []
    with Untouched(contract_db):
        for key in ("append", "retract", "versions", "clear", "a summary by hand", "record"):
            with pytest.raises(IdempotencyConflict, match=key):
                chat.compact(asked.append, key=key)
        with pytest.raises(IdempotencyConflict):
            chat.compact(asked.append, basis="summary", key="compact")
        for key in ("append", "retract", "versions", "clear", "compact", "record"):
            with pytest.raises(IdempotencyConflict, match=key):
                chat.retract(1, reason="r", key=key)
            with pytest.raises(IdempotencyConflict, match=key):
                chat.retract(versions=[(2, 2)], key=key)
            with pytest.raises(IdempotencyConflict, match=key):
                chat.clear(reason="other", key=key)
            with pytest.raises(IdempotencyConflict, match=key):
                chat.responses.record("r2", key=key)
        with pytest.raises(IdempotencyConflict):
            chat.retract(2, reason="another", key="retract")
    assert not asked


def test_a_repeated_record_is_the_first(chat: Any, contract_db: Any) -> None:
    seen = chat.model_input()
    named: dict[str, Any] = {"receipt": seen.receipt, "model": "m", "usage": {"n": 1}, "key": "k"}
    first = chat.responses.record("r", **named)
    with Untouched(contract_db):
        again = chat.responses.record("r", **(named | {"receipt": seen.receipt.as_json()}))
    assert (again.deduplicated, again.last_version) == (True, first.last_version)


# --- what is refused ---

WRONG_AT: list[Any] = [7, -1, True, 1.0, "3", datetime(2026, 1, 1), 2**63]


@pytest.mark.parametrize("at", WRONG_AT, ids=repr)
def test_what_is_no_version_and_no_moment_is_refused(chat: Any, at: Any) -> None:
    for read in (chat.transcript, chat.originals, chat.shown):
        with pytest.raises(InvalidItem, match=r"^at: "):
            read(at=at)


@pytest.mark.parametrize("time", [None, 3, "2026-01-01", datetime(2026, 1, 1)])
def test_a_version_at_no_moment_is_refused(chat: Any, time: Any) -> None:
    with pytest.raises(InvalidItem, match="aware datetime"):
        chat.version_at(time)


def _compact(compactor: Any = told, **named: Any) -> Any:
    return lambda chat: chat.compact(compactor, **named)


REFUSED: dict[str, tuple[Any, str]] = {
    "limit below zero": (lambda chat: chat.transcript(limit=-1), "limit"),
    "limit of a float": (lambda chat: chat.transcript(limit=1.0), "limit"),
    "tokens below zero": (lambda chat: chat.transcript(max_tokens=-1), "max_tokens"),
    "model input with a bad limit": (lambda chat: chat.model_input(limit="3"), "limit"),
    "no such server state": (lambda chat: chat.model_input(server_state="on"), "server_state"),
    "last below zero": (lambda chat: chat.retract(-1), "last"),
    "last of text": (lambda chat: chat.retract("1"), "last"),
    "neither last nor versions": (lambda chat: chat.retract(), "last"),
    "both last and versions": (lambda chat: chat.retract(1, versions=[(1, 1)]), "last"),
    "a range outside": (lambda chat: chat.retract(versions=[(1, 1), (5, 99)]), r"versions\[1\]"),
    "a range from zero": (lambda chat: chat.retract(versions=[(0, 1)]), r"versions\[0\]"),
    "a range backwards": (lambda chat: chat.retract(versions=[(3, 1)]), r"versions\[0\]"),
    "a range across a summary": (lambda chat: chat.retract(versions=[(2, 5)]), r"versions\[0\]"),
    "a range over a summary's version": (lambda chat: chat.retract(versions=[(6, 7)]), r"versions\[0\]"),
    "no ranges": (lambda chat: chat.retract(versions=3), "versions"),
    "a range of one": (lambda chat: chat.retract(versions=[(3,)]), r"versions\[0\]"),
    "covers and keep_last": (_compact(covers=(1, 2), keep_last=1), "keep_last"),
    "covers outside": (_compact(covers=(1, 99)), "covers"),
    "covers backwards": (_compact(covers=(3, 1)), "covers"),
    "covers of text": (_compact(covers="12"), "covers"),
    "keep_last below zero": (_compact(keep_last=-1), "keep_last"),
    "no such basis": (_compact(basis="all"), "basis"),
    "no compactor": (_compact(compactor=None), "compactor"),
    "no policy": (_compact(when=7), "when"),
    "a compactor that gives text": (_compact(compactor=lambda items: "short"), "compactor"),
    "a compactor that gives a dict": (_compact(compactor=lambda items: {"role": "user"}), "compactor"),
    "a compactor that gives nothing": (_compact(compactor=lambda items: None), "compactor"),
    "a compactor that gives an empty list": (_compact(compactor=lambda items: []), "compactor"),
    "a compactor that gives no JSON": (_compact(compactor=lambda items: [1, {"a": object()}]), r"compactor\[1\]\.a"),
    "receipt of text": (lambda chat: chat.responses.record("r", receipt="r"), "receipt"),
    "receipt with a version of text": (
        lambda chat: chat.responses.record("r", receipt={"stream": "a", "version": "1", "options": {}, "sha256": "0"}),
        "receipt",
    ),
    "receipt with options of a list": (
        lambda chat: chat.responses.record("r", receipt={"stream": "a", "version": 1, "options": [], "sha256": "0"}),
        "receipt",
    ),
    "a response nobody recorded": (lambda chat: chat.responses.seen("r"), "response_id"),
    "a response without receipt": (lambda chat: chat.responses.seen("bare"), "response_id"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_by_name_and_nothing_is_written(chat: Any, contract_db: Any, name: str) -> None:
    chat.compact(told, keep_last=2)
    chat.responses.record("bare")
    call, path = REFUSED[name]
    with Untouched(contract_db), pytest.raises(InvalidItem, match=f"^{path}: "):
        call(chat)


def test_a_receipt_that_does_not_fit_the_catalogue_is_refused(chat: Any, contract_db: Any) -> None:
    receipt = chat.model_input().receipt.as_json()
    for wrong in ({"sha256": "no digest"}, {"stream": ""}, {"version": -1}):
        with Untouched(contract_db), pytest.raises(InvalidEvent):
            chat.responses.record("r", receipt=receipt | wrong)
    for wrong_output in ((5, 3), (0, 3), ("a", "b")):
        with Untouched(contract_db), pytest.raises(InvalidEvent):
            chat.responses.record("r", receipt=receipt, output=wrong_output)


def test_a_compactor_that_fails_changes_nothing(chat: Any, contract_db: Any) -> None:
    def fails(items: list[Any]) -> list[Any]:
        raise OSError("the model is away")

    with Untouched(contract_db), pytest.raises(OSError, match="the model is away"):
        chat.compact(fails)
    assert chat.compact(told).covers == (1, 6)


@pytest.mark.parametrize("change", ["clear", "pop", "retract", "compact"])
def test_a_change_while_a_summary_is_made_is_not_undone(
    any_store: Any, driver: Any, chat: Any, contract_db: Any, change: str
) -> None:
    with EventStore.open(driver.url, tenant=any_store.tenant) as beside:  # the async one's loop waits for the compactor
        other = beside.conversation("a")
        changes: dict[str, Any] = {
            "clear": other.clear,
            "pop": other.pop,
            "retract": lambda: other.retract(versions=[(2, 2)]),
            "compact": lambda: other.compact(told, covers=(1, 2)),
        }

        def slow(items: list[Any]) -> list[Any]:
            other.append(["meanwhile"])
            changes[change]()
            return [f"{len(items)} items"]

        with pytest.raises(CompactionConflict, match="nothing was written"):
            chat.compact(slow, keep_last=1)
    left = {"clear": [], "pop": [1, 2, 3, 4, 5, 6], "retract": [1, 3, 4, 5, 6, "meanwhile"]}
    assert chat.transcript() == left.get(change, [summary(1, 2), 3, 4, 5, 6, "meanwhile"])


# --- transactions ---


class Failed(Exception):
    """What a caller's own code raises."""


def test_changes_in_a_transaction_commit_together_or_leave_nothing(any_store: Any, chat: Any) -> None:
    with contextlib.suppress(Failed), any_store.transaction() as tx:
        mine = tx.conversation("a")
        assert mine.pop(key="k") == 6
        mine.append([7])
        mine.compact(told, keep_last=1)
        assert mine.transcript() == [summary(1, 2, 3, 4, 5), 7]
        assert chat.transcript() == [1, 2, 3, 4, 5, 6]  # nobody else sees it
        mine.clear()
        raise Failed
    assert chat.transcript() == [1, 2, 3, 4, 5, 6]
    assert chat.head() == 6
    with any_store.transaction() as tx:
        mine = tx.conversation("a")
        mine.pop(key="k")
        mine.compact(told, keep_last=1)
        with contextlib.suppress(Failed), tx.transaction() as inner:
            inner.conversation("a").clear()
            raise Failed
    assert chat.transcript() == [summary(1, 2, 3, 4), 5]
    assert any_store.verify().ok


def test_using_the_callers_connection(any_store: Any, driver: Any, chat: Any) -> None:
    with driver.connect() as conn:
        mine = any_store.using(conn).conversation("a")
        assert mine.pop() == 6
        conn.rollback()
        assert mine.pop() == 6
        assert mine.clear().last_version == 8
        assert chat.transcript() == [1, 2, 3, 4, 5, 6]
        conn.commit()
    assert chat.transcript() == []


@pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
def test_other_isolation_levels_read_and_change_or_fail_cleanly(
    any_store: Any, driver: Any, chat: Any, level: psycopg.IsolationLevel
) -> None:
    with driver.connect() as conn:
        _set_isolation(driver, conn, level)
        mine = any_store.using(conn).conversation("a")
        assert mine.transcript() == [1, 2, 3, 4, 5, 6]
        assert mine.pop() == 6
        conn.commit()
        assert mine.transcript(limit=1) == [5]  # its snapshot
        chat.append([8])
        assert mine.transcript(limit=1) == [5]
        with pytest.raises(psycopg.errors.SerializationFailure):
            mine.pop()
        conn.rollback()
        assert mine.pop() == 8
    assert chat.transcript() == [1, 2, 3, 4, 5]


def _set_isolation(driver: Any, conn: Any, level: psycopg.IsolationLevel) -> None:
    if hasattr(driver, "run"):
        driver.run(conn._wrapped.set_isolation_level(level))
    else:
        conn.isolation_level = level


# --- walls ---


def test_the_same_names_in_two_tenants_never_meet(any_store: Any, chat: Any) -> None:
    rival = any_store.for_tenant(any_store.tenant + "-rival").conversation("a", context="ctx")
    assert rival.transcript() == []
    rival.append(["r1", "r2"])
    assert rival.pop(key="k") == "r2"
    assert chat.pop(key="k") == 6
    rival.clear()
    rival.responses.record("r")
    assert chat.transcript() == [1, 2, 3, 4, 5]
    with pytest.raises(InvalidItem, match="no such response"):
        chat.responses.seen("r")
