"""Handoffs where two act at once: one acknowledgement, one end, no decision on what has moved."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from stepping import Actor, together, until_waits

from eventstore import Event, EventStore
from eventstore.errors import HandoffRefused, InvalidItem

ACCEPTOR = Path(__file__).parent / "acceptor.py"
GIVEN = {"goal": "g", "success": "s", "agent": "a"}


def begin(store: EventStore, name: str = "c") -> Any:
    chat = store.conversation(name, context="ctx")
    chat.append([{"role": "user", "content": "help"}])
    chat.append_events(
        [
            Event(type="task.opened", data={"task_id": "t1", "goal": "g"}, subject="t1"),
            Event(type="artifact.published", data={"name": "n", "uri": "u", "version": 1}, subject="u"),
        ]
    )
    chat.facts.constrain("official sources only")
    return chat


def offer(chat: Any, handoff_id: str, **fields: Any) -> Any:
    env = chat.handoffs.draft(**(GIVEN | {"to": "b", "handoff_id": handoff_id} | fields))
    chat.handoffs.offer(env)
    return env


def process(url: str, *args: str) -> subprocess.Popen[str]:
    started = subprocess.Popen(
        [sys.executable, str(ACCEPTOR), url, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    return started


def test_two_processes_that_accept_at_once_get_one_acknowledgement(store: EventStore, url: str) -> None:
    """H1."""
    chat = begin(store)
    ids = [f"h{n}" for n in range(20)]
    envelopes = [chat.handoffs.draft(**GIVEN, to="b", handoff_id=i, context_version=100 + n) for n, i in enumerate(ids)]
    for env in envelopes:
        chat.handoffs.offer(env)
    running = [process(url, "c", "b", *ids) for _ in range(2)]
    for each in running:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    told = [[json.loads(line) for line in each.communicate(timeout=60)[0].splitlines()] for each in running]
    assert [each.returncode for each in running] == [0, 0]
    for one, other in zip(*told, strict=True):
        assert one["ack_id"] == other["ack_id"]
        assert one["version"] == other["version"]
        assert sorted([one["deduplicated"], other["deduplicated"]]) == [False, True]
    accepted = Counter(e.data["handoff_id"] for e in chat.events(types=["handoff.accepted"]))
    assert accepted == Counter(ids)


def test_a_receiver_killed_before_its_commit_has_accepted_nothing(store: EventStore, url: str) -> None:
    chat = begin(store)
    offer(chat, "h1")
    dying = process(url, "c", "b", "h1")
    dying.communicate("die\n", timeout=60)
    assert dying.returncode == -signal.SIGKILL
    assert [each.status for each in chat.handoffs.list()] == ["offered"]
    ack = chat.handoffs.accept("h1", by="b")
    assert not ack.deduplicated
    assert chat.handoffs.accept("h1", by="b").ack_id == ack.ack_id
    assert store.verify().ok


def test_the_second_waits_for_the_first_and_is_told_its_acknowledgement(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor
) -> None:
    chat = begin(store)
    offer(chat, "h1")
    first = a.begins(lambda: a.store.conversation("c").handoffs.accept("h1", by="b")).result(20)
    second = b.begins(lambda: b.store.conversation("c").handoffs.accept("h1", by="b"))
    until_waits(db, b, for_=a)
    a.commit()
    told = second.result(20)
    b.commit()
    assert (told.ack_id, told.deduplicated) == (first.ack_id, True)


def test_when_the_first_rolls_back_the_second_accepts(
    store: EventStore, db: psycopg.Connection, a: Actor, b: Actor
) -> None:
    chat = begin(store)
    offer(chat, "h1")
    first = a.begins(lambda: a.store.conversation("c").handoffs.accept("h1", by="b")).result(20)
    second = b.begins(lambda: b.store.conversation("c").handoffs.accept("h1", by="b"))
    until_waits(db, b, for_=a)
    a.rollback()
    told = second.result(20)
    b.commit()
    assert not told.deduplicated
    assert told.ack_id != first.ack_id


CHANGES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a decision is revoked": ("decisions", lambda chat: chat.facts.revoke(decision(chat), "wrong")),
    "it is rejected": ("handoff_id", lambda chat: chat.handoffs.reject("h1", "busy")),
    "it is failed": ("handoff_id", lambda chat: chat.handoffs.fail("h1", "no acknowledgement")),
    "a newer one is accepted": ("context_version", lambda chat: chat.handoffs.accept("h2", by="b")),
    "all is rolled back": ("handoff_id", lambda chat: chat.handoffs.roll_back()),
}


def decision(chat: Any) -> str:
    return str(next(fact.fact_id for fact in chat.facts.list() if fact.kind == "decision"))


@pytest.mark.parametrize("what", [*CHANGES])
def test_what_moves_between_the_look_and_the_append_is_seen(
    what: str, store: EventStore, db: psycopg.Connection, a: Actor, b: Actor
) -> None:
    """The acceptance was decided on before; it waits for the other's commit, and is decided anew."""
    field, change = CHANGES[what]
    chat = begin(store)
    chat.facts.confirm("decided", [1])
    offer(chat, "h1")
    offer(chat, "h2")
    a.begins(lambda: change(a.store.conversation("c"))).result(20)
    accepting = b.begins(lambda: b.store.conversation("c").handoffs.accept("h1", by="b"))
    until_waits(db, b, for_=a)
    a.commit()
    with pytest.raises(HandoffRefused) as refused:
        accepting.result(20)
    assert refused.value.field == field
    b.commit()
    assert all(each.handoff_id != "h1" for each in chat.handoffs.list() if each.accepted)
    assert store.verify().ok


