"""Responses and conversations in the store."""

from typing import TYPE_CHECKING, Any

from llamina.server.errors import ApiError
from llamina.server.openai.responses.items import Item, response_of
from llamina.server.store import Kept
from llamina.server.store.store import made

if TYPE_CHECKING:
    from llamina.server.app import Server

RESPONSE = "response"  # the body has the response, its own input items, and the work that is left of it
EVENTS = "response_events"  # of a response in the background that was streamed
CONVERSATION = "conversation"
ITEM = "conversation_item"
ACTIVE = ("queued", "in_progress")


async def find_response(server: "Server", id: str, owner: str) -> Kept:
    """Raises ApiError if the owner has no such response."""
    kept = await server.store.get(RESPONSE, id, owner)
    if kept is None:
        message = f"there is no response {id!r}: it was deleted, or made with store=false"
        raise ApiError(404, message, "not_found_error", param="response_id", code="response_not_found")
    return kept


async def find_conversation(server: "Server", id: str, owner: str) -> Kept:
    """Raises ApiError if the owner has no such conversation."""
    kept = await server.store.get(CONVERSATION, id, owner)
    if kept is None:
        message = f"there is no conversation {id!r}"
        raise ApiError(404, message, "not_found_error", param="conversation", code="conversation_not_found")
    return kept


async def conversation_items(server: "Server", id: str) -> list[Item]:
    return [kept.body for kept in await server.store.all(ITEM, parent=id)]


def item_row(conversation: str, item: Item, owner: str) -> Kept:
    """An item as a part of a conversation. An id is unique in its conversation only: items may be in several."""
    return made(ITEM, row_id(conversation, item["id"]), item, owner=owner, parent=conversation)


def row_id(conversation: str, item: str) -> str:
    return f"{conversation}:{item}"


async def earlier_items(server: "Server", response: str, owner: str, most: int) -> list[Item]:
    """What came before a response that follows `response`: inputs and outputs of the whole chain.

    Raises ApiError if one of them is not there or not done, or there are more items than `most`.
    """
    chain: list[list[Item]] = []
    id: str | None = response
    while id is not None and sum(map(len, chain)) <= most:
        kept = await server.store.get(RESPONSE, id, owner)
        if kept is None:
            message = f"there is no response {id!r} to go on from: it was deleted, or made with store=false"
            raise ApiError(400, message, param="previous_response_id", code="previous_response_not_found")
        if kept.status in ACTIVE:
            raise ApiError(400, f"the response {id!r} is {kept.status}: wait for its end", param="previous_response_id")
        found: dict[str, Any] = kept.body["response"]
        own = kept.body["input"] + found["output"]
        before = await _before_in_conversation(server, found, own)
        chain.append(before + own)
        id = found["previous_response_id"]
    return [item for items in reversed(chain) for item in items]


async def _before_in_conversation(server: "Server", response: dict[str, Any], own: list[Item]) -> list[Item]:
    """The items that a response's conversation had before the response's own."""
    if response["conversation"] is None:
        return []
    items = await conversation_items(server, response["conversation"]["id"])
    ids = [item["id"] for item in items]
    return items[: ids.index(own[0]["id"])] if own and own[0]["id"] in ids else []


async def referenced(server: "Server", id: str, owner: str, conversation: str | None, path: str) -> Item:
    """The item that an item_reference means. Raises ApiError if the owner has none of that id."""
    kept = await server.store.get(RESPONSE, response_of(id), owner)
    for item in kept.body["input"] + kept.body["response"]["output"] if kept is not None else []:
        if item["id"] == id:
            found: Item = item
            return found
    if conversation is not None and (part := await server.store.get(ITEM, row_id(conversation, id), owner)) is not None:
        kept_item: Item = part.body
        return kept_item
    message = f"{path}: there is no item {id!r}: it was deleted, or its response was made with store=false"
    raise ApiError(404, message, "not_found_error", param=path)
