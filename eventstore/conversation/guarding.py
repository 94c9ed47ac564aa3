# Generated from guarding_async.py by ops/generate_sync.py: edit that one.
"""An effect while its tool is run.

The intention is committed before the tool is called, the outcome after it; the log admits one of each an attempt. What
is between the two when its caller dies is indeterminate, and nobody runs it again until somebody has looked.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import psycopg
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from eventstore.conversation import effect_events
from eventstore.conversation.effect_events import Claim
from eventstore.conversation.stream import Stream
from eventstore.errors import (
    ConvstoreError,
    EffectFailed,
    EffectIndeterminate,
    EffectRefused,
    InvalidItem,
    StoreUnavailable,
    UniqueKeyConflict,
    describe,
)
from eventstore.log.connection import Pooled
from eventstore.log.effects import read_effect
from eventstore.log.events import Event, Json
from eventstore.telemetry import logger
from projections.effects import Effect, fold_effects


def look(stream: Stream, key: str) -> Effect | None:
    """Return an effect by its key; None where there is none."""
    found = read_effect(stream.route.caller, stream.tenant, stream.name, stream.context, key)
    return next((effect for effect in fold_effects(*found) if effect.key == key), None)


class Guard:
    """An effect while its tool is run; made by ``effects.guard``, for one ``with`` block."""

    def __init__(self, stream: Stream, claim: Claim) -> None:
        self._stream = stream
        self._claim = claim
        self._attempt = 0
        self._open = False
        self._happened: bool | None = None
        self.done = False
        self.result: Json = None

    def __enter__(self) -> Self:
        """Claim the effect, or find its result."""
        claim = self._claim
        self._pool()
        attempt, last = 1, 0
        while True:
            try:
                self._stream.append_events([claim.intended(attempt)])
            except UniqueKeyConflict:
                effect = look(self._stream, claim.key)
                if effect is None or attempt == last:
                    raise  # a stranger's unique_key: no effect is behind it
                last = attempt
                if (effect.tool, effect.arguments_sha256) != (claim.tool, claim.digest):
                    raise effect_events.conflict(
                        effect, f"tool {claim.tool!r} with arguments", claim.arguments
                    ) from None
                if effect.state == "succeeded":
                    self.done, self.result = True, effect.result
                    return self
                if effect.state != "failed":
                    raise effect_events.refusal(effect) from None
                attempt = effect.attempt + 1
            except StoreUnavailable as e:
                if e.outcome == "unknown":
                    e.add_note(
                        f"the tool was not called; if the intention was written, effect {describe(claim.key)} is "
                        f"indeterminate after its lease of {claim.lease:g} s: resolve it with succeeded=False then"
                    )
                raise
            else:
                self._attempt, self._open = attempt, True
                return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        """Where nothing was said, say that it is indeterminate."""
        if not self._open:
            return
        if isinstance(e, EffectFailed):
            self.fail(e.error)
            return
        self._open = False
        claim = self._claim
        reason = "its block was left without an outcome" if e is None else effect_events.told(e)
        logger(stream=self._stream.name, key=claim.key, tool=claim.tool).warning("effect indeterminate", reason=reason)
        try:
            self._stream.append_events([claim.indeterminate(self._attempt, reason, self._happened)])
        except (ConvstoreError, psycopg.Error) as failure:
            if e is None:
                raise
            e.add_note(
                f"effect {describe(claim.key)} is indeterminate once its lease of {claim.lease:g} s is over; "
                f"that could not be recorded now: {failure}"
            )

    def succeed(self, result: Json = None) -> None:
        """Record that it happened; ``result`` is what the tool returned.

        A result that is no JSON value can't be recorded: the effect is indeterminate then, known to have happened.

        Raises:
            EffectIndeterminate: the outcome could not be recorded; ``.result`` has the result.
            EffectRefused: somebody resolved it meanwhile.
        """
        self._check("succeed()")
        self._happened = True
        try:
            self._record(self._claim.succeeded(self._attempt, result), True, result)
        except InvalidItem as e:
            reason = f"{e.path.removeprefix('[0].data.')}: {e.reason}"
            self._record(self._claim.indeterminate(self._attempt, reason, True), True, result)
            raise self._unrecorded(reason, True, result) from e
        self.done, self.result = True, result

    def fail(self, error: Any) -> None:
        """Record that it did not happen, for certain: the key is free for the next attempt.

        ``error`` is a JSON value or an exception. Raises as ``succeed``.
        """
        self._check("fail()")
        self._happened = False
        self._record(self._claim.failed(self._attempt, error), False, None)

    def _check(self, what: str) -> None:
        if not self._open:
            reason = "it has its outcome already" if self.done or self._attempt else "its with block has not begun"
            raise EffectRefused(self._claim.key, f"{what}: {reason}", tool=self._claim.tool)

    def _record(self, event: Event, happened: bool, result: Any) -> None:
        """Append what became of it, again and again until the store's time-out: it can't be had a second time."""
        self._open = False
        try:
            for again in Retrying(
                retry=retry_if_exception_type(StoreUnavailable),
                wait=wait_random_exponential(multiplier=0.05, max=1.0),
                stop=stop_after_delay(self._pool().timeout),
                reraise=True,
            ):
                with again:
                    self._stream.append_events([event])
        except InvalidItem:
            raise
        except UniqueKeyConflict as e:
            effect = look(self._stream, self._claim.key)
            who = "another" if effect is None else f"{effect.settled_by!r}, it is {effect.state}"
            raise EffectRefused(
                self._claim.key,
                f"attempt {self._attempt} was resolved while it ran, by {who}; that it "
                f"{'happened' if happened else 'did not happen'} is not recorded: compare, and make good what is wrong",
                tool=self._claim.tool,
            ) from e
        except (ConvstoreError, psycopg.Error) as e:
            raise self._unrecorded(str(e), happened, result) from e
        except BaseException:  # cancelled: leaving the block records what is known
            self._open = True
            raise

    def _unrecorded(self, reason: str, happened: bool, result: Any) -> EffectIndeterminate:
        claim = self._claim
        by = claim.agent or self._stream.name
        return EffectIndeterminate(claim.key, claim.tool, self._attempt, by, reason, happened=happened, result=result)

    def _pool(self) -> Pooled:
        caller = self._stream.route.caller
        if not isinstance(caller, Pooled):
            raise EffectRefused(
                self._claim.key,
                "its intention has to be committed before the tool is called; run it outside of any transaction",
                tool=self._claim.tool,
            )
        return caller
