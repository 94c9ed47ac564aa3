"""The read models against what is counted by hand from the events, on conversations made at random."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import psycopg
import pytest

from eventstore import Event, EventStore, errors
from eventstore.testing import check_projection
from projections.models import SHIPPED
from projections.models.conversations import title_of
from projections.transcript import EMPTY

MODELS = ["gpt-a", "gpt-b", None]
USAGE: list[Any] = [
    None,
    {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12},
    {"prompt_tokens": 3, "completion_tokens": 4},
    {"input_tokens": 2**80, "output_tokens": "many", "note": "a\x00b\ud800"},
]


def item(pick: random.Random) -> Any:
    call = f"c{pick.randrange(4)}"
    return pick.choice(
        [
            {"role": "user", "content": f"question {pick.random()}"},
            {"role": "user", "content": [{"type": "input_text", "text": "\x00 " + "word " * 40}]},
            {"role": "assistant", "content": "answer"},
            {"type": "function_call", "call_id": call, "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": call, "output": "x"},
            {"role": "assistant", "tool_calls": [{"id": call}, {"id": "\ud800\x00"}]},
            {"role": "tool", "tool_call_id": call, "content": "y"},
            "no mapping",
        ]
    )


def converse(store: EventStore, pick: random.Random, steps: int) -> None:
    """Do whatever can be done to conversations."""
    names = ["a"]
    store.conversation("a", context="ctx", tags={"of": "a"}).append([item(pick)])
    for n in range(steps):
        chat = store.conversation(pick.choice(names))
        do = pick.choices(
            ["append", "fork", "retract", "pop", "clear", "compact", "respond", "tag"], [9, 1, 2, 1, 1, 3, 2, 1]
        )[0]
        try:
            if do == "append":
                chat.append([item(pick) for _ in range(pick.randint(1, 4))], agent=pick.choice([None, "x", "y"]))
            elif do == "fork":
                names.append(f"{chat.name}-{n}")
                chat.fork(names[-1], at=pick.randint(0, chat.head()))
            elif do == "retract":
                first = pick.randint(1, chat.head())
                chat.retract(versions=[(first, min(chat.head(), first + pick.randrange(3)))])
            elif do == "pop":
                chat.pop()
            elif do == "clear":
                chat.clear()
            elif do == "compact":
                options = {"basis": pick.choice(["originals", "summary"]), "merge": pick.random() < 0.3}
                chat.compact(lambda _: [{"role": "assistant", "content": "sum"}], **options)
            elif do == "respond":
                chat.responses.record(f"r{n}", model=pick.choice(MODELS), usage=pick.choice(USAGE))
            else:
                chat.append_events([Event(type="stream.tagged", data={"tags": {"n": str(n)}})])
        except (errors.InvalidItem, errors.CompactionConflict):
            pass
    store.conversation("done").append_events([Event(type="stream.closed", data={})])


@pytest.fixture(params=range(4))
def talked(request: pytest.FixtureRequest, store: EventStore) -> EventStore:
    converse(store, random.Random(request.param), 80)
    store.projections.runner(SHIPPED, limit=7).run(until_caught_up=True)
    return store


def rows(db: psycopg.Connection, view: str) -> dict[Any, dict[str, Any]]:
    cursor = db.execute(f"SELECT * FROM convstore_views.{view}")  # type: ignore[arg-type]
    names = [column.name for column in cursor.description or ()]
    found = [dict(zip(names, row, strict=True)) for row in cursor]
    return {
        (row["stream"], row["version"]) if view in ("responses", "compactions") else row["stream"]: row for row in found
    }


def test_conversations_are_what_is_counted_by_hand(talked: EventStore, db: psycopg.Connection) -> None:
    shown = rows(db, "conversations")
    infos = {info.name: info for info in talked.conversations().streams}
    assert shown.keys() == infos.keys()
    for name, row in shown.items():
        own = [event for event in talked.conversation(name).events() if event.stream == name]
        assert row["counts"] == Counter(event.type for event in own)
        assert (row["events"], row["version"], row["position"]) == (len(own), own[-1].version, own[-1].position)
        assert (row["first_at"], row["last_at"]) == (own[0].recorded_at, own[-1].recorded_at)
        assert row["closed"] == infos[name].closed
        titles = [(event.version, title_of(event.data)) for event in own if event.type == "item.appended"]
        first = next(((version, title) for version, title in titles if title), (None, None))
        assert (row["title_version"], row["title"]) == first
        tagged = [event.data["tags"] for event in own if event.type == "stream.tagged"]
        assert row["tags"] == {**infos[name].tags, **(tagged[-1] if tagged else {})}
        agents = [event.agent for event in own if event.agent]
        assert row["last_agent"] == (agents[-1] if agents else None)
        left: Counter[Any] = Counter()
        for event in own:
            data = event.data if isinstance(event.data, dict) else {}
            if data.get("type") == "function_call":
                left["f", data["call_id"]] += 1
            if data.get("type") == "function_call_output":
                left["f", data["call_id"]] -= 1
            for call in data.get("tool_calls", []):
                left["t", call["id"]] += 1
            if data.get("role") == "tool":
                left["t", data["tool_call_id"]] -= 1
        assert row["open_calls"] == sum(n > 0 for n in left.values())


def test_branches_know_their_parent_and_depth(talked: EventStore, db: psycopg.Connection) -> None:
    shown = rows(db, "branches")
    infos = {info.name: info for info in talked.conversations().streams}
    forks = {
        name: event.data
        for name in infos
        for event in talked.conversation(name).events()
        if event.type == "stream.forked" and event.stream == name
    }
    assert shown.keys() == forks.keys()
    assert shown, "no branch was made: choose another seed"
    for name, row in shown.items():
        above, depth = name, 0
        while above in forks:
            above, depth = forks[above]["parent"], depth + 1
        assert (row["parent"], row["fork_at"]) == (forks[name]["parent"], forks[name]["at"])
        assert (row["depth"], row["root"]) == (depth, above)
        assert row["owner"] == (infos[name].parent or row["parent"])


def test_responses_and_usage_are_what_was_recorded(talked: EventStore, db: psycopg.Connection) -> None:
    recorded = list(talked.subscribe(types=["response.recorded"], idle=0))
    shown = rows(db, "responses")
    assert shown.keys() == {(event.stream, event.version) for event in recorded}
    for event in recorded:
        row = shown[event.stream, event.version]
        assert (row["response_id"], row["model"]) == (event.data["response_id"], event.data.get("model"))
    usage = {
        row[0]: row[1:]
        for row in db.execute("SELECT model, responses, input_tokens, total_tokens FROM convstore_views.usage")
    }
    for model in MODELS:
        mine = [event.data.get("usage") for event in recorded if event.data.get("model") == model]
        given = [5 if u == USAGE[1] else 3 for u in mine if u in USAGE[1:3]]
        total = [12 if u == USAGE[1] else 7 for u in mine if u in USAGE[1:3]]
        if mine:
            assert usage[model] == (len(mine), sum(given) or None, sum(total) or None)


def test_compactions_are_stale_and_shown_as_the_transcripts_fold_says(
    talked: EventStore, db: psycopg.Connection
) -> None:
    shown = rows(db, "compactions")
    made = list(talked.subscribe(types=["history.compacted"], idle=0))
    assert shown.keys() == {(event.stream, event.version) for event in made}
    assert shown, "nothing was compacted: choose another seed"
    for name in {event.stream for event in made}:
        ranges = EMPTY.fold((e.version, e.type, e.data) for e in talked.conversation(name).events())
        standing = {compaction.version: compaction for compaction in ranges.compactions}
        for event in (event for event in made if event.stream == name):
            row, data = shown[name, event.version], event.data
            assert (row["covers_from"], row["covers_to"]) == tuple(data["covers"])
            assert (row["bytes_before"], row["bytes_after"], row["depth"]) == (
                data["bytes_before"],
                data["bytes_after"],
                data["depth"],
            )
            assert row["shown"] == (event.version in standing)
            if row["shown"]:
                assert row["stale"] == standing[event.version].stale


def test_each_gives_the_same_rows_however_it_is_cut_and_whatever_comes_late(talked: EventStore) -> None:
    for projection in SHIPPED:
        check_projection(projection, talked, rounds=6)
