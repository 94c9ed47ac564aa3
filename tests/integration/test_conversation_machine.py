"""Random changes of a growing family of branches against the naive fold of each one's events."""

from __future__ import annotations

import random
import sys
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest

from eventstore import Event, EventStore
from eventstore.conversation import control
from eventstore.errors import InvalidItem
from projections.transcript import Ranges

sys.path.insert(0, str(Path(__file__).parent.parent / "unit"))

import naive_transcript as naive  # the fold by the book, that the unit tests compare with too

EVERY = 2
SEEDS, STEPS = 8, 90
KINDS = ["item.appended", "item.appended", "item.appended", "x.note", "summary.appended"]


def item(kind: int) -> Any:
    """An item; some are calls and their results, which no compaction may part."""
    call = f"call_{kind % 3}"
    shapes: list[Any] = [
        {"role": "user", "content": f"u{kind}"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"a{kind}"}]},
        {"type": "function_call", "call_id": call, "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": call, "output": "ok"},
        {"type": "reasoning", "id": f"rs_{kind}", "summary": []},
        [2**80, "\ud800"],
    ]
    return shapes[kind % len(shapes)]


class Family:
    """A family of branches that grows by random changes."""

    def __init__(self, store: EventStore, r: random.Random) -> None:
        self.scope = store.for_tenant(f"family-{uuid.uuid4()}")
        self.r = r
        self.names = ["main"]
        self.scope.conversation("main", context="ctx").append(["first"])
        self.changed = "main"

    def step(self) -> None:
        """Change one branch."""
        ways = [self.append] * 6 + [self.retract_last] * 2 + [self.retract_versions] * 3 + [self.pop] * 2
        ways += [self.compact] * 4 + [self.fork] * 2 + [self.clear]
        self.changed = self.r.choice(self.names)
        self.r.choice(ways)(self.scope.conversation(self.changed))

    # --- what may happen ---

    def append(self, chat: Any) -> None:
        kinds = [self.r.randrange(12) for _ in range(self.r.randint(1, 4))]
        chat.append_events([Event(type=self.r.choice(KINDS), data=item(kind)) for kind in kinds])

    def retract_last(self, chat: Any) -> None:
        last = self.r.randint(0, 4)
        before, head = chat.transcript(), chat.head()
        done = chat.retract(last)
        if not before or not last:
            assert done is None
            assert chat.head() == head
        else:
            assert chat.transcript() == before[: max(0, len(before) - last)]

    def retract_versions(self, chat: Any) -> None:
        head = chat.head()
        first = self.r.randint(1, head)
        try:
            chat.retract(versions=[(first, first + self.r.randint(0, 3))])
        except InvalidItem:
            assert chat.head() == head

    def pop(self, chat: Any) -> None:
        before = chat.transcript()
        assert chat.pop() == (before[-1] if before else None)
        assert chat.transcript() == before[:-1]

    def clear(self, chat: Any) -> None:
        chat.clear()
        assert chat.transcript() == []

    def compact(self, chat: Any) -> None:
        head, originals, meanwhile = chat.head(), chat.originals(), self.r.random() < 0.3
        sources: list[Any] = []

        def compactor(items: list[Any]) -> list[Any]:
            sources.append(items)
            if meanwhile:
                chat.append(["meanwhile"])
            return [{"role": "user", "content": f"summary {n} of {len(items)}"} for n in range(self.r.randint(1, 3))]

        wanted: dict[str, Any] = {"keep_last": self.r.choice([None, 0, 1, 3])}
        if self.r.random() < 0.4:
            first = self.r.randint(1, head)
            wanted = {"covers": (first, first + self.r.randint(0, 9))}
        wanted |= {"basis": self.r.choice(["originals", "summary"]), "merge": self.r.random() < 0.3}
        try:
            done = chat.compact(compactor, **wanted)
        except InvalidItem:
            assert chat.head() == head
            return
        assert chat.originals() == originals + ["meanwhile"] * bool(sources and meanwhile)
        if done is not None and wanted["basis"] == "originals":
            claimed = [c[5] for c in self.fold(chat, done.version).compactions() if c[0] == done.version]
            data = {event.version: event.data for event in chat.events()}
            assert [data[version] for version in claimed[0]] == sources[0]

    def fork(self, chat: Any) -> None:
        if len(self.names) < 6:
            self.changed = f"branch {len(self.names)}"
            chat.fork(self.changed, at=max(0, chat.head() - self.r.randrange(12)))
            self.names.append(self.changed)

    # --- what always holds ---

    def fold(self, chat: Any, at: int) -> naive.Transcript:
        return naive.fold((e.version, e.type, e.data) for e in chat.events(1, at))

    def check(self) -> None:
        """Every branch is the naive fold, at any version and at any moment."""
        for name in {self.changed, self.r.choice(self.names)}:
            chat = self.scope.conversation(name)
            events = list(chat.events())
            data = {event.version: event.data for event in events}
            moment = self.r.choice(events).recorded_at if events else None
            then = max((event.version for event in events if event.recorded_at == moment), default=0)
            for at in (len(events), self.r.randint(0, len(events)), then):
                folded = self.fold(chat, at)
                shown, kept = folded.transcript(), folded.originals()
                assert [entry.version for entry in chat.shown(at=at).entries] == shown, (name, at)
                assert chat.transcript(at=at) == [data[v] for v in shown]
                assert chat.originals(at=at) == [data[v] for v in kept]
                limit = min(self.r.randint(0, 4), len(shown))
                assert chat.transcript(at=at, limit=limit) == [data[v] for v in shown[len(shown) - limit :]]
            if moment is not None:
                assert chat.version_at(moment) == then
                assert chat.transcript(at=moment) == chat.transcript(at=then)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints after every second control event."""
    monkeypatch.setattr(control, "CHECKPOINT_EVERY", EVERY)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_changes_of_a_family_equal_the_naive_fold(store: EventStore, db: psycopg.Connection, seed: int) -> None:
    family = Family(store, random.Random(seed))
    for _ in range(STEPS):
        family.step()
        family.check()
    report = family.scope.verify()
    assert report.ok, report.first_bad
    query = "SELECT s.fork_at, c.version, c.ranges FROM checkpoints c JOIN streams s USING (stream_id)"
    saved = db.execute(query).fetchall()
    assert any(fork is not None and version > fork for fork, version, _ in saved)  # they were crossed, on branches too
    for _, version, ranges in saved:
        assert Ranges.loads(ranges).control == version


@pytest.mark.usefixtures("often")
def test_a_checkpoint_is_what_a_reader_starts_from(store: EventStore, db: psycopg.Connection) -> None:
    """A wrong one shows: in each read from it on, and in none before it, on no branch from before it."""
    chat = store.conversation("main")
    chat.append(list(range(20)))
    for _ in range(8):
        chat.pop()
    versions = [row[0] for row in db.execute("SELECT version FROM checkpoints ORDER BY version").fetchall()]
    assert versions == [22, 24, 26]
    before, after = chat.fork("before", at=25), chat.fork("after", at=26)
    good = chat.transcript(at=25)
    forged = Ranges(kept=((1, 3), (27, sys.maxsize)), control=26).dumps()
    db.execute("UPDATE checkpoints SET ranges = %s WHERE version = 26", [psycopg.types.json.Json(forged)])
    assert chat.transcript(at=25) == good == before.transcript()
    assert chat.transcript(at=26) == [0, 1, 2] == after.transcript()
    assert chat.transcript()[:3] == [0, 1, 2]
    assert chat.originals(at=28) == [0, 1, 2]
    before.pop()
    before.pop()
    assert before.transcript() == good[:-2]
