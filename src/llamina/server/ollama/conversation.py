"""Ollama's messages as a chat template takes them."""

from typing import Any

import msgspec

from llamina.server.content import Content, encoded_picture, joined
from llamina.server.errors import ApiError


class Function(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}
    index: int | None = None
    description: str | None = None


class ToolCall(msgspec.Struct, forbid_unknown_fields=True):
    function: Function
    id: str | None = None
    type: str | None = None


class Message(msgspec.Struct, forbid_unknown_fields=True):
    role: str
    content: str | None = None
    thinking: str | None = None
    images: list[Any] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    name: str | None = None


ROLES = ("system", "user", "assistant", "tool")


def conversation(messages: list[Message], limit: int) -> list[dict[str, Any]]:
    """Translate messages. Calls without ids get one each, and results go to the calls that have none yet."""
    if len(messages) > limit:
        raise ApiError(400, f"there are {len(messages)} messages: {limit} are allowed", param="messages")
    waiting: list[tuple[str, str]] = []  # (id, name) of calls without a result
    made, found = 0, []
    for i, message in enumerate(messages):
        role = message.role.lower()
        if role not in ROLES:
            expected = f"must be one of {', '.join(ROLES)}"
            raise ApiError(400, f"messages[{i}].role is {role!r}: {expected}", param=f"messages[{i}].role")
        content = with_images(message.images, message.content or "", f"messages[{i}].images")
        plain: dict[str, Any] = {"role": role, "content": content}
        if message.thinking:
            plain["reasoning_content"] = message.thinking
        if message.tool_calls:
            calls = [_call(call, made + n) for n, call in enumerate(message.tool_calls)]
            made += len(calls)
            waiting += [(call["id"], call["function"]["name"]) for call in calls]
            plain["tool_calls"] = calls
        if role == "tool":
            plain |= _answered(message, waiting)
        found.append(plain)
    return found


def _call(call: ToolCall, number: int) -> dict[str, Any]:
    arguments = msgspec.json.encode(call.function.arguments).decode()
    function = {"name": call.function.name, "arguments": arguments}
    return {"id": call.id or f"call{number:05}", "type": "function", "function": function}


def _answered(message: Message, waiting: list[tuple[str, str]]) -> dict[str, str]:
    """The call that a result belongs to: by its id, by the tool's name, or the first that waits."""
    name = message.tool_name or message.name
    for call in waiting:
        if message.tool_call_id in (None, call[0]) and name in (None, call[1]):
            waiting.remove(call)
            return {"tool_call_id": call[0], "name": call[1]}
    given = {"tool_call_id": message.tool_call_id, "name": name}
    return {key: value for key, value in given.items() if value is not None}


def with_images(images: list[Any] | None, text: str, param: str) -> Content:
    """A text with pictures, which are base64, in front of it. Raises ApiError for what is none."""
    if not images:
        return text
    found: Content = ""
    for i, image in enumerate(images):
        if not isinstance(image, str):
            raise ApiError(400, f"{param}[{i}] is {type(image).__name__}: must be base64", param=f"{param}[{i}]")
        found = joined(found, encoded_picture(image), "")
    return joined(found, text, "")


def check_no_images(messages: list[dict[str, Any]]) -> None:
    """Raise ApiError if a message has pictures: templates in Ollama's language are for text."""
    if any(isinstance(message["content"], list) for message in messages):
        raise ApiError(400, "images need the model's own chat template, and another is given or none", param="images")
