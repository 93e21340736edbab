"""Conversations in the form that a chat template takes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llamina.chat.formats import Format
from llamina.chat.tools import Tools
from llamina.tokenizer import ChatTemplate

Message = Mapping[str, Any]

INSTRUCTIONS = """You can call functions. To call one, answer with nothing but its name and arguments, so:
<tool_call>
{{"name": "function name", "arguments": {{"parameter": "value"}}}}
</tool_call>
The functions, each with the JSON schema of its parameters:
{functions}"""


def adapted(messages: Sequence[Message], template: ChatTemplate, format: Format, tools: Tools) -> list[dict[str, Any]]:
    """Return copies of the messages, with calls in the form that the template wants.

    For a template that knows no tools, calls become text, and the first message describes the tools.
    """
    copies = [dict(message) for message in messages]
    if template.knows_tools:
        return [_in_form(message, template, format) for message in copies]
    copies = [_as_text(message) for message in copies]
    return _instructed(copies, tools) if len(tools) else copies


def _in_form(message: dict[str, Any], template: ChatTemplate, format: Format) -> dict[str, Any]:
    """Return a message as a template that knows tools takes it."""
    if format.messages and message.get("reasoning_content"):
        message = {**message, "thinking": message["reasoning_content"]}
    calls = message.get("tool_calls")
    if not calls:
        return {key: value for key, value in message.items() if key != "tool_calls"}
    if format.messages and not message.get("content"):
        message.pop("content", None)
    return {**message, "tool_calls": [_call(call, template.takes_objects) for call in calls]}


def _call(call: Any, objects: bool) -> Any:
    """Return a call with its arguments as an object or as JSON text; what is not a call stays for the template."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or "arguments" not in function:
        return call
    arguments = function["arguments"]
    if objects and isinstance(arguments, str):
        arguments = _parsed(arguments)
    elif not objects and not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def _parsed(arguments: str) -> Any:
    """Return arguments as an object, or the text itself if it is not JSON."""
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def _as_text(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with calls, or the result of one, as plain text."""
    if message.get("role") == "tool":
        text = f"<tool_response>\n{message.get('content', '')}\n</tool_response>"
        return {"role": "user", "content": text}
    calls = message.get("tool_calls") or ()
    if not calls:
        return message
    parts = [message.get("content") or "", *map(_written, calls)]
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return rest | {"content": "\n".join(part for part in parts if part)}


def _written(call: Mapping[str, Any]) -> str:
    function = call["function"]
    arguments = function.get("arguments", "")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f'<tool_call>\n{{"name": {json.dumps(function["name"])}, "arguments": {text or "{}"}}}\n</tool_call>'


def _instructed(messages: list[dict[str, Any]], tools: Tools) -> list[dict[str, Any]]:
    """Return the messages with the tools described in the first one: some templates take no system message."""
    functions = "\n".join(json.dumps(function, ensure_ascii=False) for function in tools.functions.values())
    text = INSTRUCTIONS.format(functions=functions)
    if not messages:
        return messages
    first, content = messages[0], messages[0].get("content") or ""
    if isinstance(content, str):
        return [first | {"content": f"{text}\n\n{content}"}, *messages[1:]]
    return [first | {"content": [{"type": "text", "text": f"{text}\n\n"}, *content]}, *messages[1:]]
