"""What is written: items as an agent's run makes them, the same in each run of the benchmark."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice
from typing import Any

MEDIAN, SHORTEST, LONGEST, LARGE = 600, 200, 2_000, 20_000
LARGE_SHARE = 0.01

_KINDS = ["user", "assistant", "call", "output", "reasoning"]
_WEIGHTS = [20, 25, 23, 25, 7]


def items() -> Iterator[dict[str, Any]]:
    """Yield items without end; the first 4,000 come round again and again, so that making them costs nothing."""
    return cycle(_pool())


def fresh_items(seed: int = 1) -> Iterator[dict[str, Any]]:
    """Yield Responses items without end: 200 bytes to 2 kB, median 600, one in a hundred of 20 kB."""
    r = random.Random(seed)
    call_id = ""
    while True:
        if r.random() < LARGE_SHARE:
            kind, size = "output", LARGE
        else:
            kind = r.choices(_KINDS, _WEIGHTS)[0]
            size = round(min(LONGEST, max(SHORTEST, r.lognormvariate(math.log(MEDIAN), 0.6))))
        if kind == "call" or not call_id:
            call_id = f"call_{r.getrandbits(96):024x}"
        yield _item(r, kind, size, call_id)


def _item(r: random.Random, kind: str, size: int, call_id: str) -> dict[str, Any]:
    own = f"{r.getrandbits(200):050x}"
    if kind == "user":
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": _text(r, size - 84)}]}
    if kind == "assistant":
        part = {"type": "output_text", "text": _text(r, size - 210), "annotations": [], "logprobs": []}
        whole = {"id": f"msg_{own}", "type": "message", "status": "completed", "role": "assistant"}
        return whole | {"content": [part]}
    if kind == "call":
        arguments = f'{{"path":"src/{_text(r, 12).split()[0]}.py","patch":"{_text(r, size - 250)}"}}'
        whole = {"id": f"fc_{own}", "type": "function_call", "status": "completed"}
        return whole | {"call_id": call_id, "name": "apply_patch", "arguments": arguments}
    if kind == "output":
        return {"type": "function_call_output", "call_id": call_id, "output": _text(r, size - 85)}
    summary = {"type": "summary_text", "text": _text(r, size - 150)}
    return {"id": f"rs_{own}", "type": "reasoning", "summary": [summary], "encrypted_content": None}


def _text(r: random.Random, size: int) -> str:
    words, weights = _vocabulary()
    return " ".join(r.choices(words, cum_weights=weights, k=max(size, 12) // 5))[: max(size, 12)]


@cache
def _pool() -> list[dict[str, Any]]:
    return list(islice(fresh_items(), 4_000))


@cache
def _vocabulary() -> tuple[list[str], list[float]]:
    """Make 2,000 words whose frequencies fall as in prose, so that texts compress as prose does."""
    r = random.Random(0)
    syllables = [a + b for a in "bcdfglmnprst" for b in "aeiou"] + ["str", "ing", "er", "th", "ch"]
    words = ["".join(r.choices(syllables, k=r.choice([1, 2, 2, 3, 4]))) for _ in range(2_000)]
    total, weights = 0.0, []
    for rank in range(len(words)):
        total += 1 / (rank + 3)
        weights.append(total)
    return words, weights
