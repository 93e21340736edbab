"""Anthropic's messages as a chat template takes them."""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from llamina.server.anthropic.blocks import (
    AnyBlock,
    Citations,
    ContentSource,
    Document,
    Image,
    Message,
    RedactedThinking,
    SearchResult,
    Text,
    TextSource,
    Thinking,
    ToolResult,
    ToolUse,
)
from llamina.server.content import Content, encoded_picture, joined, picture
from llamina.server.errors import ApiError

CALL_PREFIX = "toolu_"  # in front of the ids of our calls; templates get them without it
HIDDEN = "thinking:"  # begins the signature of a thinking block that is not shown, and has its text


@dataclass
class Conversation:
    """Messages for a template, and the text that the answer begins with."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    prefill: str = ""


def conversation(system: str | list[Text], given: list[Message], limit: int) -> Conversation:
    """Translate a request's messages. Raises ApiError, which names the block, for what a text model cannot read."""
    if not given:
        raise ApiError(400, "messages is empty: at least one message is required", param="messages")
    if len(given) > limit:
        raise ApiError(400, f"there are {len(given)} messages: {limit} are allowed", param="messages")
    messages: list[dict[str, Any]] = []
    names: dict[str, str] = {}  # of the tools that were called, by the ids of the calls
    if text := _joined(system):
        messages.append({"role": "system", "content": text})
    for i, message in enumerate(given):
        for part in _translated(message, names, f"messages[{i}]"):
            _append(messages, part)
    return _begun(messages) if given[-1].role == "assistant" else Conversation(messages)


def _begun(messages: list[dict[str, Any]]) -> Conversation:
    """A conversation whose last message is the beginning of the answer."""
    last = messages.pop()
    if "tool_calls" in last:
        raise ApiError(400, "the last message calls tools: their tool_result blocks must follow", param="messages")
    return Conversation(messages, last["content"])


def _append(messages: list[dict[str, Any]], new: dict[str, Any]) -> None:
    """Add a message; turns of one role that follow each other are one turn."""
    last = messages[-1] if messages else {}
    if new["role"] == "tool" or new["role"] != last.get("role"):
        messages.append(new)
        return
    for key in ("content", "reasoning_content"):
        if content := joined(last.get(key) or "", new.get(key) or "", "\n\n"):
            last[key] = content
    if calls := [*last.get("tool_calls", ()), *new.get("tool_calls", ())]:
        last["tool_calls"] = calls


def _translated(message: Message, names: dict[str, str], path: str) -> list[dict[str, Any]]:
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    if message.role == "assistant":
        return [_assistant(message.content, names, f"{path}.content")]
    parts: list[dict[str, Any]] = []
    for i, block in enumerate(message.content):
        parts.append(_part(message.role, block, names, f"{path}.content[{i}]"))
    return _one_turn(parts, message.role)


def _one_turn(parts: list[dict[str, Any]], role: str) -> list[dict[str, Any]]:
    """The blocks of a message: texts next to each other are one."""
    messages: list[dict[str, Any]] = []
    for part in parts:
        if messages and part["role"] == role == messages[-1]["role"]:
            messages[-1]["content"] = joined(messages[-1]["content"], part["content"], "\n")
        else:
            messages.append(part)
    return messages or [{"role": role, "content": ""}]


def _part(role: str, block: AnyBlock, names: dict[str, str], path: str) -> dict[str, Any]:
    """A block of the user's or the system's message."""
    if not isinstance(block, ToolResult):
        if isinstance(block, Thinking | RedactedThinking | ToolUse):
            raise ApiError(400, f"{path} is a {_kind(block)} block: it belongs to the assistant's messages", param=path)
        return {"role": role, "content": _content(block, path)}
    if role != "user" or block.tool_use_id not in names:
        what = "belongs to the user's messages" if role != "user" else "has no tool_use block of that id before it"
        raise ApiError(400, f"{path}: the tool_result of {block.tool_use_id!r} {what}", param=f"{path}.tool_use_id")
    content: Content = block.content if isinstance(block.content, str) else ""
    for i, part in enumerate(block.content if isinstance(block.content, list) else ()):
        content = joined(content, _content(part, f"{path}.content[{i}]"), "\n")
    return {
        "role": "tool",
        "content": joined("Error: ", content, "") if block.is_error else content,
        "tool_call_id": block.tool_use_id.removeprefix(CALL_PREFIX),
        "name": names[block.tool_use_id],
    }


