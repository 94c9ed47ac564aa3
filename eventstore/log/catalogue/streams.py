"""What happens to a stream as a whole and to a context, and what a model was given to see."""

from __future__ import annotations

from typing import Any

from eventstore.log.catalogue.fields import Count, Data, Name, Range, Sha256, Text, Usage
from eventstore.log.catalogue.registry import event


@event("stream.forked", version=1)
class StreamForked(Data):
    """The branch goes on from ``parent`` after version ``at``, which the stream ``owner`` holds."""

    parent: Name
    at: Count
    owner: Name | None = None


@event("stream.tagged", version=1)
class StreamTagged(Data):
    """The stream's tags."""

    tags: dict[Name, Text]


@event("stream.closed", version=1)
class StreamClosed(Data):
    """Nothing is appended after this."""

    reason: Text | None = None


@event("context.erased", version=1)
class ContextErased(Data):
    """The context's contents were removed; hashes stay and still verify."""

    reason: Text


class Receipt(Data):
    """A view is a function of these: whoever renders it again gets the same bytes."""

    stream: Name
    version: Count
    options: dict[Text, Any]
    sha256: Sha256


@event("response.recorded", version=1)
class ResponseRecorded(Data):
    """A model's response, the view that it was given, and the versions of its own items."""

    response_id: Name
    receipt: Receipt | None = None
    output: Range | None = None
    previous_response_id: Name | None = None
    conversation_id: Name | None = None
    model: Name | None = None
    usage: Usage | None = None
