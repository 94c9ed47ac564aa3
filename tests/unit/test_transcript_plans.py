"""What a retraction or a compaction takes, decided before anything is written, on any stream."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore.errors import CompactionConflict, InvalidItem
from eventstore.log.events import Entry
from projections.compaction import Plan, moved, plan
from projections.pairs import bonds
from projections.retraction import check_last, retract_last, retract_versions
from projections.transcript import EMPTY, Ranges
from tests.unit import naive_transcript as naive
from tests.unit.test_transcript import CLEARED, ITEM, OTHER, SUMMARY, compacted, retracted, stream, streams

REASONING = {"type": "reasoning", "id": "rs", "summary": []}


def call(name: str) -> tuple[str, Any]:
    return "item.appended", {"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"}


def result(name: str) -> tuple[str, Any]:
    return "item.appended", {"type": "function_call_output", "call_id": name, "output": ""}


def entries_of(events: list[naive.Recorded], ranges: Ranges) -> list[Entry]:
    """What a reader of the log gives to ``plan``."""
    pieces = ranges.transcript(len(events))
    found = [(piece.summary, version) for piece in pieces for version in naive.fetch(events, [piece])]
    return [Entry(version, events[version - 1][2], summary) for summary, version in found]


def planned(events: list[naive.Recorded], **options: Any) -> tuple[Ranges, Plan]:
    ranges = EMPTY.fold(events)
    return ranges, plan(ranges, len(events), entries_of(events, ranges), **options)


class TestTheLast:
    @settings(max_examples=500, deadline=None)
    @given(streams(nonsense=True), st.integers(0, 12), st.integers(0, 2))
    def test_exactly_they_leave(self, events: list[naive.Recorded], count: int, later: int) -> None:
        ranges, at = EMPTY.fold(events), len(events)
        marked = [(v, piece.summary) for piece in ranges.transcript(at) for v in naive.fetch(events, [piece])]
        taken = marked[len(marked) - min(count, len(marked)) :]
        found = retract_last(ranges, at, taken)
        assert bool(found) == bool(taken)
        assert all(1 <= first <= last <= at for first, last in found)
        named = retracted(*((version, version) for version, _ in taken))
        since = [(at + 1 + n, *ITEM) for n in range(later)]
        if taken:
            minimal = naive.fold([*events, *since, (at + later + 1, *named)])
            swept = [*events, *since, (at + later + 1, *retracted(*found))]
            after = EMPTY.fold(swept)
            assert naive.fetch(swept, after.transcript(len(swept))) == minimal.transcript()
            assert naive.fetch(swept, after.originals(len(swept))) == minimal.originals()
            assert [c.stale for c in after.compactions] == [c[4] for c in minimal.compactions()]

    def test_10000_pops_between_other_events_add_no_pieces(self) -> None:
        ranges, head = EMPTY, 20_000
        for version in range(19_999, 0, -2):  # each item is followed by an event that is never shown
            found = retract_last(ranges, head, [(version, False)])
            head += 1
            ranges = ranges.apply(head, *retracted(*found))
            assert len(ranges.kept) <= 2
        assert ranges.transcript(head) == []

    def test_a_pop_of_plain_items_names_them_and_nothing_else(self) -> None:
        ranges = EMPTY
        for head, version in [(3, 3), (4, 2), (5, 1)]:
            found = retract_last(ranges, head, [(version, False)])
            assert found == [(version, version)]
            ranges = ranges.apply(head + 1, *retracted(*found))

    def test_a_pop_spares_a_summary_whose_version_lies_behind_the_item(self) -> None:
        events = stream(*[ITEM] * 4, OTHER, SUMMARY, compacted(1, 2, 1), OTHER)
        assert retract_last(EMPTY.fold(events), 8, [(4, False)]) == [(4, 5), (7, 8)]
        assert retract_last(EMPTY.fold(events), 8, [(6, True), (3, False), (4, False)]) == [(3, 8)]

    def test_a_pop_takes_an_item_that_a_compaction_claims_as_its_summary(self) -> None:
        ranges = EMPTY.fold(stream(ITEM, ITEM, compacted(1, 1, 1)))
        assert retract_last(ranges, 3, [(2, False)]) == [(2, 3)]

    @pytest.mark.parametrize("value", [-1, None, 1.5, True])
    def test_a_wrong_number_is_refused(self, value: Any) -> None:
        with pytest.raises(InvalidItem, match=r"^last: .*number"):
            check_last(value)
        check_last(0)


class TestVersions:
    events = stream(*[ITEM] * 8, SUMMARY, SUMMARY, compacted(3, 6, 2), ITEM)
    ranges = EMPTY.fold(events)

    @pytest.mark.parametrize(
        "versions",
        [[(1, 2)], [(3, 6)], [(4, 5)], [(7, 8)], [(12, 12)], [(9, 9)], [(9, 10)], [(9, 11)], [(1, 1), (5, 5), (8, 8)]],
    )
    def test_ranges_outside_inside_and_of_the_summaries_themselves_are_taken(self, versions: Any) -> None:
        assert retract_versions(self.ranges, 12, versions) == versions

    def test_they_are_merged(self) -> None:
        assert retract_versions(self.ranges, 12, [[8, 8], (7, 7), (1, 2), (2, 2)]) == [(1, 2), (7, 8)]

    def test_what_is_gone_already_needs_no_event(self) -> None:
        ranges = self.ranges.apply(13, *retracted((7, 8), (9, 9)))
        assert retract_versions(ranges, 13, [(7, 7), (9, 9)]) == []
        assert retract_versions(ranges, 13, []) == []

    @pytest.mark.parametrize(
        ("versions", "path", "reason"),
        [
            ([(2, 3)], "versions[0]", r"\(2, 3\) lies across a summary: event 11 compacted \(3, 6\)"),
            ([(1, 1), (1, 7)], "versions[1]", "across a summary"),
            ([(8, 12)], "versions[0]", r"across a summary: 9 to 10 stand for \(3, 6\)"),
            ([(10, 12)], "versions[0]", "across a summary"),
            ([(8, 9)], "versions[0]", "across a summary"),
            ([(1, 12)], "versions[0]", "across a summary"),
            ([(0, 1)], "versions[0]", r"\(0, 1\) lies outside the stream, which has versions 1 to 12"),
            ([(12, 13)], "versions[0]", "outside the stream"),
            ([(2, 1)], "versions[0]", r"\(2, 1\) runs backwards; give \(1, 2\)"),
            ([(1, 1), 5], "versions[1]", r"5 should be \(from, to\)"),
            ([(1, True)], "versions[0]", r"should be \(from, to\)"),
            ([(1, 2, 3)], "versions[0]", r"should be \(from, to\)"),
            (5, "versions", "5 should be a list of ranges"),
        ],
    )
    def test_others_are_refused_by_name(self, versions: Any, path: str, reason: str) -> None:
        with pytest.raises(InvalidItem, match=reason) as caught:
            retract_versions(self.ranges, 12, versions)
        assert caught.value.path == path

    def test_nothing_can_be_retracted_of_a_stream_without_events(self) -> None:
        with pytest.raises(InvalidItem, match="which has no events"):
            retract_versions(EMPTY, 0, [(1, 1)])

    @settings(max_examples=200, deadline=None)
    @given(streams(nonsense=True), st.data())
    def test_what_is_taken_removes_what_it_names_and_nothing_else(
        self, events: list[naive.Recorded], data: st.DataObject
    ) -> None:
        ranges, at = EMPTY.fold(events), len(events)
        first, last = sorted(data.draw(st.tuples(*[st.integers(1, max(at, 1))] * 2)))
        groups = naive.fold(events).compactions()
        own = {version for _, _, summaries, *_ in groups for version in summaries if first <= version <= last}
        try:
            found = retract_versions(ranges, at, [(first, last)])
        except InvalidItem:
            assert own or not at or any(a < first <= b <= last or first <= a <= last for _, (a, b), *_ in groups)
            return
        assert own or all((a <= first and last <= b) or last < a or b < first for _, (a, b), *_ in groups)
        after = [*events, (at + 1, *(retracted(*found) if found else OTHER))]
        shown = naive.fold(events).transcript()
        assert naive.fold(after).transcript() == [version for version in shown if not first <= version <= last]
        assert not own or own.issuperset(set(shown).intersection(range(first, last + 1)))


PARTS = st.sampled_from(["item", "call", "result", "reasoning", "noise", "pop", "clear", "compact", "compact"])


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[naive.Recorded], list[tuple[Plan, dict[str, Any]]]]:
    """Streams whose compactions were planned, with the plans."""
    events: list[naive.Recorded] = []
    plans: list[tuple[Plan, dict[str, Any]]] = []
    for step in draw(st.lists(PARTS, max_size=30)):
        ranges, at = EMPTY.fold(events), len(events)
        more: list[tuple[str, Any]] = []
        match step:
            case "item":
                more = [ITEM] * draw(st.integers(1, 2))
            case "noise":
                more = [OTHER]
            case "call" | "result":
                more = [(call if step == "call" else result)(draw(st.sampled_from("abc")))]
            case "reasoning":
                more = [("item.appended", REASONING)]
            case "clear":
                more = [CLEARED] if draw(st.booleans()) else []
            case "pop":
                taken = entries_of(events, ranges)[-1:]
                found = retract_last(ranges, at, [(entry.version, entry.summary) for entry in taken])
                more = [retracted(*found)] if found else []
            case "compact":
                pair = st.tuples(st.integers(1, max(at, 1)), st.integers(1, max(at, 1))).map(lambda p: tuple(sorted(p)))
                options = {
                    "covers": draw(st.none() | pair) if at else None,
                    "keep_last": draw(st.none() | st.integers(0, 3)),
                    "merge": draw(st.booleans()),
                }
                _, decided = planned(events, **options)
                if decided.covers:
                    plans.append((decided, options))
                    check_plan(events, ranges, decided, options)
                    summaries = draw(st.integers(1, 2))
                    more = [SUMMARY] * summaries + [compacted(*decided.covers, summaries)]
        events += [(at + n, *part) for n, part in enumerate(more, 1)]
    return events, plans


def check_plan(events: list[naive.Recorded], ranges: Ranges, decided: Plan, options: dict[str, Any]) -> None:
    assert decided.covers is not None
    first, last = decided.covers
    before = entries_of(events, ranges)
    taken = {entry.version for entry in decided.entries}
    assert taken
    after = naive.fold([*events, (len(events) + 1, *SUMMARY), (len(events) + 2, *compacted(first, last, 1))])
    shown = after.transcript()
    assert [v for v in shown if v != len(events) + 1] == [e.version for e in before if e.version not in taken]
    stands_for = [c for c in after.compactions() if c[0] == len(events) + 2]
    assert stands_for[0][1] == decided.covers, "widened already: the fold has nothing to add"
    assert naive.fetch(events, [(*piece, False) for piece in decided.originals]) == stands_for[0][5]
    kept_last = [e.version for e in before][len(before) - min(options["keep_last"] or 0, len(before)) :]
    assert not taken.intersection(kept_last)
    for one, other in bonds(before):
        if one is not None and other is not None:
            assert (before[one].version in taken) == (before[other].version in taken)
    if options["covers"] is None and not options["merge"]:
        assert not any(entry.summary for entry in decided.entries)


@settings(max_examples=500, deadline=None)
@given(conversations())
def test_no_compaction_ever_splits_a_call_from_its_result(made: tuple[list[naive.Recorded], Any]) -> None:
    events, _ = made
    live = {entry.version for entry in entries_of(events, EMPTY.fold(events))}
    originals = set(naive.fold(events).originals())
    entries = [Entry(v, data) for v, event_type, data in events if event_type == "item.appended" and v in originals]
    for first, second in bonds(entries):
        if first is not None and second is not None and "call_id" in entries[first].item:
            assert (entries[first].version in live) == (entries[second].version in live)


class TestPlans:
    def test_it_begins_after_the_last_compaction_and_takes_what_came_while_that_was_made(self) -> None:
        events = stream(*[ITEM] * 6, SUMMARY, compacted(1, 4, 1), ITEM, OTHER)
        assert planned(events)[1] == Plan((5, 9), tuple(Entry(v, ITEM[1]) for v in (5, 6, 9)), ((5, 9),))

    def test_merge_begins_at_the_start_and_stands_for_all_originals(self) -> None:
        events = stream(ITEM, *[ITEM] * 5, SUMMARY, compacted(2, 4, 1), ITEM)
        decided = planned(events, merge=True)[1]
        assert (decided.covers, [e.version for e in decided.entries]) == ((1, 9), [1, 7, 5, 6, 9])
        assert decided.originals == ((1, 9),)

    def test_merge_of_one_summary_and_nothing_new_is_nothing_to_do_unless_it_is_stale(self) -> None:
        events = stream(ITEM, ITEM, SUMMARY, compacted(1, 2, 1))
        assert planned(events, merge=True)[1] == Plan()
        stale = [*events, (5, *retracted((1, 1)))]
        assert planned(stale, merge=True)[1].covers == (1, 2)

    def test_covers_is_widened_to_whole_compactions_and_calls(self) -> None:
        events = stream(ITEM, call("a"), ITEM, result("a"), call("b"), ITEM, result("b"), ITEM)
        assert planned(events, covers=(3, 3))[1].covers == (3, 3)
        assert planned(events, covers=(5, 6))[1].covers == (5, 7)
        assert planned(events, covers=(4, 5))[1].covers == (2, 7)
        events = stream(*[ITEM] * 6, SUMMARY, compacted(1, 4, 1))
        assert planned(events, covers=(4, 5))[1].covers == (1, 5)
        assert planned(events, covers=(5, 5))[1].covers == (5, 5)

    def test_covers_with_a_merge_begins_at_the_start(self) -> None:
        events = stream(*[ITEM] * 6, SUMMARY, compacted(2, 4, 1))
        assert planned(events, covers=(5, 5), merge=True)[1].covers == (1, 5)

    def test_keep_last_keeps_at_least_that_many_and_the_call_of_a_kept_result(self) -> None:
        events = stream(ITEM, ITEM, call("a"), result("a"), ITEM)
        assert planned(events, keep_last=1)[1].covers == (1, 4)
        assert planned(events, keep_last=2)[1].covers == (1, 2)
        assert planned(events, covers=(1, 4), keep_last=2)[1].covers == (1, 2)
        assert planned(events, covers=(2, 3), keep_last=1)[1].covers == (2, 4)
        assert planned(events, covers=(2, 3), keep_last=2)[1].covers == (2, 2)
        assert planned(events, keep_last=5)[1] == Plan()

    def test_keep_last_does_not_cut_between_the_summaries_of_a_compaction(self) -> None:
        events = stream(*[ITEM] * 4, SUMMARY, SUMMARY, compacted(2, 3, 2))
        assert planned(events, merge=True, keep_last=1)[1].covers == (1, 3)
        assert planned(events, merge=True, keep_last=2)[1].covers == (1, 1)

    def test_an_open_call_and_open_reasoning_stay_and_are_named(self) -> None:
        events = stream(ITEM, call("a"), ITEM, ITEM)
        assert planned(events)[1].covers == (1, 1)
        assert planned(events)[1].held_by == 2
        assert planned(events, covers=(2, 4))[1] == Plan(held_by=2)
        assert planned(events, covers=(3, 4))[1].covers == (3, 4)
        events = stream(ITEM, ("item.appended", REASONING))
        assert (planned(events)[1].covers, planned(events)[1].held_by) == ((1, 1), 2)
        assert planned([*events, (3, *ITEM)])[1].covers == (1, 3)

    def test_a_result_whose_call_stands_before_the_last_compaction_stays_with_it(self) -> None:
        events = stream(call("a"), ITEM, SUMMARY, compacted(2, 2, 1), result("a"), ITEM)
        assert planned(events)[1].covers == (6, 6)
        assert planned(events, covers=(5, 6))[1].covers == (1, 6)
        assert planned(events[:5])[1] == Plan()

    @pytest.mark.parametrize("parts", [[], [OTHER], [ITEM, CLEARED], [ITEM, SUMMARY, compacted(1, 1, 1), OTHER]])
    def test_nothing_shown_is_nothing_to_do(self, parts: Any) -> None:
        assert planned(stream(*parts))[1] == Plan()

    def test_covers_of_what_is_gone_is_nothing_to_do(self) -> None:
        events = stream(ITEM, ITEM, CLEARED, ITEM)
        assert planned(events, covers=(1, 2))[1] == Plan()
        assert planned(events, covers=(1, 4))[1].covers == (4, 4)

    @pytest.mark.parametrize(
        ("options", "path"),
        [
            ({"covers": (0, 1)}, "covers"),
            ({"covers": (1, 3)}, "covers"),
            ({"covers": (2, 1)}, "covers"),
            ({"covers": 1}, "covers"),
            ({"keep_last": -1}, "keep_last"),
            ({"keep_last": 1.5}, "keep_last"),
        ],
    )
    def test_wrong_options_are_refused_by_name(self, options: Any, path: str) -> None:
        with pytest.raises(InvalidItem) as caught:
            planned(stream(ITEM, ITEM), **options)
        assert caught.value.path == path

    def test_depth_counts_from_originals(self) -> None:
        ranges = EMPTY.fold(stream(ITEM, ITEM, SUMMARY, compacted(1, 1, 1)))
        assert ranges.depth_above(1, 2, "originals") == 1
        assert ranges.depth_above(2, 2, "summary") == 1
        assert ranges.depth_above(1, 2, "summary") == 2

    def test_another_control_event_meanwhile_is_a_conflict(self) -> None:
        assert isinstance(moved(7, 9), CompactionConflict)
        assert "as of control event 7, and event 9 has changed it" in str(moved(7, 9))
