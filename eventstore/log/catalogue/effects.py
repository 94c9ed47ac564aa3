"""The effects of tools in the world, guarded by a key.

An outcome names the attempt that it belongs to. Success, failure and resolution are the outcomes: an attempt has one.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from eventstore.log.catalogue.fields import Data, Name, Ordinal, Sha256, Text
from eventstore.log.catalogue.registry import event


@event("effect.intended", version=1)
class EffectIntended(Data):
    """A caller is about to run the tool and holds the key for ``lease`` seconds.

    ``arguments_sha256`` is the digest of their canonical form, so that the same call under another key can be found.
    """

    key: Name
    tool: Name
    arguments: Any
    arguments_sha256: Sha256
    attempt: Ordinal
    lease: Annotated[float, Field(gt=0, allow_inf_nan=False)]


@event("effect.succeeded", version=1)
class EffectSucceeded(Data):
    """It happened."""

    key: Name
    attempt: Ordinal
    result: Any = None


@event("effect.failed", version=1)
class EffectFailed(Data):
    """It did not happen, for certain: the key is free for the next attempt."""

    key: Name
    attempt: Ordinal
    error: Any


@event("effect.indeterminate", version=1)
class EffectIndeterminate(Data):
    """Its caller can't say whether it happened, or with what result; ``happened`` where that much is known."""

    key: Name
    attempt: Ordinal
    reason: Text
    happened: bool | None = None


@event("effect.resolved", version=1)
class EffectResolved(Data):
    """Somebody looked, and says whether it happened."""

    key: Name
    attempt: Ordinal
    succeeded: bool
    result: Any = None
    reason: Text | None = None


@event("effect.compensated", version=1)
class EffectCompensated(Data):
    """It was undone; the key is spent."""

    key: Name
    attempt: Ordinal
    result: Any = None
