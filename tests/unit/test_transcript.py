"""Version ranges against a fold that edits a list step by step, and the room that they take."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore.log import catalogue
from projections.intervals import OPEN
from projections.transcript import CONTROL, EMPTY, Compaction, Piece, Ranges
from tests.unit import naive_transcript as naive

ITEM = ("item.appended", {"role": "user", "content": "x"})
SUMMARY = ("summary.appended", {"role": "user", "content": "in short"})
OTHER = ("x.noise", None)


def retracted(*ranges: tuple[int, int]) -> tuple[str, Any]:
    return "items.retracted", {"ranges": [list(pair) for pair in ranges], "reason": None, "control": 0}


def compacted(first: int, last: int, items: int, basis: str = "originals") -> tuple[str, Any]:
    data = {"covers": [first, last], "items": items, "basis": basis, "depth": 1, "method": "m"}
    sizes = {"bytes_before": 2, "bytes_after": 1, "digest": "0" * 64, "control": 0}
    return "history.compacted", data | sizes


CLEARED = ("history.cleared", {"reason": None, "control": None})


def stream(*parts: tuple[str, Any]) -> list[naive.Recorded]:
    return [(version, *part) for version, part in enumerate(parts, 1)]


def compare(events: list[naive.Recorded], ranges: Ranges) -> None:
    at = len(events)
    model = naive.fold(events)
    assert naive.fetch(events, ranges.transcript(at)) == model.transcript()
    assert list(ranges.newest(at)) == ranges.transcript(at)[::-1]
    assert naive.fetch(events, ranges.originals(at)) == model.originals()
    shown = [
        (
            c.version,
            c.covers,
            [v for first, last in c.shown for v in range(first, last + 1)],
            c.depth,
            c.stale,
            naive.fetch(events, [(first, last, False) for first, last in ranges.stands_for(c)]),
        )
        for c in ranges.compactions
    ]
    assert shown == model.compactions()


@st.composite
def streams(draw: st.DrawFn, *, nonsense: bool) -> list[naive.Recorded]:
    """Streams of items, noise and control events; with nonsense, of any that the catalogue admits."""
    parts: list[tuple[str, Any]] = []
    steps = ["items", "pop", "retract", "clear", "compact", "compact", "noise"]
    if nonsense:
        steps += ["summary", "any retraction", "any compaction"]
    for step in draw(st.lists(st.sampled_from(steps), max_size=25)):
        head = len(parts)
        anywhere = st.tuples(st.integers(1, head + 3), st.integers(1, head + 3)).map(lambda p: (min(p), max(p)))
        shown = naive.fold(stream(*parts)).transcript()
        match step:
            case "items":
                parts += [ITEM] * draw(st.integers(1, 4))
            case "noise":
                parts.append(OTHER)
            case "summary":
                parts.append(SUMMARY)
            case "clear":
                if nonsense or draw(st.booleans()):
                    parts.append(CLEARED)
            case "pop" if shown:
                parts.append(retracted((shown[-1], shown[-1])))
            case "retract" if head:
                parts.append(retracted(tuple(sorted(draw(st.tuples(*[st.integers(1, head)] * 2))))))
            case "compact" if head:
                first, last = sorted(draw(st.tuples(*[st.integers(1, head)] * 2)))
                summaries = draw(st.integers(0, 3))
                basis = draw(st.sampled_from(["originals", "summary"]))
                parts += [SUMMARY] * summaries + [compacted(first, last, summaries, basis)]
            case "any retraction":
                parts.append(retracted(*draw(st.lists(anywhere, min_size=1, max_size=4))))
            case "any compaction":
                first, last = draw(anywhere)
                parts.append(compacted(first, last, draw(st.sampled_from([0, 1, 2, 5, 10**6])), "summary"))
    return stream(*parts)


@pytest.mark.parametrize("nonsense", [False, True])
@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_any_stream_equals_the_naive_fold_at_every_version(nonsense: bool, data: st.DataObject) -> None:
    events = data.draw(streams(nonsense=nonsense))
    ranges = EMPTY
    compare([], ranges)
    for at, event in enumerate(events, 1):
        if event[1] in CONTROL:
            catalogue.check(event[1], event[2])
        ranges = ranges.apply(*event)
        compare(events[:at], ranges)


@settings(max_examples=200, deadline=None)
@given(streams(nonsense=True), st.data())
def test_a_checkpoint_goes_on_as_the_fold_from_the_beginning(events: list[naive.Recorded], data: st.DataObject) -> None:
    whole = EMPTY.fold(events)
    cut = data.draw(st.integers(0, len(events)))
    checkpoint = json.loads(json.dumps(EMPTY.fold(events[:cut]).dumps()))
    assert Ranges.loads(checkpoint) == EMPTY.fold(events[:cut])
    assert Ranges.loads(checkpoint).fold(events[cut:]) == whole


@settings(max_examples=200, deadline=None)
@given(streams(nonsense=True))
def test_only_control_events_count(events: list[naive.Recorded]) -> None:
    assert EMPTY.fold(event for event in events if event[1] in CONTROL) == EMPTY.fold(events)


def test_a_value_stays_what_it_was() -> None:
    before = EMPTY.fold(stream(*[ITEM] * 9, SUMMARY, compacted(1, 5, 1)))
    copy = Ranges.loads(before.dumps())
    before.apply(12, *retracted((3, 3), (10, 10)))
    before.apply(12, *CLEARED)
    assert before == copy


class TestOddCases:
    """One line each of the table in docs/transcripts.md."""

    def ranges(self, *parts: tuple[str, Any]) -> tuple[list[int], list[int], Ranges]:
        events = stream(*parts)
        ranges = EMPTY.fold(events)
        compare(events, ranges)
        at = len(events)
        return naive.fetch(events, ranges.transcript(at)), naive.fetch(events, ranges.originals(at)), ranges

    def test_summaries_stand_side_by_side_though_their_versions_lie_in_the_next_range(self) -> None:
        two = [*[ITEM] * 6, SUMMARY, compacted(1, 4, 1), ITEM, ITEM, SUMMARY, compacted(5, 10, 1)]
        assert self.ranges(*two)[:2] == ([7, 11], [1, 2, 3, 4, 5, 6, 9, 10])

    def test_covers_that_cuts_a_compaction_is_widened_to_the_whole(self) -> None:
        shown, originals, ranges = self.ranges(*[ITEM] * 6, SUMMARY, compacted(1, 4, 1), SUMMARY, compacted(3, 5, 1))
        assert (shown, originals) == ([9, 6], [1, 2, 3, 4, 5, 6])
        assert ranges.compactions == (Compaction(10, (1, 5), ((9, 9),), 1),)

    def test_covers_beyond_the_compaction_ends_before_it(self) -> None:
        shown, _, ranges = self.ranges(ITEM, ITEM, SUMMARY, compacted(2, 99, 1), ITEM)
        assert shown == [1, 3, 5]
        assert ranges.compactions[0].covers == (2, 3)

    def test_covers_from_before_a_clear_begins_after_it(self) -> None:
        shown, originals, ranges = self.ranges(ITEM, CLEARED, ITEM, ITEM, SUMMARY, compacted(1, 3, 1))
        assert (shown, originals, ranges.compactions[0].covers) == ([5, 4], [3, 4], (3, 3))

    @pytest.mark.parametrize("covers", [(1, 2), (9, 9)])
    def test_a_compaction_of_nothing_but_the_cleared_or_the_future_is_ignored(self, covers: tuple[int, int]) -> None:
        assert self.ranges(ITEM, CLEARED, ITEM, SUMMARY, compacted(*covers, 1))[:2] == ([3], [3])

    def test_a_compaction_has_no_summaries_from_before_another_control_event(self) -> None:
        parts = [ITEM, ITEM, SUMMARY, retracted((2, 2)), SUMMARY, compacted(1, 1, 3)]
        assert self.ranges(*parts)[0] == [5]
        assert self.ranges(ITEM, SUMMARY, compacted(1, 1, 10**9))[0] == [2]

    def test_an_item_among_the_summaries_stays_an_item_where_it_is(self) -> None:
        assert self.ranges(ITEM, SUMMARY, ITEM, compacted(1, 1, 2))[:2] == ([2, 3], [1, 3])

    def test_a_compaction_without_summaries_hides_its_range_and_keeps_the_originals(self) -> None:
        assert self.ranges(ITEM, ITEM, ITEM, compacted(1, 2, 0))[:2] == ([3], [1, 2, 3])

    def test_a_retraction_in_a_compacted_range_leaves_the_originals_and_makes_the_summary_stale(self) -> None:
        shown, originals, ranges = self.ranges(*[ITEM] * 4, SUMMARY, compacted(1, 4, 1), retracted((2, 3)))
        assert (shown, originals, ranges.compactions[0].stale) == ([5], [1, 4], True)

    def test_with_its_last_summary_goes_what_a_compaction_stood_for(self) -> None:
        parts = [ITEM, ITEM, ITEM, SUMMARY, SUMMARY, compacted(1, 2, 2)]
        assert self.ranges(*parts, retracted((5, 5)))[:2] == ([4, 3], [1, 2, 3])
        assert self.ranges(*parts, retracted((5, 5)), retracted((4, 4)))[:2] == ([3], [3])

    def test_a_retracted_summary_makes_no_other_compaction_stale(self) -> None:
        two = [*[ITEM] * 6, SUMMARY, compacted(1, 4, 1), ITEM, SUMMARY, compacted(5, 9, 1)]
        shown, originals, ranges = self.ranges(*two, retracted((7, 7)))
        assert (shown, originals, ranges.compactions[0].stale) == ([10], [5, 6, 9], False)

    def test_a_merged_summary_stands_for_all_that_it_replaced(self) -> None:
        parts = [ITEM, ITEM, SUMMARY, compacted(1, 1, 1), SUMMARY, compacted(2, 2, 1, "summary")]
        shown, originals, ranges = self.ranges(*parts, ITEM, SUMMARY, compacted(1, 7, 1, "summary"))
        assert (shown, originals, ranges.compactions[0].depth) == ([8], [1, 2, 7], 2)
        gone = self.ranges(*parts, ITEM, SUMMARY, compacted(1, 7, 1, "summary"), ITEM, retracted((8, 8)))
        assert gone[:2] == ([10], [10])

    def test_a_replaced_summary_is_no_longer_there_to_retract(self) -> None:
        parts = [ITEM, SUMMARY, compacted(1, 1, 1), ITEM, SUMMARY, compacted(1, 4, 1), retracted((2, 2))]
        shown, originals, ranges = self.ranges(*parts)
        assert (shown, originals, ranges.compactions[0].stale) == ([5], [1, 4], True)

    def test_a_retraction_names_versions_wherever_they_stand(self) -> None:
        parts = [*[ITEM] * 4, SUMMARY, compacted(1, 2, 1), ITEM]
        assert self.ranges(*parts, retracted((2, 3)))[:2] == ([5, 4, 7], [1, 4, 7])
        assert self.ranges(*parts, retracted((4, 99), (1, 1)))[:2] == ([3], [3])
        assert self.ranges(*parts, retracted((9, 99)), ITEM)[0] == [5, 3, 4, 7, 9]

    def test_a_summary_that_no_compaction_shows_is_not_shown(self) -> None:
        assert self.ranges(ITEM, SUMMARY, ITEM)[:2] == ([1, 3], [1, 3])


class TestRoom:
    """What ranges weigh, counted in pieces."""

    def test_10000_pops_of_a_long_stream_add_no_pieces(self) -> None:
        ranges, weight = EMPTY, 0
        for n in range(10_000):
            ranges = ranges.apply(20_001 + n, *retracted((20_000 - n, 20_000 - n)))
            assert len(ranges.kept) <= 2
            weight += len(json.dumps(ranges.dumps()))
        assert ranges.transcript(30_000) == [Piece(1, 10_000)]
        assert weight < 10_000 * 100

    def test_items_taken_back_as_soon_as_they_come_add_no_pieces(self) -> None:
        ranges = EMPTY.fold((v, *retracted((v - 1, v - 1))) for v in range(102, 20_102, 2))
        assert ranges.kept == ((1, 100), (20_101, OPEN))

    def test_scattered_retractions_cost_one_piece_and_few_bytes_each(self) -> None:
        events = [(20_000 + n, *retracted((n * 2, n * 2))) for n in range(1, 5_001)]
        ranges = EMPTY.fold(events)
        assert len(ranges.kept) == 5_001
        assert len(json.dumps(ranges.dumps(), separators=(",", ":"))) < 5_001 * 5
        assert EMPTY.fold([*events, (30_000, *retracted((1, 10_000)))]).kept == ((10_001, OPEN),)

    def test_a_compaction_adds_one_entry_and_cuts_nothing(self) -> None:
        ranges = EMPTY.fold((n * 10, *compacted(n * 10 - 9, n * 10 - 2, 1)) for n in range(1, 1_001))
        assert (len(ranges.kept), len(ranges.compactions)) == (1, 1_000)
        assert len(json.dumps(ranges.dumps(), separators=(",", ":"))) < 1_000 * 25

    def test_merging_keeps_one_entry_however_often(self) -> None:
        ranges = EMPTY.fold((n * 10, *compacted(1, n * 10 - 2, 1, "summary")) for n in range(1, 5_001))
        assert (len(ranges.kept), len(ranges.compactions), ranges.compactions[0].depth) == (1, 1, 5_000)

    def test_a_clear_keeps_nothing(self) -> None:
        ranges = EMPTY.fold((n + 10_000, *retracted((n * 2, n * 2))) for n in range(1, 1_000))
        assert ranges.apply(20_000, *CLEARED) == Ranges(((20_001, OPEN),), (), 20_000, 20_000)

    def test_the_last_pieces_are_found_without_the_others(self) -> None:
        class Counted(tuple[tuple[int, int], ...]):
            seen = 0

            def __getitem__(self, at: Any) -> Any:
                Counted.seen += 1
                return super().__getitem__(at)

        ranges = EMPTY.fold((n + 100_000, *retracted((n * 2, n * 2))) for n in range(1, 20_001))
        counted = Ranges(Counted(ranges.kept), (), ranges.control)
        newest = counted.newest(200_000)
        assert [next(newest), next(newest)] == [Piece(40_001, 200_000), Piece(39_999, 39_999)]
        assert Counted.seen < 50


def test_what_is_out_of_order_or_unknown_is_refused_by_name() -> None:
    ranges = EMPTY.apply(5, *retracted((1, 1)))
    with pytest.raises(ValueError, match="event 5 comes after event 5"):
        ranges.apply(5, *CLEARED)
    with pytest.raises(ValueError, match="of version 5 and later, asked for 4"):
        ranges.transcript(4)
    with pytest.raises(ValueError, match="format 2; this code reads format 1"):
        Ranges.loads({"format": 2})
    with pytest.raises(ValueError, match=r"damaged.*kept"):
        Ranges.loads({"format": 1})
