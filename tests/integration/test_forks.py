"""The contract of a fork, kept by every way to use the product: what a branch shares, owns, and how it is read."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from eventstore import Event


def message(item_id: str, text: str = "…") -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "id": item_id, "content": text}


def note(data: Any, **fields: Any) -> Event:
    return Event(type="x.note", data=data, **fields)


def owners(chat: Any, *args: Any, **kwargs: Any) -> list[tuple[int, str]]:
    return [(e.version, e.stream) for e in chat.events(*args, **kwargs)]


def owned(*parts: tuple[str, int, int]) -> list[tuple[int, str]]:
    return [(version, name) for name, first, last in parts for version in range(first, last + 1)]


@pytest.fixture
def root(any_store: Any) -> Any:
    """1 item m1 | 2 note, 3 item m2, 4 note, 5 summary s1 | 6 item m1 again, 7 item without id | 8 note."""
    chat = any_store.conversation("root", context="ctx")
    chat.append([message("m1")])
    item, summary = (Event(type=kind, data=message(i)) for kind, i in (("item.appended", "m2"), ("x.note", "s1")))
    summary = Event(type="summary.appended", data=message("s1"), subject="s1")
    chat.append_events([note(1, subject="m3"), item, note(2), summary])
    chat.append([message("m1", "again"), {"role": "user", "content": "no id"}])
    chat.append_events([note(3)])
    return chat


POINTS: list[tuple[dict[str, Any], int]] = [
    ({}, 8),
    *(({"at": n}, n) for n in range(9)),
    ({"after_items": 0}, 0),
    ({"after_items": 1}, 1),
    ({"after_items": 2}, 3),  # the note before it is shared, the one after it is not
    ({"after_items": 3}, 6),
    ({"after_items": 4}, 7),
    ({"at_item": "m1"}, 1),  # its first occurrence
    ({"at_item": "m2"}, 3),
    ({"at_item": "s1"}, 5),
]


@pytest.mark.parametrize(("point", "at"), POINTS, ids=repr)
def test_a_branch_begins_where_it_was_asked_to(root: Any, any_store: Any, point: dict[str, Any], at: int) -> None:
    before = list(root.events())
    branch = root.fork("branch", **point)
    assert (branch.name, branch.tenant, branch.head()) == ("branch", root.tenant, at + 1)
    *shared, first = branch.events()
    assert shared == before[:at]
    assert (first.version, first.type, first.stream, first.context) == (at + 1, "stream.forked", "branch", "ctx")
    assert first.data == {"parent": "root", "at": at}
    assert first.position > before[-1].position
    assert list(root.events()) == before
    report = any_store.verify()
    assert (report.ok, report.checked, report.streams) == (True, 9, 2)


def test_a_point_can_be_any_events_id(root: Any) -> None:
    for event in list(root.events()):
        for number, given in enumerate([event.event_id, str(event.event_id), event.event_id.hex.upper()]):
            branch = root.fork(f"by {event.version}.{number}", at_item=given)
            assert branch.head() == event.version + 1
    twig = root.fork("x", at=4).fork("y", at_item=list(root.fork("x", at=4).events())[-1].event_id)
    assert twig.head() == 6  # by the id of stream.forked itself


def test_an_id_that_is_an_items_and_an_events_is_the_events(any_store: Any) -> None:
    chat = any_store.conversation("a")
    known = uuid.uuid4()
    chat.append([message(str(known)), message("other")], ids=[uuid.uuid4(), known])
    assert chat.fork("b", at_item=known).head() == 3
    assert chat.fork("c", at_item=str(known)).head() == 3


@pytest.mark.parametrize("item_id", ["x" * 600, "nul \x00", "\ud800", "日本", "sha256:abc", "'; --", "{}"])
def test_an_items_id_is_found_however_it_had_to_be_stored(any_store: Any, item_id: str) -> None:
    chat = any_store.conversation("a")
    chat.append(["before", message(item_id), "after"])
    assert chat.fork("b", at_item=item_id).head() == 3


def test_points_of_a_branch_count_through_its_parents(root: Any) -> None:
    branch = root.fork("branch", at=4)  # which has m1, m2 and two notes; 5 is its stream.forked
    branch.append([message("m2", "again"), message("own")])
    branch.append_events([note("n"), note("n")])
    branch.append([message("m1", "again")])
    heads = {n: branch.fork(f"after {n}", after_items=n).head() - 1 for n in range(6)}
    assert heads == {0: 0, 1: 1, 2: 3, 3: 6, 4: 7, 5: 10}
    assert branch.fork("at m2", at_item="m2").head() - 1 == 3
    assert branch.fork("at own", at_item="own").head() - 1 == 7
    parts = {n: [tuple(p) for p in any_branch.lineage()] for n, any_branch in enumerate([root, branch])}
    assert parts == {0: [("root", 1, 8)], 1: [("root", 1, 4), ("branch", 5, 10)]}


def test_an_id_that_a_branch_uses_again_is_found_at_its_first_event(any_store: Any) -> None:
    """A branch does not answer for its parent's ids, so one can come twice in its line."""
    known = uuid.uuid4()
    chat = any_store.conversation("a")
    chat.append([1, 2], ids=[uuid.uuid4(), known])
    branch = chat.fork("b")
    assert not branch.append(["own"], ids=[known]).deduplicated
    assert branch.fork("c", at_item=known).head() == 3
    assert any_store.verify().ok


