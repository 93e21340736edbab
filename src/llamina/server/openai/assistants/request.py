"""What clients send to the Assistants API, and the checks that all of it has in common."""

from typing import Any, Literal

import msgspec

from llamina.sampling import Sampling
from llamina.server.config import Limits
from llamina.server.errors import ApiError
from llamina.server.openai.assistants.pictures import SOURCES, picture_part
from llamina.server.openai.assistants.schema import MessagePart
from llamina.server.openai.chat import ChatRequest, ResponseFormat

PAIRS, KEY, VALUE = 16, 64, 512  # of metadata: how many, and how long


class AssistantRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/assistants, and with every field optional POST /v1/assistants/{id}."""

    model: str | None = None
    name: str | None = None
    description: str | None = None
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_resources: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    response_format: str | dict[str, Any] | None = None
    reasoning_effort: str | None = None


class MessageRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A message of a thread."""

    role: Literal["user", "assistant"]
    content: str | list[Any]
    attachments: list[Any] | None = None
    metadata: dict[str, str] | None = None


class ThreadRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/threads."""

    messages: list[MessageRequest] = []
    metadata: dict[str, str] | None = None
    tool_resources: dict[str, Any] | None = None


class ThreadUpdate(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/threads/{id}."""

    metadata: dict[str, str] | None = None
    tool_resources: dict[str, Any] | None = None


class MetadataUpdate(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What can be changed of a message or a run."""

    metadata: dict[str, str] | None = None


class Truncation(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`auto` leaves out the oldest messages if not all fit, `last_messages` all but so many."""

    type: Literal["auto", "last_messages"]
    last_messages: int | None = None


class RunRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/threads/{id}/runs. Without an assistant, `model` says who answers."""

    assistant_id: str = ""
    model: str | None = None
    instructions: str | None = None
    additional_instructions: str | None = None
    additional_messages: list[MessageRequest] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: str | dict[str, Any] | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_prompt_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None  # another name for max_completion_tokens
    truncation_strategy: Truncation | None = None
    reasoning_effort: str | None = None
    metadata: dict[str, str] | None = None
    stream: bool | None = None


class ThreadRunRequest(RunRequest, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/threads/runs: a thread and its first run."""

    thread: ThreadRequest | None = None
    tool_resources: dict[str, Any] | None = None


class ToolOutput(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    tool_call_id: str
    output: str = ""


class ToolOutputs(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """POST …/submit_tool_outputs."""

    tool_outputs: list[ToolOutput]
    stream: bool | None = None


# ---- checks ----------------------------------------------------------------------------------------------


def check_metadata(metadata: dict[str, str] | None) -> dict[str, str]:
    """The metadata. Raises ApiError for more or longer pairs than OpenAI allows."""
    given = metadata or {}
    if len(given) > PAIRS:
        raise ApiError(400, f"metadata has {len(given)} pairs: {PAIRS} are allowed", param="metadata")
    for key, value in given.items():
        if len(key) > KEY or len(value) > VALUE:
            message = f"metadata: keys have at most {KEY} characters and values at most {VALUE}"
            raise ApiError(400, message, param="metadata")
    return given


def check_resources(resources: dict[str, Any] | None) -> None:
    """Raise ApiError for files: no tool here reads them."""
    for tool, wanted in (resources or {}).items():
        if wanted:
            message = f"tool_resources asks for {tool}: only function tools are supported"
            raise ApiError(400, message, param="tool_resources")


def check_tools(tools: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """The tools. Raises ApiError for one that is no function."""
    for index, tool in enumerate(tools or []):
        if tool.get("type") != "function":
            message = f"tools[{index}] is of type {tool.get('type')!r}: only function tools are supported"
            raise ApiError(400, message, param=f"tools[{index}].type")
        function = tool.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            message = f"tools[{index}] has no function with a name"
            raise ApiError(400, message, param=f"tools[{index}].function")
    return tools or []


def chat_options(run: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """The engine's options that a run's or an assistant's fields ask for. Raises ApiError for what cannot be done."""
    asked = ChatRequest(
        messages=[],
        temperature=run.get("temperature"),
        top_p=run.get("top_p"),
        max_completion_tokens=run.get("max_completion_tokens"),
        tools=check_tools(run.get("tools")),
        tool_choice=run.get("tool_choice") if run.get("tools") else None,
        parallel_tool_calls=run.get("parallel_tool_calls") if run.get("tools") else None,
        response_format=_format(run.get("response_format")),
        reasoning_effort=run.get("reasoning_effort"),
    )
    options = asked.chat_options(limits)
    Sampling(**{name: options[name] for name in ("temperature", "top_p") if name in options})  # checks their ranges
    return options


def _format(given: str | dict[str, Any] | None) -> ResponseFormat | None:
    if isinstance(given, str):
        if given != "auto":
            raise ApiError(400, f"response_format is {given!r}: must be 'auto' or an object", param="response_format")
        return None
    try:
        return None if given is None else msgspec.convert(given, ResponseFormat)
    except msgspec.ValidationError as error:
        raise ApiError(400, f"response_format: {error}", param="response_format") from error


def check_counts(asked: RunRequest) -> None:
    """Raise ApiError for a number of tokens or messages below one, or a limit given twice."""
    if asked.max_tokens is not None:
        if asked.max_completion_tokens not in (None, asked.max_tokens):
            message = "max_tokens and max_completion_tokens are both given, and differ"
            raise ApiError(400, message, param="max_tokens")
        asked.max_completion_tokens = asked.max_tokens
    for name in ("max_completion_tokens", "max_prompt_tokens"):
        if (count := getattr(asked, name)) is not None and count < 1:
            raise ApiError(400, f"{name} is {count}: must be at least 1", param=name)
    truncation = asked.truncation_strategy
    if truncation is not None and truncation.type == "last_messages" and (truncation.last_messages or 0) < 1:
        where = "truncation_strategy.last_messages"
        raise ApiError(400, f"{where} is {truncation.last_messages}: must be at least 1", param=where)


def parts_of(content: str | list[Any]) -> list[MessagePart]:
    """A message's parts as they are kept. Raises ApiError for parts that are neither text nor a picture."""
    given = [{"type": "text", "text": content}] if isinstance(content, str) else content
    found = []
    for index, part in enumerate(given):
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if isinstance(kind, str) and kind in SOURCES and isinstance(part, dict):
            found.append(picture_part(part, f"content[{index}]"))
        elif kind == "text" and isinstance(part.get("text"), str):
            found.append(text_part(part["text"]))
        else:
            message = f"content[{index}] is {kind!r}: text with a text, image_url and image_file are known"
            raise ApiError(400, message, param=f"content[{index}]")
    return found


def text_part(text: str) -> MessagePart:
    return {"type": "text", "text": {"value": text, "annotations": []}}
