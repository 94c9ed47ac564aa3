"""Compaction by the provider: ``POST /responses/compact``, through the caller's own client."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, Final

from eventstore.compaction.outcome import Compacted
from eventstore.errors import InvalidItem, describe
from eventstore.formats.chat import for_model
from eventstore.log.events import Json


class ResponsesCompact:
    """A compactor that sends the items to ``client.responses.compact`` and takes its output as the replacement.

    ``client`` has the interface of the ``openai`` package: ``OpenAI`` for the sync store, ``AsyncOpenAI`` for the async
    one. ``options`` go along with each call, as ``instructions=`` or ``timeout=``. Errors of the client are not caught.
    """

    method: Final = "responses.compact"

    def __init__(self, client: Any, *, model: str, **options: Any) -> None:
        if not callable(getattr(getattr(client, "responses", None), "compact", None)):
            raise InvalidItem("client", f"{describe(client)} has no responses.compact; openai's clients have it")
        if not isinstance(model, str) or not model:
            raise InvalidItem("model", f"{describe(model)} should be the name of a model")
        if taken := options.keys() & {"input", "previous_response_id"}:
            raise InvalidItem(min(taken), "the input is the range's items, nothing else")
        self._client = client
        self._model = model
        self._options = options

    def __call__(self, items: list[Json]) -> Compacted | Awaitable[Compacted]:
        """Give the provider's replacement for ``items``, or an awaitable of it where the client is async."""
        answer = self._client.responses.compact(
            model=self._model, input=[for_model(item) for item in items], **self._options
        )
        return _Later(answer, self._compacted) if inspect.isawaitable(answer) else self._compacted(answer)

    def _compacted(self, answer: Any) -> Compacted:
        output, usage = _part(answer, "output"), _part(answer, "usage")
        if not isinstance(output, list):
            raise InvalidItem("compactor.output", f"{describe(output)} came back; it should be a list of items")
        return Compacted([_plain(item) for item in output], self.method, self._model, _plain(usage))


class _Later:
    """An awaitable answer, to be finished; closing it before it is awaited closes the client's coroutine too."""

    def __init__(self, answer: Awaitable[Any], finish: Callable[[Any], Compacted]) -> None:
        self._answer = answer
        self._finish = finish

    def __await__(self) -> Generator[Any, Any, Compacted]:
        return self._finish((yield from self._answer.__await__()))

    def close(self) -> None:
        if inspect.iscoroutine(self._answer):
            self._answer.close()


def _part(answer: Any, name: str) -> Any:
    return answer.get(name) if isinstance(answer, Mapping) else getattr(answer, name, None)


def _plain(value: Any) -> Json:
    """Give a model of the client as the server sent it: nothing added, what the client does not know kept."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json", exclude_unset=True, warnings=False) if callable(dump) else value
