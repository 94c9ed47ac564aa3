"""What a model is given: the transcript, or with server state what the provider has not seen; and its responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from eventstore.conversation.receipts import (
    ModelInput,
    Receipt,
    Seen,
    check_sources,
    read_receipt,
    receipt_of,
)
from eventstore.conversation.stream_async import AsyncStream
from eventstore.conversation.transcripts_async import Basis, read_basis_async
from eventstore.conversation.views_async import View, read_view_async
from eventstore.errors import InvalidItem, ServerStateConflict, StreamNotFound, describe
from eventstore.formats.chat import for_model
from eventstore.log.connection_async import AsyncCaller
from eventstore.log.events import AppendResult, Event, Json, RecordedEvent
from eventstore.log.names import storable
from eventstore.log.ranges_async import read_ranges_async
from eventstore.log.read_async import events_async, find_async, lineage_async
from eventstore.log.rows import Part
from projections.server_state import Held, Response, furthest, held, unseen

ServerState: TypeAlias = Literal["off", "response", "conversation"]
STATES: Final = ("off", "response", "conversation")
RECORDED: Final = "response.recorded"


async def model_input_async(
    caller: AsyncCaller, tenant: str, stream: str, server_state: ServerState, view: View
) -> ModelInput:
    """Give what to call a model with, as of now, and the receipt for it."""
    if server_state not in STATES:
        raise InvalidItem("server_state", f"{describe(server_state)}; give one of {', '.join(STATES)}")
    if server_state == "off":
        version, items = await read_view_async(caller, tenant, stream, None, view)
        shown = [for_model(item) for item in items]
        return ModelInput(shown, receipt_of(stream, version, view.options(), shown))
    if view.options():
        raise ServerStateConflict(
            f"{', '.join(view.options())} cuts the local history, but with server_state={server_state!r} the provider "
            "holds it; leave them out, or use server_state='off'"
        )
    basis = await read_basis_async(caller, tenant, stream, None, 0)
    version = 0 if basis is None else basis.version
    state = None if basis is None else await _held(caller, tenant, stream, basis, server_state)
    options: dict[str, Json] = {"server_state": server_state}
    if state is not None:
        name = "previous_response_id" if server_state == "response" else "conversation_id"
        options[name] = state.response_id if server_state == "response" else state.conversation_id
        options["after"] = [state.seen, state.version, *(state.output or ())]
    items = await _increment(caller, tenant, stream, version, options)
    return ModelInput(
        items,
        receipt_of(stream, version, options, items),
        options.get("previous_response_id"),
        options.get("conversation_id"),
    )


async def _held(caller: AsyncCaller, tenant: str, stream: str, basis: Basis, server_state: ServerState) -> Held | None:
    last = await find_async(caller, tenant, stream, kind=RECORDED, at=basis.version)
    control = basis.ranges.control
    if last is None or last.version < control:
        return None
    recorded = [last]
    state = held(Response(last.version, last.data), control)
    since = control if state is None else state.seen
    if last.version - since > 1:  # one that was recorded earlier may have been given more
        between = events_async(caller, tenant, stream, since + 1, last.version - 1, [RECORDED])
        recorded += [event async for event in between if event.type == RECORDED]
    parts = None
    if any(event.stream != stream or _receipt_of(event) != event.stream for event in recorded):
        parts = await lineage_async(caller, tenant, stream)
    responses = [Response(event.version, event.data, _shared(event, stream, parts)) for event in recorded]
    state = furthest(responses, control)
    if state is None:
        return None
    if server_state == "response" and state.conversation_id is not None:
        raise ServerStateConflict(
            f"the provider holds this history as conversation {state.conversation_id!r}: ask for "
            "server_state='conversation', or begin a new chain by clear() or compact()"
        )
    return state if server_state == "response" or state.conversation_id is not None else None


def _receipt_of(event: RecordedEvent) -> str:
    receipt = event.data.get("receipt")
    return event.stream if receipt is None else str(receipt["stream"])


def _shared(event: RecordedEvent, stream: str, parts: Sequence[Part] | None) -> bool:
    """Tell whether a response's call was given this stream's history, and a conversation of its is not the parent's."""
    if event.stream != stream and event.data.get("conversation_id") is not None:
        return False
    named = _receipt_of(event)
    if parts is None or named in (event.stream, stream):
        return True
    return any(part.stream == named and event.data["receipt"]["version"] <= part.last for part in parts)


