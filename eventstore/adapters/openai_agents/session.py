"""A ``Session`` of the OpenAI Agents SDK over a conversation of the store.

It has the SDK's semantics to the letter, and nothing is lost by them: a pop, a clear and a compaction are events, and
the log keeps what they took. Appends of a run carry its id and turn, and keys by which a retry is known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Self, cast
from weakref import WeakKeyDictionary

from agents import RunContextWrapper, SessionSettings, TResponseInputItem
from agents.memory import OpenAIResponsesCompactionArgs
from agents.result import RunResultBase

from eventstore.adapters.openai_agents import usage
from eventstore.adapters.openai_agents.appending import append, earlier_input
from eventstore.adapters.openai_agents.branches import end_of_turn, refuse_used
from eventstore.adapters.openai_agents.compaction import CompactionSettings
from eventstore.adapters.openai_agents.opening import opening_of
from eventstore.adapters.openai_agents.past import PastSession
from eventstore.adapters.openai_agents.plain import plain_items
from eventstore.adapters.openai_agents.runs import Run, SessionHooks, Tools, digest_of, events_of, new_run
from eventstore.adapters.openai_agents.server_state import refuse_server_state
from eventstore.conversation.handle_async import AsyncConversation
from eventstore.errors import CompactionConflict, InvalidItem, ServerStateConflict, describe
from eventstore.formats.chat import for_model
from eventstore.log.names import check_name
from eventstore.log.rows import StreamInfo
from eventstore.store_async import AsyncEventStore, AsyncScope
from eventstore.telemetry import logger
from projections.windows import window


class ConvstoreSession:
    """A conversation of the store as the SDK's session: ``Runner.run(agent, text, session=session)``.

    Args:
        session_id: the conversation's name, unique in the tenant.
        store: an ``AsyncEventStore``, shared by as many sessions as you like. One that is not awaited yet is opened at
            the first use, and closed by ``close()`` of the last session on it. Or a scope of it, as ``for_tenant()``.
        session_settings: the SDK's, or a dict like it. Its ``limit`` is exactly the last N items.
        context: the context of a conversation that is created; default: its own name. ``tags`` likewise.
        pair_safe: a limit never leaves half a call: then it is at most N items.
        pin_summaries: a limit keeps summaries and leading system items, and counts the others.
        compaction: compact after a turn. A compactor alone has the SDK's rule of when.
        run_id: the name of the one run that this object is for; see ``for_run``.
    """

    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        *,
        store: AsyncEventStore | AsyncScope,
        session_settings: SessionSettings | Mapping[str, Any] | None = None,
        context: str | None = None,
        tags: Mapping[str, str] | None = None,
        pair_safe: bool = False,
        pin_summaries: bool = False,
        compaction: CompactionSettings | Any | None = None,
        run_id: str | None = None,
    ) -> None:
        self.session_id = check_name("session_id", session_id)
        self.session_settings = _settings(session_settings)
        if compaction is not None and not isinstance(compaction, CompactionSettings):
            if not callable(compaction):
                raise InvalidItem("compaction", f"{describe(compaction)}; give CompactionSettings, or a compactor")
            compaction = CompactionSettings(compaction)
        self._store = store
        self._opening = opening_of(store)
        self._made: dict[str, Any] = {
            "context": context,
            "tags": tags,
            "pair_safe": pair_safe,
            "pin_summaries": pin_summaries,
            "compaction": compaction,
        }
        self._run_id = None if run_id is None else check_name("run_id", run_id)
        self._runs: WeakKeyDictionary[RunContextWrapper[Any], Run] = WeakKeyDictionary()
        self.tools = Tools()
        if self._opening is not None:
            self._opening.sessions.add(self)

    # --- the SDK's protocol ----------------------------------------------------------------------

    async def get_items(
        self, limit: int | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        """Return the last ``limit`` items in order; None: as many as ``session_settings`` says, or all.

        A run of ``for_run`` that is retried does not see the input that an earlier attempt stored: it is given anew.

        Raises:
            InvalidItem: ``limit`` is no number from 0 on.
        """
        run = None if wrapper is None else self.run_of(wrapper)
        if run is not None and run.given and wrapper is not None and run.begins(wrapper):
            chat = await self.chat()
            hidden = await earlier_input(chat, run)
            if hidden:
                limit = self._limit(limit)
                shown = (await chat.shown()).entries
                kept = window(
                    [entry for entry in shown if entry.version not in hidden],
                    limit=limit,
                    pin_summaries=self._made["pin_summaries"],
                    pair_safe=self._made["pair_safe"],
                )
                return [for_model(entry.item) for entry in kept]
        return await self.read(limit)

    async def add_items(
        self, items: Sequence[TResponseInputItem], *, wrapper: RunContextWrapper[Any] | None = None
    ) -> None:
        """Append items, all or none, in one round trip; none is no call.

        Raises:
            InvalidItem: a value that JSON can't hold exactly; names the place.
        """
        plain = plain_items(items)
        if plain:
            await self._append(plain, wrapper)

    async def pop_item(self, *, wrapper: RunContextWrapper[Any] | None = None) -> TResponseInputItem | None:
        """Take the last item out and return it, None where there is none; two at once take two."""
        chat = await self.chat()
        run = None if wrapper is None else self.run_of(wrapper)
        item = await chat.pop(agent=None if run is None else run.agent)
        return cast("TResponseInputItem | None", for_model(item))

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Take all items out; the log keeps them."""
        chat = await self.chat()
        run = None if wrapper is None else self.run_of(wrapper)
        await chat.clear(agent=None if run is None else run.agent)

    async def run_compaction(
        self, args: OpenAIResponsesCompactionArgs | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> None:
        """Compact as ``compaction=`` says; the runner calls it after a turn. The originals stay in the log.

        What is added meanwhile stays. A clear, a pop or another compaction that came meanwhile wins: the runner goes
        on, and a call by hand raises.

        Args:
            args: the SDK's; ``force`` compacts whatever the policy says.
            wrapper: the run's context, given by the runner.

        Raises:
            CompactionConflict: in a call by hand; nothing was written.
            InvalidItem: forced, and the session has no compactor.
            ServerStateConflict: ``compaction_mode`` asks for a summary of what the provider holds.
        """
        given: Mapping[str, Any] = args or {}
        settings: CompactionSettings | None = self._made["compaction"]
        if given.get("compaction_mode") == "previous_response_id":
            raise ServerStateConflict(
                "compaction_mode 'previous_response_id' summarizes what the provider holds; here the history is in the "
                "log, and the compactor is given its originals: leave it out, or say 'input'"
            )
        if settings is None:
            if given.get("force"):
                raise InvalidItem("compaction", f"session {self.session_id!r} was made without a compactor")
            return
        chat = await self.chat()
        try:
            await chat.compact(
                settings.compactor,
                when=None if given.get("force") else settings.when,
                keep_last=settings.keep_last,
                basis=settings.basis,
                merge=settings.merge,
                agent=None if wrapper is None else self.run_of(wrapper).agent,
            )
        except CompactionConflict as e:
            if wrapper is None:
                raise
            logger(session=self.session_id).info("not compacted", reason=str(e))

    # --- runs ------------------------------------------------------------------------------------

    def for_run(self, run_id: str) -> ConvstoreSession:
        """Give this session for one run and its retries: ``Runner.run(…, session=session.for_run("request-17"))``.

        The same run tried again stores its input once, and what came out equal. Its id is on each of its events. Use
        it for that run alone.
        """
        return self._like(self.session_id, run_id=run_id)

    def hooks(
        self,
        *,
        conversation_id: str | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
    ) -> SessionHooks:
        """Give hooks for ``Runner.run(…, session=session, hooks=session.hooks())``.

        They tell what the SDK does not tell a session: the agent and the turn of each event, the responses with what
        they used, and how long tools ran. The arguments are those of ``Runner.run`` that don't go with a session:

        Raises:
            ServerStateConflict: one of them is given.
        """
        refuse_server_state(
            self.session_id,
            conversation_id=conversation_id,
            previous_response_id=previous_response_id,
            auto_previous_response_id=auto_previous_response_id,
        )
        return SessionHooks(self)

    def run_of(self, context: RunContextWrapper[Any]) -> Run:
        """Give what is known of the run with this context."""
        run = self._runs.get(context)
        if run is None:
            run = self._runs[context] = new_run(self._run_id)
        return run

    async def flush(self, context: RunContextWrapper[Any]) -> None:
        """Record the responses of a run whose items were not stored, as after an interrupted turn."""
        await self._append([], context)

    async def store_run_usage(
        self, result: RunResultBase, *, conversation_id: str | None = None, previous_response_id: str | None = None
    ) -> None:
        """Record the responses of a finished run: ids, and what they used. What hooks have recorded stays as it is.

        Args:
            result: of the run.
            conversation_id: of a run without ``session=``, whose history the provider holds; or
            previous_response_id: the same.

        Raises:
            ServerStateConflict: both are given, or one for a run that had this session.
        """
        run = self._runs.get(result.context_wrapper)
        if run is not None and run.stored:
            refuse_server_state(
                self.session_id, conversation_id=conversation_id, previous_response_id=previous_response_id
            )
        await usage.record(
            await self.chat(),
            self.run_of(result.context_wrapper),
            result,
            conversation_id=conversation_id,
            previous_response_id=previous_response_id,
        )

    # --- branches and the past -------------------------------------------------------------------

    async def fork(
        self,
        session_id: str,
        *,
        at: int | None = None,
        at_item: str | None = None,
        at_turn: int | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> ConvstoreSession:
        """Branch off: a session that shares this one's items up to a point, and goes on by itself.

        Args:
            session_id: of the branch; not used yet.
            at: the last version that it shares; 0 for none. Default: all.
            at_item: the same, by an item's ``id``.
            at_turn: the same, by the number of a turn, as ``get_conversation_turns()`` counts them: it is the last
                that the branch has, whole. ``at_turn=2`` lets the third be asked in another way; 0 for none.
            tags: of the branch.

        Raises:
            StreamExists: the id is used.
            StreamNotFound: this session has no events yet.
            InvalidItem: no such item or turn, or more than one way to say where.
        """
        chat = await self.chat()
        if at_turn is not None:
            if at is not None or at_item is not None:
                raise InvalidItem("at_turn", "give one of at=, at_item= and at_turn=")
            at = await end_of_turn(chat, at_turn)
        branch = await chat.fork(session_id, at=at, at_item=at_item, tags=tags)
        await refuse_used(branch)
        return self._like(session_id, context=None, tags=None, run_id=None)

    async def branches(self) -> list[StreamInfo]:
        """Return the session that this one descends from and all its branches, parents first."""
        return await (await self.chat()).family()

    def at(self, version: int | datetime) -> PastSession:
        """Give the session as of a version or a moment, to be read only."""
        return PastSession(self, version)

    # --- what was used ---------------------------------------------------------------------------

    async def get_conversation_turns(self) -> list[dict[str, Any]]:
        """Return the turns: ``turn`` (from 1), ``version``, ``content`` (shortened) and ``full_content``."""
        return usage.listed(await usage.read(await self.chat()))

    async def get_session_usage(self) -> dict[str, int] | None:
        """Return what all recorded responses used, those of turns that are gone too; None where there is none."""
        return usage.session(await usage.read(await self.chat()))

    async def get_turn_usage(self, user_turn_number: int | None = None) -> list[dict[str, Any]] | dict[str, Any]:
        """Return what a turn used ({} where there is no such turn), or all turns of which something is recorded."""
        return usage.by_turn(await usage.read(await self.chat()), user_turn_number)

    async def get_tool_usage(self) -> list[tuple[str, int, int]]:
        """Return (tool, times called, turn), in order of turns."""
        return usage.by_tool(await usage.read(await self.chat()))

    # --- below -----------------------------------------------------------------------------------

    async def chat(self) -> AsyncConversation:
        """Return the conversation behind the session, for all that the store can do with it."""
        if self._opening is not None:
            await self._opening.ready(cast("AsyncEventStore", self._store))
        return self._chat_of(self._store)

    async def read(self, limit: int | None = None, *, at: int | datetime | None = None) -> list[TResponseInputItem]:
        """Return the items, as of now or of then, cut as the session's are."""
        items = await (await self.chat()).transcript(
            at=at,
            limit=self._limit(limit),
            pin_summaries=self._made["pin_summaries"],
            pair_safe=self._made["pair_safe"],
        )
        return [for_model(item) for item in items]

    async def close(self) -> None:
        """Leave the store; the last session on a store that sessions opened closes it. Again is no error."""
        if self._opening is not None:
            await self._opening.leave(cast("AsyncEventStore", self._store), self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def _chat_of(self, scope: AsyncScope) -> AsyncConversation:
        return scope.conversation(self.session_id, context=self._made["context"], tags=self._made["tags"])

    def _limit(self, limit: int | None) -> int | None:
        if limit is None and self.session_settings is not None:
            return self.session_settings.limit
        return limit

    def _like(self, session_id: str, **changes: Any) -> ConvstoreSession:
        settings = None if self.session_settings is None else dataclasses.replace(self.session_settings)
        made = self._made | {"store": self._store, "session_settings": settings} | changes
        return ConvstoreSession(session_id, **made)

    async def _append(self, items: list[Any], wrapper: RunContextWrapper[Any] | None) -> None:
        await self.chat()
        if wrapper is None:
            run = None if self._run_id is None else new_run(self._run_id)
            await append(self._store, self._chat_of, events_of(items, run, None, self.tools), None)
            return
        run = self.run_of(wrapper)
        events, waiting = events_of(items, run, wrapper, self.tools), list(run.responses)
        if not events:
            return
        digest = digest_of(events)
        key = run.input_key if run.begins(wrapper) else run.key(digest)
        await append(self._store, self._chat_of, events, key)
        run.stored[digest] += 1
        run.responses = [response for response in run.responses if response not in waiting]


def _settings(given: object) -> SessionSettings:
    if given is None:
        return SessionSettings()
    if isinstance(given, SessionSettings):
        return given
    known = {each.name for each in dataclasses.fields(SessionSettings)}
    if not isinstance(given, Mapping) or not given.keys() <= known:
        raise InvalidItem("session_settings", f"{describe(given)}; give SessionSettings, or a dict of {sorted(known)}")
    return SessionSettings(**given)
