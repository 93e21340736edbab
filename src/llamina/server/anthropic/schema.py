"""Anthropic's objects that are answered, as types."""

from typing import Literal, NotRequired, TypedDict

from llamina.server.http import RawObject


class ContentBlock(TypedDict):
    """A text, thinking, or a call."""

    type: Literal["text", "thinking", "tool_use"]
    text: NotRequired[str]
    citations: NotRequired[None]
    thinking: NotRequired[str]
    signature: NotRequired[str]
    id: NotRequired[str]
    name: NotRequired[str]
    input: NotRequired[RawObject]


class OutputDetails(TypedDict):
    thinking_tokens: int


class MessageUsage(TypedDict):
    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: OutputDetails
    service_tier: NotRequired[Literal["standard"]]


class Message(TypedDict):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ContentBlock]
    stop_reason: str | None
    stop_sequence: str | None
    usage: MessageUsage


class Delta(TypedDict, total=False):
    """More of a block, or why the message ended."""

    type: Literal["text_delta", "thinking_delta", "input_json_delta", "signature_delta"]
    text: str
    thinking: str
    partial_json: str
    signature: str
    stop_reason: str | None
    stop_sequence: str | None


class Event(TypedDict):
    """Its type says which of the fields it has."""

    type: Literal[
        "ping",
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    message: NotRequired[Message]
    index: NotRequired[int]
    content_block: NotRequired[ContentBlock]
    delta: NotRequired[Delta]
    usage: NotRequired[MessageUsage]


class TokenCount(TypedDict):
    input_tokens: int
