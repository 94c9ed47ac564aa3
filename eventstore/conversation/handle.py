# Generated from handle_async.py by ops/generate_sync.py: edit that one.
"""The handle of a conversation: a stream, and what its events come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from eventstore.compaction import Situation
from eventstore.conversation.artifacts import Artifacts
from eventstore.conversation.compacting import CompactResult, Wanted, compact
from eventstore.conversation.effects import Effects
from eventstore.conversation.facts import FactLog
from eventstore.conversation.handoff_view import Format, HandoffView, handoff_view
from eventstore.conversation.handoff_view import Wanted as ViewWanted
from eventstore.conversation.handoffs import HandoffLog
from eventstore.conversation.model_input import Responses, ServerState, model_input
from eventstore.conversation.receipts import ModelInput
from eventstore.conversation.retracting import clear, retract
from eventstore.conversation.stream import Stream
from eventstore.conversation.tasks import Tasks
from eventstore.conversation.transcripts import read_basis, read_originals, read_shown
from eventstore.conversation.views import View, read_view
from eventstore.errors import InvalidItem, StreamNotFound, describe
from eventstore.log.events import AppendResult, Entry, Json
from projections.transcript import Compaction


@dataclass(frozen=True, slots=True)
class Shown:
    """The transcript as of ``version``: its entries in order, and the compactions that it shows."""

    version: int
    entries: list[Entry]
    compactions: list[Compaction]


class Conversation(Stream):
    """One thread of events. Make one with ``store.conversation(name)``; many may stand for the same stream."""

    @property
    def responses(self) -> Responses:
        """The responses of models, and what each was made from."""
        return Responses(self)

    @property
    def tasks(self) -> Tasks:
        """The tasks of its context."""
        return Tasks(self)

    @property
    def artifacts(self) -> Artifacts:
        """The artifacts that came of it, by reference."""
        return Artifacts(self)

    @property
    def effects(self) -> Effects:
        """The effects of tools in the world: each runs once, whoever retries, on whatever branch."""
        return Effects(self)

    @property
    def facts(self) -> FactLog:
        """What is held true: constraints, decisions with their evidence, questions, to-dos."""
        return FactLog(self)

    @property
    def handoffs(self) -> HandoffLog:
        """Handing the work over to another agent, and what came of it."""
        return HandoffLog(self)

    def transcript(
        self,
        *,
        at: int | datetime | None = None,
        limit: int | None = None,
        pin_summaries: bool = False,
        pair_safe: bool = False,
        max_tokens: int | None = None,
    ) -> list[Json]:
        """Return the items that a model is shown: without what was retracted or cleared, with compactions applied.

        Two round trips at most, whatever the length. A stream that does not exist has none.

        Args:
            at: as of this version, or this moment (an aware datetime); None for now.
            limit: exactly the last N; None for all.
            pin_summaries: summaries and leading system items stay, whatever is cut; ``limit`` counts the others.
            pair_safe: never half a call: what the cut leaves without its other half goes too.
            max_tokens: the longest end that fits, by an estimate from bytes; pinned items stay.

        Raises:
            InvalidItem: ``at`` is no version of the stream, a moment without a time zone, or a number is below 0.
        """
        view = View(limit, pin_summaries, pair_safe, max_tokens)
        _, items = read_view(self._route.caller, self.tenant, self.name, at, view)
        return items

    def originals(self, *, at: int | datetime | None = None) -> list[Json]:
        """Return the items that the transcript stands for, with compactions undone.

        What was retracted or cleared stays out; ``events()`` has that too.
        """
        basis = read_basis(self._route.caller, self.tenant, self.name, at, None)
        if basis is None:
            return []
        found = read_originals(self._route.caller, self.tenant, self.name, basis)
        return [entry.item for entry in found]

    def shown(self, *, at: int | datetime | None = None, originals: bool = False) -> Shown:
        """Return the transcript, or its originals, with the versions of the entries and what summaries stand for.

        Raises:
            StreamNotFound: there is no such stream.
            InvalidItem: as ``transcript()``.
        """
        basis = read_basis(self._route.caller, self.tenant, self.name, at, None)
        if basis is None:
            raise StreamNotFound(self.name, self.tenant)
        read = read_originals if originals else read_shown
        entries = read(self._route.caller, self.tenant, self.name, basis)
        return Shown(basis.version, entries, list(basis.ranges.compactions))

    def version_at(self, time: datetime) -> int:
        """Return the last version that was recorded at or before a moment; 0 where there was none."""
        if not isinstance(time, datetime):
            raise InvalidItem("time", f"{describe(time)}; give an aware datetime")
        basis = read_basis(self._route.caller, self.tenant, self.name, time, 0)
        return 0 if basis is None else basis.version

    def retract(
        self,
        last: int | None = None,
        *,
        versions: Sequence[tuple[int, int]] | None = None,
        reason: str | None = None,
        agent: str | None = None,
        key: str | None = None,
    ) -> AppendResult | None:
        """Take items out of the transcript; they stay in the log. Return None where there is nothing to take.

        Args:
            last: the last N that the transcript shows, summaries included; or
            versions: ranges (from, to), both inclusive; inside a compacted range they leave the originals and mark the
                summary stale.
            reason: why, for who reads the log.
            agent: who retracts.
            key: any string; the same call with it again takes nothing more.

        Raises:
            InvalidItem: a range outside the stream, backwards, or across a summary.
        """
        done = retract(self, last, versions, reason=reason, agent=agent, key=key)
        return None if done is None else done[0]

    def pop(self, *, reason: str | None = None, agent: str | None = None, key: str | None = None) -> Json | None:
        """Take the last item out of the transcript and return it; None where there is none.

        Two pops at once take two different items. A summary that is last goes with all that it stood for.
        """
        done = retract(self, 1, None, reason=reason, agent=agent, key=key)
        return None if done is None or not done[1] else done[1][-1].item

    def clear(
        self, *, reason: str | None = None, agent: str | None = None, key: str | None = None
    ) -> AppendResult | None:
        """Take everything out of the transcript; the log keeps it. Return None where the stream does not exist."""
        return clear(self, reason=reason, agent=agent, key=key)

    def compact(
        self,
        compactor: Callable[[list[Json]], Any],
        *,
        covers: tuple[int, int] | None = None,
        keep_last: int | None = None,
        when: Callable[[Situation], bool] | None = None,
        basis: Literal["originals", "summary"] = "originals",
        merge: bool = False,
        agent: str | None = None,
        key: str | None = None,
    ) -> CompactResult | None:
        """Put summaries in the place of a range of the transcript; the originals stay in the log.

        What is appended while the summary is made stays, and a failed summary changes nothing.

        Args:
            compactor: is called with the items, returns those that stand for them; for the async store it may be a
                coroutine function. ``eventstore.compaction`` has some.
            covers: (from, to), inclusive; widened to whole compactions and to calls with their results. Default: all
                since the last compaction.
            keep_last: so many of the last entries stay as they are, at least.
            when: a policy of ``eventstore.compaction``; nothing is done where it says no.
            basis: what the compactor sees: ``"originals"``, or the ``"summary"`` that the transcript shows.
            merge: begin at the start, so that one summary replaces the earlier ones.
            agent: who compacts.
            key: any string; the same call with it again returns the first result, and calls no compactor.

        Returns:
            What was done; None where there was nothing to do.

        Raises:
            CompactionConflict: the transcript was cleared, retracted from or compacted meanwhile; nothing was written.
            InvalidItem: a range outside the stream or backwards, or the compactor returned no list of items.
        """
        return compact(self, Wanted(compactor, covers, keep_last, when, basis, merge), agent=agent, key=key)

    def model_input(
        self,
        *,
        server_state: ServerState = "off",
        limit: int | None = None,
        pin_summaries: bool = False,
        pair_safe: bool = False,
        max_tokens: int | None = None,
    ) -> ModelInput:
        """Return what to call a model with, and a receipt by which an auditor renders the same bytes again.

        Args:
            server_state: ``"off"``: the transcript. ``"response"``: what the provider has not seen since the last
                recorded response, with its ``previous_response_id``. ``"conversation"``: the same, with its
                ``conversation_id``. A clear, a retraction or a compaction begins a new chain.
            limit: as in ``transcript()``, like the rest; for ``"off"`` only.
            pin_summaries: see there.
            pair_safe: see there.
            max_tokens: see there.

        Raises:
            ServerStateConflict: a cut of the local history beside server state, or the other kind of server state.
        """
        view = View(limit, pin_summaries, pair_safe, max_tokens)
        return model_input(self._route.caller, self.tenant, self.name, server_state, view)

    def handoff_view(
        self,
        *,
        at: int | datetime | None = None,
        format: Format = "items",  # noqa: A002 - the name is public
        mapper: Callable[[list[Json]], Any] | None = None,
        markers: Sequence[str] | None = None,
        budget: object = None,
    ) -> HandoffView:
        """Return what the next agent is given: the originals, each once and by reference, however long the chain.

        Nothing is parsed and nothing is read back out of a rendering, so text can't forge an item.

        Args:
            at: as of this version or moment; None for now.
            format: ``"items"``, or ``"numbered"``: one assistant message with a numbered line an item.
            mapper: makes other items of them; for the async store it may be a coroutine function. What it gave is kept
                with its source range, digest and method, and the same source is mapped once.
            markers: the lines around the numbered block, kept with the view.
            budget: tokens (estimated), or a dict with ``tokens`` or ``bytes`` or both. Kept first: constraints and
                decisions; then artifacts and open questions; then summaries; then the history's end. With a budget
                those facts stand in the view, since what they came from may not.

        Raises:
            InvalidItem: a wrong format, marker, budget or ``at``; or the mapper gave no list of items.
        """
        return handoff_view(self, at, ViewWanted(format, mapper, markers, budget))
