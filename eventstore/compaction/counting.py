"""How many tokens an item is: an estimate from its bytes, or exactly with a tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Protocol

from eventstore.errors import InvalidItem, describe
from eventstore.log import codec
from projections.tokens import BYTES_PER_TOKEN, Counter, encoded_size, estimate

__all__ = ["BYTES_PER_TOKEN", "Counter", "Tokenizer", "encoded_size", "estimate", "exact"]


class Tokenizer(Protocol):
    """What turns text into tokens, such as an encoding of ``tiktoken`` or a tokenizer of ``tokenizers``."""

    def encode(self, text: str, /) -> Sized:
        """Give the tokens of ``text``."""


def exact(tokenizer: Tokenizer) -> Counter:
    """Give a counter of the tokens of an item's compact JSON; what a provider adds around an item is not in it.

    Text that looks like a special token counts as text (``encode_ordinary`` where the tokenizer has it).

    Raises:
        InvalidItem: it has no ``encode``.
    """
    encode: Callable[[str], Sized] | None = getattr(tokenizer, "encode_ordinary", None)
    encode = encode or getattr(tokenizer, "encode", None)
    if not callable(encode) or isinstance(tokenizer, str):  # a name, which has an encode of its own
        raise InvalidItem("tokenizer", f"{describe(tokenizer)} should be a tokenizer: have a method encode(text)")
    return lambda item: len(encode(codec.encode(item, "item")[1].decode()))
