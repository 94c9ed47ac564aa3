"""Handing work over: an envelope is drafted, offered, and accepted or not; then committed, or failed and rolled back.

Each step is an event. It is decided on as of a head, and appended only where no event that could change the decision
came since; else it is decided anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from eventstore.conversation.control_async import find_done_async
from eventstore.conversation.drafting_async import draft_async
from eventstore.conversation.facts_async import new_id
from eventstore.conversation.handoff_events import end_of, offered, step
from eventstore.conversation.handoff_rules import (
    check_acceptance,
    check_artifacts,
    check_complete,
    check_context,
    check_facts,
    check_here,
    check_open,
    check_task,
    notes,
    told,
)
from eventstore.conversation.receiving_async import receive_async
from eventstore.conversation.rolling_back_async import RolledBack, roll_back_async
from eventstore.conversation.steps_async import (
    COURSE,
    REVOCATIONS,
    append_step_async,
    facts_of_async,
    look_around_async,
    look_at_handoff_async,
    look_at_line_async,
)
from eventstore.conversation.stream_async import AsyncStream
from eventstore.errors import HandoffRefused, IdempotencyConflict, UniqueKeyConflict, describe
from eventstore.log.catalogue.envelope import Envelope
from eventstore.log.events import Event, Json, RecordedEvent
from projections.handoffs import (
    ACCEPTED,
    COMMITTED,
    FAILED,
    OFFERED,
    REJECTED,
    TYPES,
    Handoff,
    course,
    fold,
    inherited,
)
from projections.surroundings import EFFECTS, effects_of

HandoffList: TypeAlias = list[Handoff]  # by a name of its own: below, list is the method


@dataclass(frozen=True, slots=True)
class Offered:
    """An offer: the ``attempt``-th of its handoff, at ``version``."""

    handoff_id: str
    attempt: int
    version: int
    deduplicated: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Ack:
    """The one acknowledgement of a handoff, at ``version``; ``deduplicated`` where it was given before."""

    ack_id: str
    deduplicated: bool
    handoff_id: str
    version: int


class AsyncHandoffLog:
    """The handoffs of a conversation.

    Every writing call takes ``key=``, any string: the same call with it again writes nothing and returns the first
    result. What is refused raises ``HandoffRefused`` with the field that forbids it, and has written nothing.
    """

    def __init__(self, stream: AsyncStream) -> None:
        self._stream = stream

    async def draft(self, *, goal: str, to: str, agent: str | None = None, **fields: Any) -> Envelope:
        """Make an envelope from what the conversation holds; nothing is written.

        Constraints, confirmed decisions, open questions, to-dos, current artifacts, effects and ``context_version`` are
        folded from the lineage. The task is the last one opened that is not over, the budget that of the last handoff.

        Args:
            goal: what is to be done.
            to: the receiver, ``owner`` of the envelope.
            agent: the giver, ``from_agent``; default: who the work was last handed to.
            fields: any field of the envelope, instead of what is folded.

        Raises:
            HandoffRefused: a field is not of its type; or there is no task, and none is given as ``task_id``.
        """
        return await draft_async(self._stream, goal, to, agent, fields)

    async def offer(
        self,
        envelope: Envelope | Mapping[str, Json],
        allow_incomplete: bool = False,
        *,
        agent: str | None = None,
        key: str | None = None,
    ) -> Offered:
        """Offer a handoff to its owner; the same id again, while nobody has answered, is the next attempt.

        Args:
            envelope: as ``draft()`` makes it. ``context_version`` and ``from_agent`` are filled in.
            allow_incomplete: although ``envelope.check()`` names what is missing; this is recorded.
            agent: who offers; default ``from_agent``.
            key: any string; makes a retry safe.

        Raises:
            HandoffRefused: a decision or constraint that is not held here, a missing artifact version, an unknown or
                closed task, another context, a blank goal, an id that is answered or used elsewhere, too large.
        """
        stream = self._stream
        given = Envelope.load(envelope.as_json() if isinstance(envelope, Envelope) else envelope)
        if not allow_incomplete:
            check_complete(given)
        event_id = new_id(stream, key)
        while True:
            earlier = await self._made(key, OFFERED, given.handoff_id)
            if earlier is not None:
                return Offered(given.handoff_id, earlier.data["attempt"], earlier.version, deduplicated=True)
            look = await look_around_async(stream, given)
            check_context(given, look.context)
            check_task(given.task_id, look.about, known=True)
            check_artifacts(given, look.about)
            if given.decisions or given.constraints:
                check_facts(given, await facts_of_async(stream, look))
            before = fold(each for each in look.about if each.type in TYPES).get(given.handoff_id)
            if before is not None and not check_here(before, given.handoff_id, stream.name).can_be_offered:
                raise HandoffRefused("handoff_id", f"{given.handoff_id!r} is taken: {told(before)}; use a new id")
            giver = given.from_agent or agent or (look.last.data["by"] if look.last else None)
            event = offered(given, look.head, giver, 1 if before is None else before.attempt + 1, event_id)
            try:
                result = await append_step_async(stream, [event], look.head, [*TYPES, *REVOCATIONS])
            except UniqueKeyConflict:
                continue  # offered elsewhere meanwhile: looking again tells where
            if result is not None:
                return Offered(
                    given.handoff_id,
                    event.data["attempt"],
                    result.last_version,
                    deduplicated=result.deduplicated and key is not None,
                )

    async def receive(self, text: str | bytes, *, key: str | None = None) -> Envelope:
        """Take in an envelope that was made elsewhere, given as JSON text, as an offer to be accepted here.

        Its decisions that are not proved here become open questions; its constraints, open questions and to-dos become
        facts. The same envelope again, while it is open, changes nothing.

        Returns:
            The envelope as it was recorded.

        Raises:
            HandoffRefused: no envelope, of a newer schema version, of another context, or of an id that is taken.
        """
        return await receive_async(self._stream, text, key)

    async def accept(self, handoff_id: str, by: str, *, key: str | None = None) -> Ack:
        """Acknowledge a handoff. However often and from wherever it is called, there is one acknowledgement.

        Args:
            handoff_id: of an open offer.
            by: the receiver, ``owner`` of the envelope.
            key: any string; not needed for a retry, which is safe by the id alone.

        Raises:
            HandoffRefused: ``handoff_id``: not open here; ``owner``: another receiver; ``status``: not ready;
                ``context_version``: not newer than the last accepted; ``artifacts``: a missing version; ``decisions``,
                ``constraints``: not held here (any more); ``task_id``: closed; ``schema_version``: of newer code.
        """
        stream = self._stream
        if type(by) is not str or not by:
            raise HandoffRefused("owner", f"{describe(by)}; by= names the receiver")
        while True:
            await self._made(key, ACCEPTED, handoff_id)
            look = await look_at_handoff_async(stream, handoff_id)
            handoff = fold(look.about).get(handoff_id)
            if handoff is not None and handoff.ack_id is not None and handoff.accepted is not None:
                if handoff.by != by:
                    raise HandoffRefused("owner", f"{handoff.by!r} has accepted it, at version {handoff.accepted}")
                return Ack(handoff.ack_id, True, handoff_id, handoff.accepted)
            handoff = check_open(handoff, handoff_id, stream.name)
            envelope = Envelope.load(handoff.envelope)
            check_acceptance(envelope, by, look.last)
            check_context(envelope, look.context)
            around = await look_around_async(stream, envelope)
            check_task(envelope.task_id, around.about, known=False)
            check_artifacts(envelope, around.about)
            if envelope.decisions or envelope.constraints:
                check_facts(envelope, await facts_of_async(stream, around))
            event_id = new_id(stream, key)
            data: dict[str, Json] = {"handoff_id": handoff_id, "ack_id": f"ack_{event_id.hex}", "by": by}
            if envelope.context_version is not None:
                data["context_version"] = envelope.context_version
            event = Event(
                type=ACCEPTED,
                data=data,
                subject=handoff_id,
                agent=by,
                task_id=envelope.task_id,
                unique_key=f"handoff/{handoff_id}/accepted",
                event_id=event_id,
            )
            try:
                result = await append_step_async(stream, [event], look.head, [*TYPES, *REVOCATIONS])
            except UniqueKeyConflict:
                continue  # accepted meanwhile
            if result is not None:
                return Ack(data["ack_id"], False, handoff_id, result.last_version)

    async def reject(self, handoff_id: str, reason: str, *, by: str | None = None, key: str | None = None) -> Handoff:
        """Decline an open offer."""
        return await self._answer(REJECTED, handoff_id, {"reason": reason}, by, key)

    async def commit(self, handoff_id: str, *, by: str | None = None, key: str | None = None) -> Handoff:
        """Record that the work which was handed over is done."""
        return await self._answer(COMMITTED, handoff_id, {}, by, key)

    async def fail(
        self,
        handoff_id: str,
        reason: str,
        effects: Iterable[str | Mapping[str, Json]] | None = None,
        *,
        by: str | None = None,
        key: str | None = None,
    ) -> Handoff:
        """Record that a handoff came to nothing: accepted, or not even acknowledged.

        ``return_to`` of what is returned names where work goes on from: the last accepted or committed handoff before,
        the version of that step, and its artifacts.

        Args:
            handoff_id: an open offer, or an accepted handoff.
            reason: why, such as ``"no acknowledgement"``.
            effects: those that happened, by key or as objects with one; default: what the log holds since the offer.
            by: who says so.
            key: any string; makes a retry safe.
        """
        stream = self._stream
        given = None if effects is None else notes(effects)
        event_id = new_id(stream, key)
        while await self._made(key, FAILED, handoff_id) is None:
            look = await look_at_line_async(stream, [*COURSE, *EFFECTS])
            state = course(look.line, stream.name)
            handoff = state.handoffs.get(handoff_id)
            if handoff is None or handoff.status not in ("offered", "accepted") or handoff.stream != stream.name:
                await self._refuse(handoff_id, "offered or accepted")
                continue
            found = effects_of(look.line).values()
            happened = [each.note() for each in found if each.stands and each.version > handoff.offered]
            data: dict[str, Json] = {
                "handoff_id": handoff_id,
                "reason": reason,
                "effects": happened if given is None else given,
                "return_to": state.return_point(handoff_id).as_json(),
            }
            event = step(FAILED, data, by, end_of(handoff), event_id)
            if await append_step_async(stream, [event], look.head, [*TYPES, *EFFECTS]) is not None:
                break
        return await self._one(handoff_id)

    async def roll_back(
        self,
        to: str | None = None,
        task: str | None = "input-required",
        *,
        agent: str | None = None,
        key: str | None = None,
    ) -> RolledBack:
        """Return to the last accepted or committed handoff, never to the last message.

        What was handed over after it is failed and rolled back, the artifacts of that point are the current ones again,
        and its tasks wait for input. The transcript stays as it is.

        Args:
            to: an earlier accepted or committed handoff, to return to instead.
            task: the state that the tasks concerned are set to; one that is over stays so. None leaves all of them.
            agent: who does it.
            key: any string; makes a retry safe.

        Raises:
            HandoffRefused: ``to`` is no handoff that stands in this lineage, or there is none at all.
        """
        return await roll_back_async(self._stream, to, task, agent, key)

    async def list(self) -> HandoffList:
        """Return the handoffs of this conversation in the order of their first offers, inherited ones included.

        A branch does not inherit an offer that was open at its fork point.
        """
        stream = self._stream
        events = stream.events(types=TYPES)
        found = [event async for event in events]  # async only
        # sync: found = list(events)
        return [*inherited(fold(found), stream.name).values()]

    async def _answer(
        self, kind: str, handoff_id: str, more: dict[str, Json], by: str | None, key: str | None
    ) -> Handoff:
        stream = self._stream
        wanted = "offered" if kind == REJECTED else "accepted"
        event_id = new_id(stream, key)
        while await self._made(key, kind, handoff_id) is None:
            look = await look_at_handoff_async(stream, handoff_id)
            handoff = check_here(fold(look.about).get(handoff_id), handoff_id, stream.name)
            if handoff.status != wanted:
                raise HandoffRefused("handoff_id", f"{handoff_id!r} should be {wanted}, but is {told(handoff)}")
            event = step(kind, {"handoff_id": handoff_id} | more, by, end_of(handoff), event_id)
            if await append_step_async(stream, [event], look.head, TYPES) is not None:
                break
        return await self._one(handoff_id)

    async def _refuse(self, handoff_id: str, wanted: str) -> None:
        """Say why a handoff can't be ended here."""
        look = await look_at_handoff_async(self._stream, handoff_id)
        handoff = check_here(fold(look.about).get(handoff_id), handoff_id, self._stream.name)
        if handoff.status not in ("offered", "accepted"):
            raise HandoffRefused("handoff_id", f"{handoff_id!r} should be {wanted}, but is {told(handoff)}")

    async def _one(self, handoff_id: str) -> Handoff:
        return fold((await look_at_handoff_async(self._stream, handoff_id)).about)[handoff_id]

    async def _made(self, key: str | None, kind: str, handoff_id: str) -> RecordedEvent | None:
        """Give the step that ``key`` made before; refuse it where it stands for another handoff."""
        earlier = await find_done_async(self._stream, key, kind)
        if earlier is not None and earlier.data["handoff_id"] != handoff_id:
            raise IdempotencyConflict(f"key {key!r}", earlier.data["handoff_id"], handoff_id)
        return earlier
