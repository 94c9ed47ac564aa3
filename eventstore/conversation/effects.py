# Generated from effects_async.py by ops/generate_sync.py: edit that one.
"""The effects of tools in the world: run once under a key, whoever retries, on whatever branch of the context."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from eventstore.conversation import effect_events
from eventstore.conversation.guarding import Guard, look
from eventstore.conversation.stream import Stream
from eventstore.errors import EffectRefused, InvalidItem, UniqueKeyConflict, describe
from eventstore.log.effects import list_effects
from eventstore.log.events import Event, Json
from projections.effects import Effect, fold_effects

LEASE: Final = 60.0


class Effects:
    """The effects of a conversation's context, all its streams and branches together."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def run(
        self,
        tool: str,
        call: Callable[[], Any],
        *,
        key: str,
        arguments: Json = None,
        lease: float = LEASE,
        agent: str | None = None,
        task_id: str | None = None,
        run_id: str | None = None,
    ) -> Json:
        """Call ``call`` where the key has no outcome yet, and return the recorded result.

        Not in a transaction: the intention has to be committed before the call.

        Args:
            tool: its name.
            call: takes nothing and returns a JSON value; may be a coroutine function in the async store. An exception
                makes the effect indeterminate, ``errors.EffectFailed`` says that it did not happen, for certain.
            key: any string but the empty one; the same key is the same effect, in the whole context.
            arguments: a JSON value, ``{}`` if not given; the same key with others is refused.
            lease: seconds that the call may take; after them others are told that it is indeterminate.
            agent: who runs it.
            task_id: the task that it belongs to.
            run_id: the run that it is made in.

        Raises:
            EffectPending: another caller runs it.
            EffectIndeterminate: nobody knows whether it happened, or its outcome could not be recorded.
            EffectCompensated: it was undone.
            IdempotencyConflict: the key stands for another tool or other arguments.
            EffectRefused: inside a transaction; or somebody resolved it while it ran.
        """
        if not callable(call):
            raise InvalidItem("call", f"{describe(call)}; give a function without parameters")
        if inspect.iscoroutinefunction(call):
            raise InvalidItem("call", f"{describe(call)} is a coroutine function; use AsyncEventStore")
        guard = self.guard(
            tool,
            key=key,
            arguments=arguments,
            lease=lease,
            agent=agent,
            task_id=task_id,
            run_id=run_id,
        )
        with guard as effect:
            if not effect.done:
                result = call()
                if inspect.isawaitable(result):
                    raise TypeError("the call gave an awaitable; use AsyncEventStore")
                effect.succeed(result)
            return effect.result

    def guard(
        self,
        tool: str,
        *,
        key: str,
        arguments: Json = None,
        lease: float = LEASE,
        agent: str | None = None,
        task_id: str | None = None,
        run_id: str | None = None,
    ) -> Guard:
        """Return a context manager around a tool's call: the same as ``run``, with the outcome said by its block.

        Where ``.done``, the effect has happened and ``.result`` is recorded; else the block runs the tool and calls
        ``succeed(result)``, or ``fail(error)`` where it did not happen, for certain. A block that is left without
        either, or by an exception, makes it indeterminate.
        """
        claim = effect_events.claim(tool, key, arguments, lease, agent, task_id, run_id)
        return Guard(self._stream, claim)

    def resolve(
        self,
        key: str,
        succeeded: bool,
        result: Json = None,
        *,
        attempt: int | None = None,
        reason: str | None = None,
        agent: str | None = None,
    ) -> Effect:
        """Say what became of an effect that is indeterminate; a repeat changes nothing. Return it as it is then.

        Args:
            key: the effect's.
            succeeded: whether it happened; if not, the key is free for the next attempt.
            result: what the tool returned, for those who ask from now on.
            attempt: which one was looked at; refused where another counts by now.
            reason: how that is known, for who reads the log.
            agent: who says so.

        Raises:
            EffectPending: its lease lasts.
            IdempotencyConflict: it has another outcome.
            EffectRefused: there is no such effect, or it is known to have happened.
        """
        if type(succeeded) is not bool:
            raise InvalidItem("succeeded", f"{describe(succeeded)}; give True or False")
        if not succeeded and result is not None:
            raise InvalidItem("result", f"{describe(result)}; what did not happen has none")
        effect = self.find(key)
        if attempt is not None and effect.attempt != attempt:
            raise EffectRefused(key, f"attempt {effect.attempt} counts by now, not {attempt}", tool=effect.tool)
        if effect.state == "pending":
            raise effect_events.refusal(effect)
        if effect.state == "indeterminate":
            if effect.happened not in (None, succeeded):
                known = "it happened" if effect.happened else "it did not happen"
                raise EffectRefused(key, f"{known}: {effect.reason}", tool=effect.tool)
            effect = self._settle(
                effect, effect_events.resolved(effect, succeeded, result, reason, agent), "indeterminate"
            )
        if (effect.state != "failed") != succeeded or not (result is None or effect_events.same(effect.result, result)):
            raise effect_events.conflict(
                effect, "a resolution that it succeeded" if succeeded else "that it failed", result
            )
        return effect

    def compensate(self, key: str, result: Json = None, *, agent: str | None = None) -> Effect:
        """Record that an effect that happened was undone; its key is spent then. A repeat changes nothing.

        Args:
            key: the effect's.
            result: what undoing it gave.
            agent: who undid it.

        Raises:
            EffectPending, EffectIndeterminate: whether it happened is not known; resolve it first.
            EffectRefused: it did not happen, or there is no such effect.
            IdempotencyConflict: it was undone with another result.
        """
        effect = self.find(key)
        if effect.state in ("pending", "indeterminate"):
            raise effect_events.refusal(effect)
        if effect.state == "failed":
            raise EffectRefused(key, "it did not happen, so there is nothing to undo", tool=effect.tool)
        if effect.state == "succeeded":
            effect = self._settle(effect, effect_events.compensated(effect, result, agent), "succeeded")
        if not effect_events.same(effect.compensation, result):
            raise effect_events.conflict(effect, "an undoing", result)
        return effect

    def list(self) -> list[Effect]:
        """Return the effects of the whole context, in the order in which they were begun."""
        stream = self._stream
        return fold_effects(*list_effects(stream.route.caller, stream.tenant, stream.name, stream.context))

    def find(self, key: str) -> Effect:
        """Return an effect by its key; ``EffectRefused`` where there is none."""
        effect = look(self._stream, effect_events.check_key(key))
        if effect is None:
            raise EffectRefused(key, "there is none with this key in the context")
        return effect

    def _settle(self, effect: Effect, event: Event, state: str) -> Effect:
        """Append an event that changes ``state``, or lose to who changed it meanwhile; give what it is then."""
        try:
            self._stream.append_events([event])
        except UniqueKeyConflict:
            changed = self.find(effect.key)
            if changed.state == state:
                raise
            return changed
        return self.find(effect.key)
