"""`/v1/responses`: answers that are kept, chained by id, streamed, or made in the background."""

from collections.abc import AsyncIterator, Sequence

from starlette.requests import Request
from starlette.routing import Route

from llamina.server.caller import caller
from llamina.server.errors import ApiError, api_error
from llamina.server.http import DONE, Events, Json, event, events, json, read
from llamina.server.model.client import ChunkStream
from llamina.server.openai.lists import asked_page, check_query, cut_page, kept_page, listed, truth, whole
from llamina.server.openai.responses.keeping import ACTIVE, EVENTS, RESPONSE, find_response
from llamina.server.openai.responses.request import ResponseRequest
from llamina.server.openai.responses.run import Run, cancel, prepare, resume, start
from llamina.server.openai.responses.schema import EventError, InputTokens, ItemObject, ResponseObject
from llamina.server.openai.responses.schema import ResponseEvent as Event
from llamina.server.openai.schema import Deleted, Listed
from llamina.server.store import Kept
from llamina.server.tools import warning_headers

Source = AsyncIterator[Event | None]


async def create(request: Request) -> Json[ResponseObject] | Events[Event]:
    """POST /v1/responses."""
    server = request.app.state.server
    body = await read(request, ResponseRequest)
    asked = await prepare(server, caller(request).id, body)
    headers = warning_headers(asked.warnings)
    if body.background:
        run = await server.jobs.whole(start(server, asked))
        if run.log is not None:
            return _streamed(request, run.log.follow(), headers)
        return json(run.response, headers=headers)
    run = Run(server, asked)
    await run.begin()
    if body.stream:
        return _streamed(request, run.guarded_events(), headers, run.streams)
    async for _ in run.events():
        pass
    return json(run.response, headers=headers)


def _streamed(
    request: Request, source: Source, headers: dict[str, str], owns: Sequence[ChunkStream] = ()
) -> Events[Event]:
    response = events(request, _encoded(source), "error", owns)
    response.headers.update(headers)
    return response


async def _encoded(source: Source) -> AsyncIterator[bytes]:
    number = 0
    try:
        async for one in source:
            if one is None:
                yield b": keep-alive\n\n"
                continue
            number = one["sequence_number"] + 1
            yield event(one, one["type"])
    except Exception as error:
        yield event(_error(api_error(error), number), "error")
    yield DONE


def _error(error: ApiError, number: int) -> Event:
    """An error that is not the response's own; clients look for the message at either place."""
    found: EventError = {
        "type": error.kind,
        "code": error.code,
        "message": error.message,
        "param": error.param,
    }
    return {
        "type": "error",
        "sequence_number": number,
        "code": error.code,
        "message": error.message,
        "param": error.param,
        "error": found,
    }


def shown(kept: Kept) -> ResponseObject:
    """A kept response, with the status that it has by now."""
    response: ResponseObject = kept.body["response"]
    return {**response, "status": kept.status}


async def _kept(request: Request) -> Kept:
    return await find_response(request.app.state.server, request.path_params["id"], caller(request).id)


async def retrieve(request: Request) -> Json[ResponseObject] | Events[Event]:
    """GET /v1/responses/{id}; `stream=true` follows one in the background, from `starting_after` on."""
    check_query(request, ("include", "include_obfuscation", "stream", "starting_after"))
    kept, after = await _kept(request), whole(request, "starting_after", -1)
    if not truth(request, "stream"):
        if "starting_after" in request.query_params:
            raise ApiError(400, "starting_after is for a stream: give stream=true too", param="starting_after")
        return json(shown(kept))
    if after < -1:
        raise ApiError(400, f"starting_after is {after}: must be a sequence number", param="starting_after")
    server = request.app.state.server
    run: Run | None = server.jobs.state(kept.id)
    if run is not None and run.log is not None:
        return _streamed(request, run.log.follow(after), {})
    told = await server.store.get(EVENTS, f"{kept.id}:events")
    if told is None:
        message = "only responses that were made with background=true and stream=true can be streamed again"
        raise ApiError(400, message, param="stream")
    return _streamed(request, _again(told.body["events"][after + 1 :]), {})


async def _again(told: list[Event]) -> Source:
    for one in told:
        yield one


async def index(request: Request) -> Json[Listed[ResponseObject]]:
    """GET /v1/responses: the newest first."""
    page = await kept_page(request, RESPONSE, asked_page(request, others=("include",)))
    return listed([shown(kept) for kept in page.items], page.more)


async def input_items(request: Request) -> Json[Listed[ItemObject]]:
    """GET /v1/responses/{id}/input_items: of its own request; those before are its predecessors'."""
    asked = asked_page(request, others=("include",))
    items: list[ItemObject] = (await _kept(request)).body["input"]
    return listed(*cut_page(items, asked, lambda item: item["id"]))


async def delete(request: Request) -> Json[Deleted]:
    """DELETE /v1/responses/{id}: one that is under way is cancelled first."""
    server, kept = request.app.state.server, await _kept(request)
    if kept.status in ACTIVE:
        await cancel(server, kept)
    await server.store.delete(RESPONSE, kept.id, caller(request).id)
    return json({"id": kept.id, "object": "response", "deleted": True})


async def cancel_one(request: Request) -> Json[ResponseObject]:
    """POST /v1/responses/{id}/cancel."""
    server, kept = request.app.state.server, await _kept(request)
    if not kept.body["response"]["background"]:
        message = "only a response in the background can be cancelled: close the connection to end another"
        raise ApiError(400, message, param="response_id")
    if kept.status in ACTIVE:
        await cancel(server, kept)
        kept = await _kept(request)
    if kept.status != "cancelled":
        raise ApiError(400, f"the response is {kept.status}: it cannot be cancelled any more", param="response_id")
    return json(shown(kept))


async def input_tokens(request: Request) -> Json[InputTokens]:
    """POST /v1/responses/input_tokens: how many tokens a request would come to."""
    server = request.app.state.server
    asked = await prepare(server, caller(request).id, await read(request, ResponseRequest))
    async with server.models.use(asked.body.model) as (_, model):
        found = await model.call("chat_prompt", messages=asked.messages, options=asked.options)
    return json({"object": "response.input_tokens", "input_tokens": len(found["tokens"])})


routes = [
    Route("/v1/responses", create, methods=["POST"]),
    Route("/v1/responses", index, methods=["GET"]),
    Route("/v1/responses/input_tokens", input_tokens, methods=["POST"]),
    Route("/v1/responses/{id}", retrieve, methods=["GET"]),
    Route("/v1/responses/{id}", delete, methods=["DELETE"]),
    Route("/v1/responses/{id}/input_items", input_items, methods=["GET"]),
    Route("/v1/responses/{id}/cancel", cancel_one, methods=["POST"]),
]
__all__ = ["resume", "routes"]
