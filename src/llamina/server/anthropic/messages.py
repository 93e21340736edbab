"""`/v1/messages` and `/v1/messages/count_tokens`."""

from collections.abc import AsyncIterator
from functools import wraps
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from llamina.server.anthropic.answer import Answer
from llamina.server.anthropic.request import CountRequest, MessagesRequest
from llamina.server.anthropic.schema import Event, Message, TokenCount
from llamina.server.errors import Handler, anthropic_shape, api_error
from llamina.server.http import Events, Json, event, events, json, read, with_keep_alive
from llamina.server.ids import new_id
from llamina.server.model import Chunk
from llamina.server.model.client import ChunkStream
from llamina.server.record import current
from llamina.server.tools import warning_headers

PING = event({"type": "ping"}, "ping")


def with_request_id(handler: Handler) -> Handler:
    """The handler; its answers, errors too, have an id of the request in their `request-id` header."""

    @wraps(handler)
    async def handle(request: Request) -> Response:
        record = current()
        id = record.id if record is not None else new_id("req_")
        try:
            response = await handler(request)
        except Exception as error:
            found = api_error(error)
            told = anthropic_shape(found)
            told["request_id"] = id
            response = json(told, found.status, found.headers)
        response.headers["request-id"] = id
        return response

    return handle


@with_request_id
async def create(request: Request) -> Json[Message] | Events[Event]:
    """POST /v1/messages."""
    server = request.app.state.server
    body = await read(request, MessagesRequest)
    limits = server.config.limits
    given, options, headers = body.conversation(limits), body.options(limits), warning_headers(body.warnings)
    async with server.models.use(body.model) as (entry, model):
        stream = model.generate(messages=given.messages, options=options, prefill=given.prefill)
        eager = body.eager_tools(request.headers.get("anthropic-beta", ""))
        answer = Answer(entry.id, body.max_tokens, body.omits_thinking, body.one_call, eager)
        if not body.stream:
            async with stream:
                async for chunk in stream:
                    answer.take(chunk)
                    if answer.stop_reason is not None:
                        break
            return json(answer.whole(), headers=headers)
        first = await stream.__anext__()  # what is wrong with the request is an answer of its own, not an event
    response = events(request, _events(server, body.model, answer, first, stream), "error", owns=[stream])
    response.headers.update(headers)
    return response


async def _events(server: Any, name: str, answer: Answer, first: Chunk, stream: ChunkStream) -> AsyncIterator[bytes]:
    async with server.models.use(name), stream:
        yield _encoded(answer.start(first))
        yield PING
        async for chunk in _chunks(first, stream):
            if chunk is None:
                yield PING
                continue
            for part in answer.take(chunk):
                yield _encoded(part)
            if answer.stop_reason is not None:
                break
        for part in answer.end():
            yield _encoded(part)


async def _chunks(first: Chunk, stream: ChunkStream) -> AsyncIterator[Chunk | None]:
    yield first
    async for chunk in with_keep_alive(stream):
        yield chunk


def _encoded(value: Event) -> bytes:
    return event(value, value["type"])


@with_request_id
async def count_tokens(request: Request) -> Json[TokenCount]:
    """POST /v1/messages/count_tokens."""
    server = request.app.state.server
    body = await read(request, CountRequest)
    given, options = body.conversation(server.config.limits), body.prompt_options(server.config.limits)
    async with server.models.use(body.model) as (_, model):
        found = await model.call("chat_prompt", messages=given.messages, options=options, prefill=given.prefill)
    return json({"input_tokens": len(found["tokens"])})


routes = [
    Route("/v1/messages", create, methods=["POST"]),
    Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
]
