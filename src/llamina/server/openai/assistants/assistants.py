"""`/v1/assistants`: a model with instructions and tools, under an id."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.routing import Route

from llamina.server.caller import caller
from llamina.server.errors import ApiError
from llamina.server.http import Json, json, read
from llamina.server.ids import new_id
from llamina.server.openai.assistants.objects import ASSISTANT, deleted, find, listing, now
from llamina.server.openai.assistants.request import AssistantRequest, chat_options, check_metadata, check_resources
from llamina.server.openai.assistants.schema import Assistant
from llamina.server.openai.lists import listed
from llamina.server.openai.schema import Deleted, Listed
from llamina.server.store import Kept


async def create(request: Request) -> Json[Assistant]:
    """POST /v1/assistants."""
    server = request.app.state.server
    asked = await read(request, AssistantRequest)
    if not asked.model:
        raise ApiError(400, "model is missing: give the id of one of /v1/models", param="model")
    id = new_id("asst_")
    body = _checked(server, id, now(), {name: getattr(asked, name) for name in asked.__struct_fields__})
    await server.store.insert(ASSISTANT, id, body, owner=caller(request).id)
    return json(body)


def _checked(server: Any, id: str, created: int, fields: dict[str, Any]) -> Assistant:
    """An assistant. Raises ApiError for what cannot be done, or a model that is not known."""
    check_resources(fields["tool_resources"])
    server.models.find(fields["model"])
    chat_options(fields, server.config.limits)
    found: Assistant = {
        "id": id,
        "object": "assistant",
        "created_at": created,
        "model": fields["model"],
        "name": fields["name"],
        "description": fields["description"],
        "instructions": fields["instructions"],
        "tools": fields["tools"] or [],
        "tool_resources": {},
        "metadata": check_metadata(fields["metadata"]),
        "temperature": fields["temperature"],
        "top_p": fields["top_p"],
        "response_format": fields["response_format"] or "auto",
    }
    if (effort := fields["reasoning_effort"]) is not None:  # it is not among the official fields
        found["reasoning_effort"] = effort
    return found


async def retrieve(request: Request) -> Json[Assistant]:
    """GET /v1/assistants/{id}."""
    return json((await _find(request)).body)


async def update(request: Request) -> Json[Assistant]:
    """POST /v1/assistants/{id}: the fields that are given replace those before."""
    server = request.app.state.server
    kept = await _find(request)
    asked = await read(request, AssistantRequest)
    given = {name: value for name, value in msgspec.structs.asdict(asked).items() if value is not None}
    before = {name: kept.body.get(name) for name in asked.__struct_fields__}
    body = _checked(server, kept.id, kept.body["created_at"], before | given)
    await server.store.change(ASSISTANT, kept.id, body=body)
    return json(body)


async def delete(request: Request) -> Json[Deleted]:
    """DELETE /v1/assistants/{id}."""
    kept = await _find(request)
    await request.app.state.server.store.delete(ASSISTANT, kept.id, kept.owner)
    return deleted(kept)


async def index(request: Request) -> Json[Listed[Assistant]]:
    """GET /v1/assistants."""
    page = await listing(request, ASSISTANT)
    return listed([kept.body for kept in page.items], page.more)


async def _find(request: Request) -> Kept:
    return await find(request, ASSISTANT, request.path_params["assistant"])


routes = [
    Route("/v1/assistants", create, methods=["POST"]),
    Route("/v1/assistants", index, methods=["GET"]),
    Route("/v1/assistants/{assistant}", retrieve, methods=["GET"]),
    Route("/v1/assistants/{assistant}", update, methods=["POST"]),
    Route("/v1/assistants/{assistant}", delete, methods=["DELETE"]),
]
