"""`/v1/conversations`: items that are kept for responses to go on from, and to be added to."""

from typing import TYPE_CHECKING, Any, cast

import msgspec
from starlette.requests import Request
from starlette.routing import Route

from llamina.server.caller import caller
from llamina.server.errors import ApiError
from llamina.server.http import Json, json, read
from llamina.server.ids import new_id
from llamina.server.openai.lists import asked_page, check_query, kept_page, listed
from llamina.server.openai.responses.context import check_twice
from llamina.server.openai.responses.items import Item, normalized
from llamina.server.openai.responses.keeping import CONVERSATION, ITEM, find_conversation, item_row, row_id
from llamina.server.openai.responses.request import check_metadata
from llamina.server.openai.responses.schema import Conversation, ItemObject
from llamina.server.openai.schema import Deleted, Listed
from llamina.server.store import Kept
from llamina.server.store.store import made

if TYPE_CHECKING:
    from llamina.server.app import Server

MOST_AT_ONCE = 20  # items of one request


class NewConversation(msgspec.Struct, forbid_unknown_fields=True):
    items: list[dict[str, Any]] | None = None
    metadata: dict[str, str] | None = None


class ConversationUpdate(msgspec.Struct, forbid_unknown_fields=True):
    metadata: dict[str, str]


class NewItems(msgspec.Struct, forbid_unknown_fields=True):
    items: list[dict[str, Any]]


def shown(kept: Kept) -> Conversation:
    return {
        "id": kept.id,
        "object": "conversation",
        "created_at": kept.created,
        "metadata": kept.body["metadata"],
    }


def _server(request: Request) -> "Server":
    server: Server = request.app.state.server
    return server


async def _kept(request: Request) -> Kept:
    return await find_conversation(_server(request), request.path_params["id"], caller(request).id)


def _items(given: list[dict[str, Any]]) -> list[Item]:
    """Items to keep. Raises ApiError for too many, and for what is none."""
    if len(given) > MOST_AT_ONCE:
        raise ApiError(400, f"there are {len(given)} items: {MOST_AT_ONCE} at once are allowed", param="items")
    found = []
    for i, item in enumerate(given):
        known = normalized(item, f"items[{i}]", new_id)
        if known is None:
            message = f"items[{i}] has the type {item['type']!r}, which cannot be kept here"
            raise ApiError(400, message, param=f"items[{i}].type")
        found.append(known)
    check_twice(found, "items")
    return found


async def create(request: Request) -> Json[Conversation]:
    """POST /v1/conversations."""
    body = await read(request, NewConversation)
    check_metadata(body.metadata)
    id, owner = new_id("conv_"), caller(request).id
    kept = made(CONVERSATION, id, {"metadata": body.metadata or {}}, owner=owner)
    rows = [item_row(id, item, owner) for item in _items(body.items or [])]
    await _server(request).store.insert_all([kept, *rows])
    return json(shown(kept))


async def retrieve(request: Request) -> Json[Conversation]:
    """GET /v1/conversations/{id}."""
    return json(shown(await _kept(request)))


async def update(request: Request) -> Json[Conversation]:
    """POST /v1/conversations/{id}: other metadata."""
    body = await read(request, ConversationUpdate)
    check_metadata(body.metadata)
    kept = await _kept(request)
    await _server(request).store.change(CONVERSATION, kept.id, body={"metadata": body.metadata})
    return json(shown(await _kept(request)))


async def delete(request: Request) -> Json[Deleted]:
    """DELETE /v1/conversations/{id}: its items go along; responses stay."""
    kept = await _kept(request)
    await _server(request).store.delete(CONVERSATION, kept.id, caller(request).id)
    return json({"id": kept.id, "object": "conversation.deleted", "deleted": True})


async def add_items(request: Request) -> Json[Listed[ItemObject]]:
    """POST /v1/conversations/{id}/items."""
    check_query(request, ("include",))
    body = await read(request, NewItems)
    kept, items, server = await _kept(request), _items(body.items), _server(request)
    most, there = server.config.limits.messages, sum((await server.store.counts(ITEM, parent=kept.id)).values())
    if there + len(items) > most:
        raise ApiError(400, f"the conversation has {there} items: {most} are allowed", param="items")
    for item in items:
        if await server.store.get(ITEM, row_id(kept.id, item["id"])) is not None:
            raise ApiError(400, f"the conversation has an item {item['id']!r} already", param="items")
    await server.store.insert_all([item_row(kept.id, item, caller(request).id) for item in items])
    return listed(cast(list[ItemObject], items), False)


async def list_items(request: Request) -> Json[Listed[ItemObject]]:
    """GET /v1/conversations/{id}/items: the newest first."""
    asked, kept = asked_page(request, others=("include",)), await _kept(request)
    page = await kept_page(request, ITEM, asked, parent=kept.id, row_id=lambda id: row_id(kept.id, id))
    return listed([item.body for item in page.items], page.more)


async def _item(request: Request) -> Kept:
    id = request.path_params["item"]
    kept = await _kept(request)
    found = await _server(request).store.get(ITEM, row_id(kept.id, id), caller(request).id)
    if found is None:
        message = f"the conversation {kept.id!r} has no item {id!r}"
        raise ApiError(404, message, "not_found_error", param="item_id")
    return found


async def retrieve_item(request: Request) -> Json[ItemObject]:
    """GET /v1/conversations/{id}/items/{item}."""
    check_query(request, ("include",))
    return json((await _item(request)).body)


async def delete_item(request: Request) -> Json[Conversation]:
    """DELETE /v1/conversations/{id}/items/{item}: the conversation comes back."""
    found = await _item(request)
    await _server(request).store.delete(ITEM, found.id, caller(request).id)
    return json(shown(await _kept(request)))


routes = [
    Route("/v1/conversations", create, methods=["POST"]),
    Route("/v1/conversations/{id}", retrieve, methods=["GET"]),
    Route("/v1/conversations/{id}", update, methods=["POST"]),
    Route("/v1/conversations/{id}", delete, methods=["DELETE"]),
    Route("/v1/conversations/{id}/items", add_items, methods=["POST"]),
    Route("/v1/conversations/{id}/items", list_items, methods=["GET"]),
    Route("/v1/conversations/{id}/items/{item}", retrieve_item, methods=["GET"]),
    Route("/v1/conversations/{id}/items/{item}", delete_item, methods=["DELETE"]),
]
