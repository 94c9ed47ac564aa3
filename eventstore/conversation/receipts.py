"""What a model was given, and the receipt by which the same bytes can be rendered again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eventstore.errors import InvalidItem, ServerStateConflict, describe
from eventstore.log import codec
from eventstore.log.events import Json


@dataclass(frozen=True, slots=True)
class Receipt:
    """A view is a function of these: ``sha256`` is that of its items, as :func:`rendered` writes them."""

    stream: str
    version: int
    options: Mapping[str, Json]
    sha256: str

    def as_json(self) -> dict[str, Json]:
        """Give it as it is recorded."""
        return {"stream": self.stream, "version": self.version, "options": dict(self.options), "sha256": self.sha256}

    @property
    def follows(self) -> tuple[str | None, str | None]:
        """The ``previous_response_id`` and the ``conversation_id`` that the input was made to follow."""
        return self.options.get("previous_response_id"), self.options.get("conversation_id")


@dataclass(frozen=True, slots=True)
class ModelInput:
    """What to call a model with.

    With server state ``items`` are only what the provider has not seen, and one of the ids says what it holds; both are
    None at the beginning of a chain.
    """

    items: list[Json]
    receipt: Receipt
    previous_response_id: str | None = None
    conversation_id: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What a model was given at a recorded response. ``same`` tells whether it is what the receipt was made for."""

    response_id: str
    version: int
    items: list[Json] = field(repr=False)
    receipt: Receipt
    same: bool
    previous_response_id: str | None
    conversation_id: str | None
    model: str | None
    usage: Mapping[str, Any] | None


def rendered(items: Sequence[Json]) -> bytes:
    """Write items as the JSON array that a receipt's digest is of: UTF-8, no white space, keys in their order."""
    return joined(encoded(items))


def encoded(items: Sequence[Json]) -> list[bytes]:
    """Write each item as compact JSON."""
    return [codec.encode(item, f"[{index}]")[1] for index, item in enumerate(items)]


def joined(items: Sequence[bytes]) -> bytes:
    """Make a JSON array of items that are written already."""
    return b"[" + b",".join(items) + b"]"


def receipt_of(stream: str, version: int, options: Mapping[str, Json], items: Sequence[Json]) -> Receipt:
    """Make the receipt of a view."""
    return Receipt(stream, version, options, hashlib.sha256(rendered(items)).hexdigest())


def read_receipt(receipt: object) -> Receipt | None:
    """Read a receipt that was given back, as it was or as JSON."""
    if receipt is None or isinstance(receipt, Receipt):
        return receipt
    if isinstance(receipt, Mapping) and set(receipt) == {"stream", "version", "options", "sha256"}:
        given = Receipt(**receipt)
        if type(given.version) is int and isinstance(given.options, Mapping):
            return given
    raise InvalidItem("receipt", f"{describe(receipt)}; give .receipt of model_input()")


def check_sources(receipt: Receipt | None, previous_response_id: str | None, conversation_id: str | None) -> None:
    """Refuse a call that was given one history twice.

    Raises ``ServerStateConflict``.
    """
    if previous_response_id is not None and conversation_id is not None:
        raise ServerStateConflict(
            f"previous_response_id {previous_response_id!r} and conversation_id {conversation_id!r} both tell the "
            "provider to put a history before the input; give one of them"
        )
    held = previous_response_id or conversation_id
    if receipt is None or held is None:
        return
    if receipt.options.get("server_state", "off") == "off":
        if receipt.version > 0:
            raise ServerStateConflict(
                f"the receipt is of the local history up to version {receipt.version}, and {held!r} tells the provider "
                "to put the same before it: the model saw it twice; call model_input(server_state=…) for what is new"
            )
        return
    for name, given in (("previous_response_id", previous_response_id), ("conversation_id", conversation_id)):
        told = receipt.options.get(name)
        begins = name == "conversation_id" and receipt.options["server_state"] == "conversation"
        if told != given and not (told is None and begins):  # the first call makes the conversation
            raise ServerStateConflict(
                f"the input was made to follow {name} {told!r}, not {given!r}: what lies between is missing or doubled"
            )
