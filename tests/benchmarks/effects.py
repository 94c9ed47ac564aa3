"""Row 30: what guarding an effect costs beside the call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count

from eventstore import Event

from .frame import Row, Variant, burst
from .lab import Lab, Ours

ARGUMENTS = {"order": "4711", "amount": 120, "reason": "damaged in transit", "lines": [1, 2, 3]}
RESULT = {"refund": "re_1", "status": "accepted"}


@contextmanager
def run(lab: Lab) -> Iterator[Sequence[Variant]]:
    """Row 30. An "event" is an effect: its intention and its outcome, and a call that takes no time."""
    n = lab.size(20, 3)
    numbers = count(1)
    with ExitStack() as stack:

        def variant(name: str, who: Ours, what: str, *, goal: bool = False) -> Variant:
            chat = who.store.conversation("effects")
            chat.effects.run("refund", lambda: RESULT, key="first", arguments=ARGUMENTS)

            def work() -> int:
                for number in [next(numbers) for _ in range(n)]:
                    if what == "run":
                        chat.effects.run("refund", lambda: RESULT, key=f"key {number}", arguments=ARGUMENTS)
                    elif what == "again":
                        chat.effects.run("refund", lambda: RESULT, key="first", arguments=ARGUMENTS)
                    else:
                        for part, data in (("a", ARGUMENTS), ("b", RESULT)):
                            unique = f"{number}:{part}" if what == "unique" else None
                            chat.append_events([Event(type="x.refund", data=data, subject="s", unique_key=unique)])
                return n

            return Variant(name, burst(lab, who.pid, work), goal=goal)

        def ours() -> Ours:
            return stack.enter_context(lab.ours(lab.database()))

        yield [
            variant("two appends with a unique_key", ours(), "unique"),
            variant("effects.run", ours(), "run", goal=True),
            variant("two plain appends", ours(), "plain"),
            variant("effects.run again: the recorded result", ours(), "again"),
        ]


ROWS = [
    Row(
        30,
        "effects.run",
        "two appends with a unique_key",
        1.20,
        run,
        unit="µs/effect",
        ratio="cost",
        passes=10,
        note="two round trips beside the call",
    )
]