async def _increment(
    caller: AsyncCaller, tenant: str, stream: str, version: int, options: Mapping[str, Json]
) -> list[Json]:
    """Give the items of a view with server state: a function of the stream, the version and the options."""
    if "after" not in options:
        _, items = await read_view_async(caller, tenant, stream, version, View())
        return [for_model(item) for item in items]
    seen, recorded, *output = options["after"]
    new = await read_ranges_async(caller, tenant, stream, [(seen + 1, version, False)], None)
    state = Held(recorded, seen, "", None, (output[0], output[1]) if output else None)
    return [for_model(entry.item) for entry in unseen(new, state)]


class AsyncResponses:
    """The responses of models in a conversation, and what each was made from."""

    def __init__(self, stream: AsyncStream) -> None:
        self._stream = stream

    async def record(
        self,
        response_id: str,
        *,
        receipt: Receipt | Mapping[str, Json] | None = None,
        output: AppendResult | tuple[int, int] | None = None,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        model: str | None = None,
        usage: Mapping[str, Any] | None = None,
        agent: str | None = None,
        run_id: str | None = None,
        key: str | None = None,
    ) -> AppendResult:
        """Record a model's response, after its output items were appended.

        Args:
            response_id: the provider's.
            receipt: ``.receipt`` of the ``model_input()`` that it was called with.
            output: what the append of its output returned, or its (first, last) version; needed where another call may
                be made of this conversation at the same time.
            previous_response_id: as given to the provider; default: what the receipt was made to follow; or
            conversation_id: the same.
            model: its name.
            usage: what the provider counted, as it gave it.
            agent: whose call it was.
            run_id: the run that it was made in.
            key: any string; the same call with it again is the same record.

        Raises:
            ServerStateConflict: one history was given twice: by both ids, or by an id beside a local history.
        """
        given = read_receipt(receipt)
        if given is not None and previous_response_id is None and conversation_id is None:
            previous_response_id, conversation_id = given.follows
        check_sources(given, previous_response_id, conversation_id)
        if isinstance(output, AppendResult):
            output = output.first_version, output.last_version
        data: dict[str, Json] = {"response_id": response_id}
        if given is not None:
            data["receipt"] = given.as_json()
        about = {
            "output": None if output is None else list(output),
            "previous_response_id": previous_response_id,
            "conversation_id": conversation_id,
            "model": model,
            "usage": None if usage is None else dict(usage),
        }
        data |= {name: value for name, value in about.items() if value is not None}
        event = Event(type=RECORDED, data=data, subject=response_id, agent=agent, run_id=run_id)
        return await self._stream.append_events([event], key=key)

    async def seen(self, response_id: str) -> Seen:
        """Render what the model was given at a recorded response, byte for byte.

        Raises:
            StreamNotFound: there is no such stream.
            InvalidItem: no such response was recorded here, or without a receipt.
        """
        found = await self._find(response_id)
        receipt = read_receipt(found.data.get("receipt"))
        if receipt is None:
            raise InvalidItem(
                "response_id", f"{response_id!r} was recorded at version {found.version} without a receipt"
            )
        caller, tenant = self._stream.route.caller, self._stream.tenant
        options = dict(receipt.options)
        if options.get("server_state", "off") == "off":
            view = View.of(options)
            _, shown = await read_view_async(caller, tenant, receipt.stream, receipt.version, view)
            items = [for_model(item) for item in shown]
        else:
            items = await _increment(caller, tenant, receipt.stream, receipt.version, options)
        again = receipt_of(receipt.stream, receipt.version, options, items)
        return Seen(
            response_id,
            found.version,
            items,
            receipt,
            again.sha256 == receipt.sha256,
            found.data.get("previous_response_id"),
            found.data.get("conversation_id"),
            found.data.get("model"),
            found.data.get("usage"),
        )

    async def _find(self, response_id: str) -> RecordedEvent:
        stream = self._stream
        subject = storable("response_id", response_id)
        found = await find_async(stream.route.caller, stream.tenant, stream.name, kind=RECORDED, subject=subject)
        if found is None:
            if not await stream.head():
                raise StreamNotFound(stream.name, stream.tenant)
            raise InvalidItem(
                "response_id", f"{response_id!r}: no such response was recorded in stream {stream.name!r}"
            )
        return found
