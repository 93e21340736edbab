"""Items as the messages that a chat template takes."""

from typing import Any

from llamina.server.content import Content, joined, picture, sound
from llamina.server.errors import ApiError
from llamina.server.openai.responses.items import Item

Message = dict[str, Any]


def to_messages(instructions: str | None, items: list[Item]) -> list[Message]:
    """The messages of a conversation; items of one turn are one message, as templates want it.

    Raises ApiError for an output of a call that nobody made, and for no messages at all.
    """
    messages: list[Message] = [{"role": "system", "content": instructions}] if instructions else []
    names: dict[str, str] = {}  # of the functions that were called, by the ids of the calls
    for item in items:
        _append(messages, _message(item, names))
    if not messages:
        raise ApiError(400, "input is empty: must be a text or items", param="input")
    return messages


def _message(item: Item, names: dict[str, str]) -> Message:
    match item["type"]:
        case "function_call":
            names[item["call_id"]] = item["name"]
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            return {"role": "assistant", "content": "", "tool_calls": [call]}
        case "function_call_output":
            id = item["call_id"]
            if id not in names:
                message = f"there is no function_call with the call_id {id!r} before its function_call_output"
                raise ApiError(400, message, param="input")
            output = item["output"]
            content = output if isinstance(output, str) else _content(output)
            return {"role": "tool", "content": content, "tool_call_id": id, "name": names[id]}
        case "reasoning":
            return {"role": "assistant", "content": "", "reasoning_content": _text(item["content"])}
    role = "system" if item["role"] == "developer" else item["role"]
    return {"role": role, "content": _content(item["content"])}


def _text(content: list[Item]) -> str:
    return "\n".join(part["text"] for part in content)


def _content(parts: list[Item]) -> Content:
    found: Content = ""
    for part in parts:
        found = joined(found, _part(part), "\n")
    return found


def _part(part: Item) -> Content:
    match part["type"]:
        case "input_image":
            return picture(part["image_url"])
        case "input_audio":
            return sound(part["input_audio"]["data"])
        case _:
            return str(part["text"])


def _append(messages: list[Message], new: Message) -> None:
    """Add a message, or join it to the last one if that is of the same turn."""
    last = messages[-1] if messages else {}
    if new["role"] == "tool" or new["role"] != last.get("role"):
        messages.append(new)
        return
    for key in ("content", "reasoning_content"):
        if content := joined(last.get(key) or "", new.get(key) or "", "\n\n"):
            last[key] = content
    if calls := [*last.get("tool_calls", ()), *new.get("tool_calls", ())]:
        last["tool_calls"] = calls
