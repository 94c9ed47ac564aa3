"""Compaction: policies say when (``when=``), compactors say how; the store decides whether, and records what was done.

A compactor is called with the items of a range and gives what stands for them from then on: a list of items, or
``Compacted`` where the record should name the method, the model and its usage. It may be a coroutine function, for the
async store. Nothing here does I/O by itself or reads a clock.
"""

from eventstore.compaction.counting import Counter, Tokenizer, estimate, exact
from eventstore.compaction.outcome import Compacted, checked, method_of
from eventstore.compaction.packing import Packing
from eventstore.compaction.policies import Policy, Situation, age, all_of, any_of, items, tokens
from eventstore.compaction.responses import ResponsesCompact

__all__ = [
    "Compacted",
    "Counter",
    "Packing",
    "Policy",
    "ResponsesCompact",
    "Situation",
    "Tokenizer",
    "age",
    "all_of",
    "any_of",
    "checked",
    "estimate",
    "exact",
    "items",
    "method_of",
    "tokens",
]