def test_a_fork_of_a_fork_points_to_who_owns_the_version(root: Any, any_store: Any) -> None:
    one = root.fork("one", at=5)
    one.append(["one"])
    two = one.fork("two", at=3)  # which is root's
    (event,) = two.events(4)
    assert event.data == {"parent": "one", "at": 3, "owner": "root"}
    three = one.fork("three", at=6)  # after its stream.forked
    zero = one.fork("zero", at=0)
    assert [e.data for e in zero.events()] == [{"parent": "one", "at": 0}]
    infos = {s.name: (s.parent, s.fork_at, s.head, s.context) for s in any_store.conversations().streams}
    assert infos == {
        "root": (None, None, 8, "ctx"),
        "one": ("root", 5, 7, "ctx"),
        "two": ("root", 3, 4, "ctx"),
        "three": ("one", 6, 7, "ctx"),
        "zero": ("one", 0, 1, "ctx"),
    }
    assert [tuple(p) for p in three.lineage()] == [("root", 1, 5), ("one", 6, 6), ("three", 7, 7)]
    assert [tuple(p) for p in two.lineage()] == [("root", 1, 3), ("two", 4, 4)]
    assert [tuple(p) for p in zero.lineage()] == [("zero", 1, 1)]
    for member in (root, one, two, three, zero):
        assert [s.name for s in member.family()] == ["root", "two", "one", "zero", "three"]
    any_store.conversation("stranger", context="ctx").append([1])
    assert [s.name for s in any_store.conversation("stranger").family()] == ["stranger"]
    assert any_store.conversation("nobody").family() == any_store.conversation("nobody").lineage() == []
    assert any_store.verify().ok
    assert all(any_store.verify(s).ok for s in infos)


def test_later_appends_on_either_side_never_show_in_the_other(root: Any, any_store: Any) -> None:
    inside = root.fork("inside", at=3)  # of an append of four
    head = root.fork("head")
    for n in range(3):
        root.append([f"root {n}"], key=f"k{n}")
        inside.append([f"inside {n}", "…"], key=f"k{n}")
        head.append([f"head {n}"], expected=9 + n, key=f"k{n}")
        assert inside.append([f"inside {n}", "…"], key=f"k{n}").deduplicated
    assert [e.data for e in root.events(9)] == [f"root {n}" for n in range(3)]
    assert [e.data for e in inside.events(5)] == ["inside 0", "…", "inside 1", "…", "inside 2", "…"]
    assert [e.data for e in head.events(10)] == [f"head {n}" for n in range(3)]
    assert owners(root) == owned(("root", 1, 11))
    assert owners(inside) == owned(("root", 1, 3), ("inside", 4, 10))
    assert owners(head) == owned(("root", 1, 8), ("head", 9, 12))
    report = any_store.verify()
    assert (report.ok, report.checked) == (True, 11 + 7 + 4)
    assert any_store.verify("inside").checked == 10


def test_tags_agent_and_metadata_are_the_branchs_own(any_store: Any) -> None:
    chat = any_store.conversation("a", context="ctx", tags={"channel": "web"})
    chat.append([1])
    branch = chat.fork("b", tags={"try": "2"}, agent="planner", metadata={"why": "é\u2028"})
    chat.fork("c")
    assert {s.name: s.tags for s in any_store.conversations().streams} == {
        "a": {"channel": "web"},
        "b": {"try": "2"},
        "c": {},
    }
    assert [s.name for s in any_store.conversations(context="ctx", tags={"try": "2"}).streams] == ["b"]
    *_, event = branch.events()
    assert (event.agent, event.metadata, event.subject) == ("planner", {"why": "é\u2028"}, None)
    assert any_store.conversation("b", context="ctx").append([2]).last_version == 3


def test_a_closed_stream_can_be_forked_and_its_branch_goes_on(any_store: Any) -> None:
    chat = any_store.conversation("a")
    chat.append([1])
    chat.append_events([Event(type="stream.closed", data={})])
    for name, at in (("before", 1), ("after", 2)):
        branch = chat.fork(name, at=at)
        assert branch.append(["more"]).last_version == at + 2
    branch.append_events([Event(type="stream.closed", data={})])
    assert [s.closed for s in any_store.conversations().streams] == [True, True, False]  # a, after, before
    assert any_store.verify().ok
    assert any_store.verify("after").ok


