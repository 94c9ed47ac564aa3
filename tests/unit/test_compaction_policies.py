"""Policies: pure predicates with honest counts."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from eventstore.compaction import Situation, age, all_of, any_of, estimate, exact, items, tokens
from eventstore.errors import InvalidItem
from eventstore.log import codec

NOW = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


def situation(*given: Any, **more: Any) -> Situation:
    return Situation(list(given), NOW, **more)


class Words:
    """A tokenizer: a token a word. It is callable too, as some are."""

    def encode(self, text: str) -> list[str]:
        return text.split()

    def __call__(self, text: str) -> dict[str, Any]:
        raise AssertionError(text)


class WithSpecials(Words):
    def encode(self, text: str) -> list[str]:
        raise ValueError("disallowed special token")

    def encode_ordinary(self, text: str) -> list[str]:
        return list(text)


def test_items_hold_from_their_number_on() -> None:
    assert [items(2)(situation(*range(n))) for n in range(4)] == [False, False, True, True]


def test_tokens_hold_from_their_number_on_by_estimate_counter_or_tokenizer() -> None:
    two = situation({"content": "a b"}, {"content": "c d e"})
    for counted, policy in (
        (2, lambda n: tokens(n, lambda _: 1)),
        (5, lambda n: tokens(n, counter=Words())),
        (two.tokens(), tokens),
    ):
        assert policy(counted)(two)  # type: ignore[no-untyped-call]
        assert not policy(counted + 1)(two)  # type: ignore[no-untyped-call]


def test_the_estimate_is_a_token_for_3_75_bytes_of_compact_utf_8() -> None:
    assert estimate("x" * 373) == 100
    assert estimate({"a": [1, None]}) == round(len('{"a":[1,null]}') / 3.75)
    assert estimate("é" * 100) == round(202 / 3.75)
    assert estimate("\ud800") == round(len(r'"\ud800"') / 3.75)


def test_a_tokenizer_counts_the_compact_json_and_special_tokens_as_text() -> None:
    assert exact(Words())({"role": "user", "content": "a b c"}) == 3
    assert exact(WithSpecials())("<|endoftext|>") == len('"<|endoftext|>"')
    assert situation("ab", "c").tokens(exact(WithSpecials())) == 4 + 3


def test_age_is_that_of_the_oldest_item_against_the_given_now() -> None:
    hour_old = situation(1, oldest=NOW - dt.timedelta(hours=1))
    assert hour_old.age == 3600.0
    assert age(dt.timedelta(hours=1))(hour_old)
    assert age(3600)(hour_old)
    assert not age(3600.5)(hour_old)
    assert not age(0.001)(situation())
    ahead = situation(1, oldest=NOW + dt.timedelta(hours=1))
    assert ahead.age == 0.0
    assert not age(1)(ahead)


def test_bytes_are_those_of_the_compact_json_and_counted_when_asked_for() -> None:
    assert situation({"a": "é"}, 2**80).bytes == len('{"a":"é"}'.encode()) + len(str(2**80))
    unheld = situation(object())
    assert items(1)(unheld)
    with pytest.raises(InvalidItem):
        _ = unheld.bytes


def test_policies_combine_and_stop_at_the_first_answer() -> None:
    def never_asked(_: Situation) -> bool:
        raise AssertionError

    one, two = situation(1), situation(1, 2)
    old = situation(1, 2, oldest=NOW - dt.timedelta(1))
    assert any_of(items(1), never_asked)(one)
    assert not all_of(items(2), never_asked)(one)
    assert not (items(2) & age(60))(two)
    assert (items(2) & age(60))(old)
    assert (items(9) | items(2) & age(60))(old)
    assert not (items(9) | items(2) & age(60))(two)
    assert (items(1) & (lambda given: given.last_compaction == 0))(one)
    assert repr(items(9) | tokens(5) & age(60)) == "(items(9) | (tokens(5) & age(60)))"


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: items(0), "items"),
        (lambda: items(True), "items"),
        (lambda: items(1.5), "items"),  # type: ignore[arg-type]
        (lambda: tokens(-1), "tokens"),
        (lambda: tokens(1, counter="o200k_base"), "tokenizer"),  # type: ignore[arg-type]
        (lambda: tokens(1, counter=5), "tokenizer"),  # type: ignore[arg-type]
        (lambda: exact(5), "tokenizer"),  # type: ignore[arg-type]
        (lambda: age(0), "age"),
        (lambda: age(dt.timedelta(0)), "age"),
        (lambda: age(float("inf")), "age"),
        (lambda: age(float("nan")), "age"),
        (lambda: age("1h"), "age"),  # type: ignore[arg-type]
        (lambda: age(True), "age"),
        (any_of, "policies"),
        (all_of, "policies"),
        (lambda: items(1) | 5, "policies"),  # type: ignore[operator]
    ],
)
def test_what_can_not_be_a_policy_is_refused(make: Any, path: str) -> None:
    with pytest.raises(InvalidItem) as caught:
        make()
    assert caught.value.path == path


def test_the_estimate_is_within_reason_on_the_recordings(recorded_items: list[list[Any]]) -> None:
    """The figures of ``BYTES_PER_TOKEN`` came from vocabularies; what holds without them is the sum of the bytes."""
    for given in recorded_items:
        size = sum(len(codec.encode(item, "item")[1]) for item in given)
        assert abs(situation(*given).tokens() - size / 3.75) <= len(given)
        assert situation(*given).bytes == size
