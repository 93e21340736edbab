"""`/v1/assistants`: a model with instructions and tools, under an id."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from llamina.server.caller import caller
from llamina.server.errors import ApiError
from llamina.server.http import json, read
from llamina.server.ids import new_id
from llamina.server.openai.assistants.objects import ASSISTANT, deleted, find, listing, now
from llamina.server.openai.assistants.request import AssistantRequest, chat_options, check_metadata, check_resources
from llamina.server.openai.lists import listed


async def create(request: Request) -> Response:
    """POST /v1/assistants."""
    server = request.app.state.server
    asked = await read(request, AssistantRequest)
    if not asked.model:
        raise ApiError(400, "model is missing: give the id of one of /v1/models", param="model")
    id = new_id("asst_")
    head = {"id": id, "object": ASSISTANT, "created_at": now()}
    body = head | _checked(server, {name: getattr(asked, name) for name in asked.__struct_fields__})
    await server.store.insert(ASSISTANT, id, body, owner=caller(request).id)
    return json(body)


def _checked(server: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of an assistant. Raises ApiError for what cannot be done, or a model that is not known."""
    check_resources(fields["tool_resources"])
    server.models.find(fields["model"])
    fields |= {
        "metadata": check_metadata(fields["metadata"]),
        "tools": fields["tools"] or [],
        "response_format": fields["response_format"] or "auto",
        "tool_resources": {},
    }
    chat_options(fields, server.config.limits)
    if fields["reasoning_effort"] is None:
        del fields["reasoning_effort"]  # it is not among the official fields
    return fields


async def retrieve(request: Request) -> Response:
    """GET /v1/assistants/{id}."""
    return json((await _find(request)).body)


async def update(request: Request) -> Response:
    """POST /v1/assistants/{id}: the fields that are given replace those before."""
    server = request.app.state.server
    kept = await _find(request)
    asked = await read(request, AssistantRequest)
    given = {name: value for name, value in msgspec.structs.asdict(asked).items() if value is not None}
    body = kept.body | _checked(server, {name: kept.body.get(name) for name in asked.__struct_fields__} | given)
    await server.store.change(ASSISTANT, kept.id, body=body)
    return json(body)


async def delete(request: Request) -> Response:
    """DELETE /v1/assistants/{id}."""
    kept = await _find(request)
    await request.app.state.server.store.delete(ASSISTANT, kept.id, kept.owner)
    return deleted(kept)


async def index(request: Request) -> Response:
    """GET /v1/assistants."""
    page = await listing(request, ASSISTANT)
    return listed([kept.body for kept in page.items], page.more)


async def _find(request: Request) -> Any:
    return await find(request, ASSISTANT, request.path_params["assistant"])


routes = [
    Route("/v1/assistants", create, methods=["POST"]),
    Route("/v1/assistants", index, methods=["GET"]),
    Route("/v1/assistants/{assistant}", retrieve, methods=["GET"]),
    Route("/v1/assistants/{assistant}", update, methods=["POST"]),
    Route("/v1/assistants/{assistant}", delete, methods=["DELETE"]),
]