def test_control_events_of_both_sides_are_told_apart(any_store: Any) -> None:
    clear = [Event(type="history.cleared", data={"reason": "x"})]
    chat = any_store.conversation("a")
    chat.append([1])
    chat.append_events(clear)
    chat.append([2])
    chat.append_events(clear)
    for at in range(5):
        branch = chat.fork(f"at {at}", at=at)
        branch.append([3])
        for inner in range(at + 3):
            branch.fork(f"at {at}, {inner}", at=inner)
        branch.append_events(clear)
        branch.fork(f"at {at}, end").fork(f"at {at}, end of end", at=at + 2)
    report = any_store.verify()
    assert report.ok, report.first_bad
    assert all(any_store.verify(s.name).ok for s in any_store.conversations().streams)


NAMES = [
    "'; DROP TABLE events; --",
    '"',
    "\\",
    "\x01\x1f\x7f\n",
    "日本🙂",
    "x" * 512,
    " ",
    "\u2028",
    "null",
    "🙂" * 512,
]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_that_a_stream_can_have(any_store: Any, name: str) -> None:
    chat = any_store.conversation(name)
    chat.append([1])
    branch = chat.fork(name[:511] + "2")
    twig = branch.fork("twig", at=1)
    assert [e.data for e in twig.events()][1:] == [{"parent": branch.name, "at": 1, "owner": name}]
    assert branch.append([2]).last_version == 3
    assert [s.name for s in twig.family()] == [name, *sorted([branch.name, "twig"], key=[branch.name, "twig"].index)]
    assert any_store.verify().ok
    assert any_store.verify("twig").ok


@pytest.fixture
def line(any_store: Any) -> Any:
    """Versions 1-700 by root, 701-1,400 by b1, 1,401-2,100 by b2, 2,101-2,800 by b3, where each could be longer."""
    chat = any_store.conversation("b0")
    for n in range(4):
        kinds = [Event(type=f"x.{'ab'[v % 2]}", data=v) for v in range(n * 700 + 1 + (n > 0), n * 700 + 731)]
        chat.append_events(kinds)
        if n < 3:
            chat = chat.fork(f"b{n + 1}", at=(n + 1) * 700)
    chat.append(["end"])
    return chat


LINE = owned(("b0", 1, 700), ("b1", 701, 1400), ("b2", 1401, 2100), ("b3", 2101, 2831))


def test_any_range_of_a_line_is_that_of_the_whole(line: Any) -> None:
    draw = random.Random(3)
    edges = [1, 2, 699, 700, 701, 702, 1399, 1400, 1401, 2099, 2100, 2101, 2102, 2830, 2831, 2832]
    assert owners(line) == LINE
    for _ in range(60):
        first, last = draw.choice(edges), draw.choice(edges)
        assert owners(line, first, last) == LINE[first - 1 : last], (first, last)
    for n in [1, 2, 730, 731, 732, 1431, 1432, 2830, 2831, 2832, 10**6, 2**63 - 1]:
        assert owners(line, -n) == LINE[-n:], n
    assert owners(line, -1_500, 2_000) == LINE[1_331:2_000]
    assert owners(line, 2_832) == owners(line, 900, 899) == []


def test_types_are_picked_through_a_line(line: Any) -> None:
    def versions(*args: Any, types: list[str]) -> list[int]:
        return [v for v, _ in owners(line, *args, types=types)]

    forks = [701, 1401, 2101]
    assert versions(types=["stream.forked"]) == forks
    assert versions(types=["x.b"]) == [v for v in range(1, 2831, 2) if v not in forks]
    assert versions(698, 705, types=["x.b", "stream.forked"]) == [699, 701, 703, 705]
    assert versions(-2_200, 1_403, types=["x.b"]) == [v for v in range(633, 1404, 2) if v not in forks]
    assert versions(types=["item.appended"]) == [2831]
    assert versions(types=[]) == []


def test_pages_cut_by_size_lose_nothing_at_a_fork_point(any_store: Any) -> None:
    draw = random.Random(5)
    chat, expected = any_store.conversation("b0"), []
    for n in range(4):
        heavy = [draw.randbytes(220_000).hex() for _ in range(4)]
        chat.append(heavy)
        expected += heavy
        chat = chat.fork(f"b{n + 1}")
        expected.append({"parent": f"b{n}", "at": len(expected)})
    assert [e.data for e in chat.events()] == expected
    assert [e.data for e in chat.events(4)] == expected[3:]
    assert [e.data for e in chat.events(-7)] == expected[-7:]
    assert any_store.verify(chat.name).checked == 20


def test_each_event_comes_once_in_the_feed_a_branch_after_its_parent(root: Any, any_store: Any) -> None:
    one = root.fork("one", at=4)
    two = one.fork("two", at=3)
    for chat in (two, root, one):
        chat.append([1, 2])
    page = any_store.feed()
    places = [(e.stream, e.version) for e in page.events]
    assert sorted(places) == sorted(
        [*(("root", v) for v in range(1, 11)), *(("one", v) for v in (5, 6, 7)), *(("two", v) for v in (4, 5, 6))]
    )
    assert places.index(("root", 4)) < places.index(("one", 5))
    assert places.index(("root", 3)) < places.index(("two", 4))