def _assistant(blocks: list[AnyBlock], names: dict[str, str], path: str) -> dict[str, Any]:
    texts, thoughts, calls = [], [], []
    for i, block in enumerate(blocks):
        match block:
            case Text(text=text):
                texts.append(text)
            case Thinking():
                thoughts.append(block.thinking or _hidden(block.signature))
            case RedactedThinking():
                continue  # encrypted by whoever made it: nobody else can read it
            case ToolUse(id=id, name=name, input=arguments):
                names[id] = name
                function = {"name": name, "arguments": msgspec.json.encode(arguments).decode()}
                calls.append({"id": id.removeprefix(CALL_PREFIX), "type": "function", "function": function})
            case _:
                where = f"{path}[{i}]"
                raise ApiError(400, f"{where} is a {_kind(block)} block: an assistant's message has none", param=where)
    message: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts)}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


# ---- blocks as text --------------------------------------------------------------------------------------


def _kind(block: AnyBlock) -> str:
    return str(block.__struct_config__.tag)


def _joined(system: str | list[Text]) -> str:
    return system if isinstance(system, str) else "\n".join(block.text for block in system)


def _texts(blocks: Iterable[AnyBlock], path: str) -> str:
    return "\n".join(_text(block, f"{path}[{i}]") for i, block in enumerate(blocks))


def _content(block: AnyBlock, path: str) -> Content:
    """A block of text, or a picture. Raises ApiError for what is neither."""
    if not isinstance(block, Image):
        return _text(block, path)
    source, param = block.source, f"{path}.source"
    match source.get("type"):
        case "base64" if isinstance(source.get("data"), str):
            return encoded_picture(source["data"])
        case "url" if isinstance(source.get("url"), str):
            return picture(source["url"])
    message = f"{param} has the type {source.get('type')!r}: must be base64 with its data, or url"
    raise ApiError(400, message, param=param)


def _text(block: AnyBlock, path: str) -> str:
    """A block as text. Raises ApiError for an image, or a document that is not text."""
    match block:
        case Text(text=text):
            return text
        case SearchResult(title=title, source=source, content=content):
            _check_citations(block.citations, path)
            return "\n".join([title, source, *(part.text for part in content)])
        case Document():
            _check_citations(block.citations, path)
            return "\n".join(filter(None, (block.title, block.context, _document(block, path))))
    raise ApiError(400, f"{path} is an image: must be text here", param=path)


def _document(block: Document, path: str) -> str:
    source = block.source
    if isinstance(source, TextSource):
        return source.data
    if isinstance(source, ContentSource):
        return source.content if isinstance(source.content, str) else _texts(source.content, f"{path}.source.content")
    kind = source.__struct_config__.tag
    raise ApiError(
        400, f"{path} is a document by {kind}: give its text, as a source of type text", param=f"{path}.source"
    )


def _check_citations(citations: Citations | None, path: str) -> None:
    if citations is not None and citations.enabled:
        raise ApiError(400, f"{path} asks for citations: this server makes none", param=f"{path}.citations")


# ---- thinking that is not shown ------------------------------------------------------------------------------


def hide(text: str) -> str:
    """The signature of a thinking block that is not shown: its text, so that the model has it in the next turn."""
    return HIDDEN + base64.b64encode(text.encode()).decode()


def _hidden(signature: str) -> str:
    """The text of a signature that `hide` made; that of any other is empty."""
    if not signature.startswith(HIDDEN):
        return ""
    try:
        return base64.b64decode(signature.removeprefix(HIDDEN), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ApiError(400, "the signature of a thinking block is damaged: send it back as it was") from error


__all__ = ["CALL_PREFIX", "Conversation", "Image", "conversation", "hide"]