def test_an_offer_waits_for_a_revocation_too(store: EventStore, db: psycopg.Connection, a: Actor, b: Actor) -> None:
    chat = begin(store)
    chat.facts.confirm("decided", [1])
    env = chat.handoffs.draft(**GIVEN, to="b")
    a.begins(lambda: CHANGES["a decision is revoked"][1](a.store.conversation("c"))).result(20)
    offering = b.begins(lambda: b.store.conversation("c").handoffs.offer(env))
    until_waits(db, b, for_=a)
    a.commit()
    with pytest.raises(HandoffRefused, match="decisions"):
        offering.result(20)
    assert chat.handoffs.list() == []


def test_a_handoff_has_one_end(store: EventStore) -> None:
    chat = begin(store)
    for number in range(8):
        handoff_id = f"h{number}"
        offer(chat, handoff_id)
        chat.handoffs.accept(handoff_id, by="b")
        ends = together(
            [
                lambda h=handoff_id: chat.handoffs.commit(h),
                lambda h=handoff_id: chat.handoffs.fail(h, "the effects failed"),
                lambda h=handoff_id: chat.handoffs.commit(h),
                lambda: chat.handoffs.roll_back(),
            ]
        )
        won = [each for each in ends[:3] if not isinstance(each, BaseException)]
        assert len(won) == 1
        assert all(isinstance(each, HandoffRefused) for each in ends[:3] if each not in won)
    counted = Counter(e.data["handoff_id"] for e in chat.events(types=["handoff.committed", "handoff.failed"]))
    assert set(counted.values()) == {1}


def test_two_streams_that_offer_one_id_at_once_are_told_apart(store: EventStore) -> None:
    one = begin(store)
    other = store.conversation("d", context="ctx")
    other.append([1])
    for number in range(8):
        envelopes = [
            chat.handoffs.draft(**GIVEN, to="b", task_id="t1", handoff_id=f"h{number}") for chat in (one, other)
        ]
        results = together(
            [
                lambda e=envelopes[0]: one.handoffs.offer(e, True),
                lambda e=envelopes[1]: other.handoffs.offer(e, True),
            ]
        )
        refused = [each for each in results if isinstance(each, HandoffRefused)]
        assert len(refused) == 1
        assert refused[0].field == "handoff_id"


def test_a_fact_is_ended_once(store: EventStore) -> None:
    chat = begin(store)
    for _ in range(8):
        question = chat.facts.ask("q?")
        told = together([lambda n=n, q=question: chat.facts.answer(q, f"answer {n}") for n in range(4)])
        assert Counter(type(each) for each in told)[InvalidItem] == 3


def test_a_busy_conversation_does_not_starve_a_handoff(store: EventStore, url: str) -> None:
    """Items that come meanwhile change no decision, so nothing is decided twice for them."""
    chat = begin(store)
    stop = threading.Event()

    def write() -> None:
        with EventStore.open(url) as mine:
            busy = mine.conversation("c")
            while not stop.is_set():
                busy.append([{"n": 1}, {"n": 2}])

    writers = [threading.Thread(target=write) for _ in range(3)]
    for each in writers:
        each.start()
    try:
        for number in range(10):
            offer(chat, f"h{number}")
            assert chat.handoffs.accept(f"h{number}", by="b").ack_id
            chat.handoffs.commit(f"h{number}")
    finally:
        stop.set()
        for each in writers:
            each.join()
    assert len(chat.handoffs.list()) == 10
    assert store.verify().ok
