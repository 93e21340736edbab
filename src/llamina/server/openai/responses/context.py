"""All that a response answers to: what came before, and the input of its own."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llamina.server.errors import ApiError
from llamina.server.openai.responses.items import Item, NewId, normalized
from llamina.server.openai.responses.keeping import (
    conversation_items,
    earlier_items,
    find_conversation,
    referenced,
)
from llamina.server.openai.responses.known import FIELDS, check_known
from llamina.server.openai.responses.request import ResponseRequest

if TYPE_CHECKING:
    from llamina.server.app import Server


@dataclass
class Context:
    earlier: list[Item] = field(default_factory=list)
    input: list[Item] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # types of input items that mean nothing to the model

    @property
    def items(self) -> list[Item]:
        return self.earlier + self.input


async def gather(server: "Server", owner: str, body: ResponseRequest, new_id: NewId) -> Context:
    """The items of a request. Raises ApiError for what is not there, and for more than there may be."""
    most = server.config.limits.messages
    found = Context()
    if body.previous_response_id is not None:
        found.earlier = await earlier_items(server, body.previous_response_id, owner, most)
    elif body.conversation_id is not None:
        await find_conversation(server, body.conversation_id, owner)
        found.earlier = await conversation_items(server, body.conversation_id)
    given = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input or []
    if len(given) + len(found.earlier) > most:
        message = f"there are {len(given) + len(found.earlier)} items with those before: {most} are allowed"
        raise ApiError(400, message, param="input")
    for i, item in enumerate(given):
        path = f"input[{i}]"
        if item.get("type") == "item_reference" or (set(item) == {"id"}):
            id = item.get("id")
            if not isinstance(id, str):
                raise ApiError(400, f"{path}.id is {id!r}: must be an item's id", param=f"{path}.id")
            check_known(item, FIELDS["item_reference"], path)
            found.input.append(await referenced(server, id, owner, body.conversation_id, path))
            continue
        known = normalized(item, path, new_id)
        if known is not None:
            found.input.append(known)
        unread = item["type"] if known is None else "encrypted reasoning" if known.get("encrypted_content") else None
        if unread is not None and unread not in found.left_out:
            found.left_out.append(unread)
    check_twice(found.items, "input")
    return found


def check_twice(items: list[Item], param: str) -> None:
    """Raise ApiError if two items have one id."""
    seen: set[str] = set()
    for item in items:
        if item["id"] in seen:
            raise ApiError(400, f"the item {item['id']!r} is there twice: leave one out", param=param)
        seen.add(item["id"])
