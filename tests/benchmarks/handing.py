"""Rows 13, 33 and 34: the flattened view, and what the steps of a handoff cost, late in a long chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from eventstore import Envelope, Event

from .frame import Row, Variant, burst
from .items import items
from .lab import Lab, Ours

GIVEN = {"goal": "go on", "success": "done", "agent": "a"}


def begin(who: Ours, length: int) -> Any:
    """Make a conversation that was handed over ``length`` times, with facts and an artifact."""
    chat = who.store.conversation("chain")
    chat.append({"begin": True})
    chat.append_events(
        [
            Event(type="task.opened", data={"task_id": "t", "goal": "g"}, subject="t"),
            Event(type="artifact.published", data={"name": "n", "uri": "u", "version": 1}, subject="u"),
        ]
    )
    chat.facts.constrain("official sources only")
    for number in range(10):
        chat.facts.confirm(f"decision {number}", [1])
    for _ in range(length):
        env = chat.handoffs.draft(**GIVEN, to="b")
        chat.handoffs.offer(env)
        chat.handoffs.accept(env.handoff_id, by="b")
    return chat


@contextmanager
def steps(lab: Lab, measured: str) -> Iterator[Sequence[Variant]]:
    """Measure one step, with the ones before it outside of the measurement."""
    n = lab.size(10, 3)
    numbers = count()
    source = items()
    with lab.ours(lab.database()) as who:
        chat = begin(who, lab.size(200, 5))
        ready: list[Envelope] = []

        def prepare() -> None:
            ready.clear()
            for _ in range(n):
                env = chat.handoffs.draft(**GIVEN, to="b", context_version=chat.head() + next(numbers))
                ready.append(env)
                if measured == "accept":
                    chat.handoffs.offer(env)

        def once(env: Envelope) -> None:
            if measured == "offer":
                chat.handoffs.offer(env)
            else:
                chat.handoffs.accept(env.handoff_id, by="b")

        def step() -> int:
            for env in ready:
                once(env)
            return n

        def append() -> int:
            for _ in range(n):
                chat.append([next(source)])
            return n

        yield [
            Variant("append of one item", burst(lab, who.pid, append)),
            Variant(f"{measured}, 200 handoffs before it", burst(lab, who.pid, step), prepare, goal=True),
        ]


def _row(number: int, measured: str) -> Row:
    def setup(lab: Lab) -> Any:
        return steps(lab, measured)

    setup_typed: Callable[[Lab], Any] = setup
    return Row(
        number, f"{measured} of a handoff", "append of one item", 3.0, setup_typed, unit="µs", ratio="cost", passes=4
    )


def chain(who: Ours, name: str, length: int, handoffs: int) -> Any:
    """Make a conversation of so many items that was handed over so many times, evenly."""
    chat = who.store.conversation(name, context=name)
    chat.append_events([Event(type="task.opened", data={"task_id": name, "goal": "g"}, subject=name)])
    source = items()
    between = max(length // max(handoffs, 1), 1)
    written = 0
    while written < length:
        step = min(between, length - written, 500)
        chat.append([next(source) for _ in range(step)])
        written += step
        if handoffs:
            env = chat.handoffs.draft(**GIVEN, to="b")
            chat.handoffs.offer(env, allow_incomplete=True)
            chat.handoffs.accept(env.handoff_id, by="b")
    return chat


@contextmanager
def flattened(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 13: each view is one pass over the items, whatever lies between them."""
    few, many, handoffs = lab.size(2_000, 40), lab.size(20_000, 120), lab.size(200, 4)
    with lab.ours(lab.database()) as who:
        plain, handed = chain(who, "plain", few, 0), chain(who, "handed", few, handoffs)
        long = chain(who, "long", many, handoffs)

        def view(chat: Any, wanted: int) -> Callable[[], int]:
            def work() -> int:
                made = chat.handoff_view(format="numbered")
                assert len(made.provenance) == wanted
                return wanted

            return work

        yield [
            Variant(f"{few:,} items, no handoff", burst(lab, who.pid, view(plain, few))),
            Variant(f"{few:,} items, {handoffs} handoffs", burst(lab, who.pid, view(handed, few)), goal=True),
            Variant(f"{many:,} items, {handoffs} handoffs", burst(lab, who.pid, view(long, many)), target=1.2),
        ]


ROWS = [
    Row(
        13,
        "flattened view in a chain of 200 handoffs, an item",
        "the same items without handoffs",
        1.2,
        flattened,
        unit="µs/item",
        ratio="cost",
        passes=2,
        rounds=3,
        note="read, rendered as a numbered block, digested; nothing is parsed",
    ),
    _row(33, "offer"),
    _row(34, "accept"),
]
