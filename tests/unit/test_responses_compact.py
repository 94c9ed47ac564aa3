"""Compaction by the provider: through a small client of the same interface, and through openai's own."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from eventstore.compaction import Compacted, ResponsesCompact, checked, method_of
from eventstore.errors import InvalidItem

OUTPUT = [
    {
        "type": "message",
        "id": "msg_1",
        "role": "user",
        "status": "completed",
        "content": [{"type": "input_text", "text": "é"}],
    },
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA", "new_field": {"of": "the server"}},
]
USAGE = {
    "input_tokens": 139,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 438,
    "output_tokens_details": {"reasoning_tokens": 64},
    "total_tokens": 577,
}
ANSWER = {"id": "resp_1", "object": "response.compaction", "created_at": 1764967971, "output": OUTPUT, "usage": USAGE}
EXPECTED = Compacted(OUTPUT, "responses.compact", "gpt-x", USAGE)
ITEMS = [
    {"role": "user", "content": "é", "chat": {"message": {"keys": ["role", "content"]}}},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
]
SENT = [{"role": "user", "content": "é"}, ITEMS[1]]


class Provider:
    """An HTTP server that answers as the provider does; ``status`` other than 200 is an error."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.status = 200
        self.answer: Any = ANSWER


@pytest.fixture
def provider() -> Iterator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            there.requests.append((self.path, json.loads(body)))
            answer = json.dumps(there.answer if there.status == 200 else {"error": {"message": "no"}}).encode()
            self.send_response(there.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        there = Provider(f"http://127.0.0.1:{server.server_port}/v1")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield there
        server.shutdown()
        thread.join()


class Client:
    """The least that has the interface: answers are dicts."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.responses = self

    def compact(self, **body: Any) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.url}/responses/compact", json.dumps(body).encode())
        with urllib.request.urlopen(request) as answer:
            found: dict[str, Any] = json.load(answer)
            return found


class AsyncClient(Client):
    async def compact(self, **body: Any) -> dict[str, Any]:  # type: ignore[override]
        return await asyncio.to_thread(super().compact, **body)


def test_the_output_is_the_replacement_and_the_rest_is_recorded(provider: Provider) -> None:
    compactor = ResponsesCompact(Client(provider.url), model="gpt-x", instructions="keep ids")
    assert method_of(compactor) == "responses.compact"
    assert compactor(ITEMS) == checked(compactor(ITEMS)) == EXPECTED
    assert provider.requests[0] == (
        "/v1/responses/compact",
        {"model": "gpt-x", "input": SENT, "instructions": "keep ids"},
    )


def test_an_async_client_is_awaited(provider: Provider) -> None:
    made = ResponsesCompact(AsyncClient(provider.url), model="gpt-x")(ITEMS)
    assert inspect.isawaitable(made)

    async def wait() -> Compacted:
        return await made  # type: ignore[no-any-return]

    assert checked(asyncio.run(wait())) == EXPECTED
    with pytest.raises(InvalidItem, match="AsyncEventStore"):
        checked(ResponsesCompact(AsyncClient(provider.url), model="gpt-x")(ITEMS))


def test_an_error_of_the_client_is_not_touched(provider: Provider) -> None:
    provider.status = 500
    with pytest.raises(urllib.error.HTTPError) as caught:
        ResponsesCompact(Client(provider.url), model="gpt-x")(ITEMS)
    caught.value.close()


@pytest.mark.parametrize(
    ("answer", "path"),
    [
        ({"usage": USAGE}, "compactor.output"),
        ({"output": {}, "usage": USAGE}, "compactor.output"),
        ("text", "compactor.output"),
        ({"output": []}, "compactor"),
        ({"output": OUTPUT, "usage": [1]}, "compactor.usage"),
    ],
)
def test_an_answer_of_another_shape_is_refused(provider: Provider, answer: Any, path: str) -> None:
    provider.answer = answer
    with pytest.raises(InvalidItem) as caught:
        checked(ResponsesCompact(Client(provider.url), model="gpt-x")(ITEMS))
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("client", "options", "path"),
    [
        (None, {"model": "gpt-x"}, "client"),
        (SimpleNamespace(responses=SimpleNamespace(create=print)), {"model": "gpt-x"}, "client"),
        (Client(""), {"model": ""}, "model"),
        (Client(""), {"model": None}, "model"),
        (Client(""), {"model": "gpt-x", "input": []}, "input"),
        (Client(""), {"model": "gpt-x", "previous_response_id": "resp_0"}, "previous_response_id"),
    ],
)
def test_what_can_not_work_is_refused_before_any_call(client: Any, options: Any, path: str) -> None:
    with pytest.raises(InvalidItem) as caught:
        ResponsesCompact(client, **options)
    assert caught.value.path == path


# --- openai's own clients ------------------------------------------------------------------------

openai = pytest.importorskip("openai", reason="the openai package is not here: pip install openai")


def test_openais_client_gives_what_the_server_sent(provider: Provider) -> None:
    with openai.OpenAI(api_key="none", base_url=provider.url, max_retries=0) as client:
        made = checked(ResponsesCompact(client, model="gpt-x")(ITEMS))
        assert json.dumps([made.items, made.usage], sort_keys=True) == json.dumps([OUTPUT, USAGE], sort_keys=True)
        assert made == EXPECTED
        assert provider.requests == [("/v1/responses/compact", {"model": "gpt-x", "input": SENT})]
        provider.status = 400
        with pytest.raises(openai.BadRequestError):
            ResponsesCompact(client, model="gpt-x")(ITEMS)


def test_openais_async_client_is_awaited(provider: Provider) -> None:
    async def compact() -> Compacted:
        async with openai.AsyncOpenAI(api_key="none", base_url=provider.url, max_retries=0) as client:
            return checked(await ResponsesCompact(client, model="gpt-x")(ITEMS))

    assert asyncio.run(compact()) == EXPECTED
