"""Runs of the SDK that use a session: who made what, in which turn, and which append is a repeat.

The SDK gives a session that asks for it the run's context wrapper, so runs are told apart without any help. Hooks add
what it does not tell: the agent, the responses with what they used, the tools.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agents import Agent, ModelResponse, RunContextWrapper, RunHooks, Tool
from pydantic import BaseModel

from eventstore.log import codec
from eventstore.log.events import ITEM, Event, Json

if TYPE_CHECKING:
    from eventstore.adapters.openai_agents.session import ConvstoreSession

RECORDED: Final = "response.recorded"
_PREFIX: Final = "openai-agents"
_TOOLS: Final = 1_000


@dataclass(eq=False, slots=True)
class Run:
    """One run. ``given`` says that the caller named it, so that a retry of it has the same name."""

    run_id: str
    given: bool
    agent: str | None = None
    turn: int | None = None
    """The model call that it is in, from 1; None where no hooks tell."""
    stored: Counter[str] = field(default_factory=Counter)
    responses: list[Event] = field(default_factory=list)
    """Those that are recorded together with the items of their turn."""

    def begins(self, context: RunContextWrapper[Any]) -> bool:
        """Say whether no model was called yet, and nothing stored."""
        return not self.stored and not self.turn and not context.usage.requests

    @property
    def input_key(self) -> str:
        """The key of the append of its input."""
        return f"{_PREFIX}/{self.run_id}/input"

    def key(self, digest: str) -> str:
        """Give the key of an append of a batch: that of the same append when this run is retried."""
        return f"{_PREFIX}/{self.run_id}/{digest}/{self.stored[digest]}"


def digest_of(events: Sequence[Event]) -> str:
    """Tell batches apart by what they hold."""
    whole = hashlib.sha256()
    for index, event in enumerate(events):
        data = codec.encode(event.data, f"[{index}]")[1]
        whole.update(b"%d %s " % (len(data), event.type.encode()) + data)
    return whole.hexdigest()[:32]


def new_run(run_id: str | None) -> Run:
    """Begin a run, under the caller's name for it or a new one."""
    return Run(run_id or uuid.uuid4().hex, run_id is not None)


def events_of(
    items: Sequence[Json], run: Run | None, context: RunContextWrapper[Any] | None, tools: Tools | None
) -> list[Event]:
    """Make the events of an append: the items, then the responses that they came in."""
    if run is None:
        return [Event(type=ITEM, data=item) for item in items]
    turn = run.turn
    if turn is None:
        turn = context.usage.requests if context is not None else 0
    events = []
    for item in items:
        agent, about = (None, {}) if tools is None else tools.of(item)
        by_user = isinstance(item, dict) and item.get("role") == "user"
        events.append(
            Event(
                type=ITEM,
                data=item,
                agent=None if by_user else agent or run.agent,
                run_id=run.run_id,
                metadata={"turn": turn} | about,
            )
        )
    return events + run.responses


class Tools:
    """How long tools ran, until their outputs are stored. It forgets the oldest of more than 1,000."""

    def __init__(self) -> None:
        self._begun: OrderedDict[str, float] = OrderedDict()
        self._done: OrderedDict[str, tuple[str, dict[str, Json]]] = OrderedDict()

    def start(self, call_id: str) -> None:
        """Note that a call begins."""
        self._begun[call_id] = time.perf_counter()
        while len(self._begun) > _TOOLS:
            self._begun.popitem(last=False)

    def end(self, call_id: str, name: str, agent: str) -> None:
        """Note that a call ended."""
        begun = self._begun.pop(call_id, None)
        about: dict[str, Json] = {"tool": name}
        if begun is not None:
            about["seconds"] = round(time.perf_counter() - begun, 6)
        self._done[call_id] = agent, about
        while len(self._done) > _TOOLS:
            self._done.popitem(last=False)

    def of(self, item: Json) -> tuple[str | None, dict[str, Json]]:
        """Give what is known of the call that an item is the output of: its agent, and more."""
        if not isinstance(item, dict) or not str(item.get("type")).endswith("_output"):
            return None, {}
        call_id = item.get("call_id")
        return self._done.get(call_id, (None, {})) if isinstance(call_id, str) else (None, {})


class SessionHooks(RunHooks[Any]):
    """Hooks for ``Runner.run(…, hooks=session.hooks())``: agent and turn on each event, responses, tools.

    For hooks of your own, subclass it and call ``super()``.
    """

    def __init__(self, session: ConvstoreSession) -> None:
        self._session = session

    async def on_llm_start(
        self, context: RunContextWrapper[Any], agent: Agent[Any], system_prompt: str | None, input_items: list[Any]
    ) -> None:
        """Note whose turn it is; record responses whose items were never stored."""
        run = self._session.run_of(context)
        if run.responses:
            await self._session.flush(context)
        run.agent, run.turn = agent.name, (run.turn or 0) + 1

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse) -> None:
        """Note the response: it is recorded in the append of its items."""
        run = self._session.run_of(context)
        run.responses.append(response_event(response, run, run.turn or 1, model=model_of(agent)))

    async def on_tool_start(self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool) -> None:
        """Note when a tool begins."""
        if call_id := getattr(context, "tool_call_id", None):
            self._session.tools.start(call_id)

    async def on_tool_end(self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool, result: object) -> None:
        """Note how long it ran."""
        if call_id := getattr(context, "tool_call_id", None):
            self._session.tools.end(call_id, tool.name, agent.name)


def response_event(response: ModelResponse, run: Run, number: int, *, model: str | None) -> Event:
    """Make the event of a response, the ``number``-th of its run. One without an id is named after the run."""
    response_id = id_of(response, run, number)
    data: dict[str, Json] = {"response_id": response_id, "usage": usage_of(response)}
    if model is not None:
        data["model"] = model
    return Event(
        type=RECORDED, data=data, subject=response_id, agent=run.agent, run_id=run.run_id, metadata={"turn": number}
    )


def id_of(response: ModelResponse, run: Run, number: int) -> str:
    """Give the provider's id of a response, or one made of the run's."""
    return response.response_id or f"{run.run_id}/{number}"


def usage_of(response: ModelResponse) -> dict[str, Json]:
    """Give what the provider counted."""
    given = response.usage
    usage: dict[str, Json] = {
        "requests": given.requests,
        "input_tokens": given.input_tokens,
        "output_tokens": given.output_tokens,
        "total_tokens": given.total_tokens,
    }
    for name in ("input_tokens_details", "output_tokens_details"):
        details = getattr(given, name, None)
        if isinstance(details, BaseModel):
            usage[name] = details.model_dump(mode="json", exclude_none=True)
    return usage


def model_of(agent: Agent[Any]) -> str | None:
    """Name an agent's model where it says."""
    name = agent.model if isinstance(agent.model, str) else getattr(agent.model, "model", None)
    return name if isinstance(name, str) and name else None
