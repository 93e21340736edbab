"""The content blocks of Anthropic's conversations, as clients send them."""

from typing import Any, Literal

import msgspec


class CacheControl(msgspec.Struct, forbid_unknown_fields=True):
    """Where a prompt may be cached. Prefixes are always cached here, so it changes nothing."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class Block(msgspec.Struct, tag_field="type", kw_only=True, forbid_unknown_fields=True):
    """A part of a message; `type` says which."""

    cache_control: CacheControl | None = None


class Text(Block, tag="text"):
    text: str
    citations: list[Any] | None = None  # of an earlier answer


class Image(Block, tag="image"):
    source: dict[str, Any]
    transformations: Any = None


class TextSource(msgspec.Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    data: str
    media_type: Literal["text/plain"] = "text/plain"


class ContentSource(msgspec.Struct, tag_field="type", tag="content", forbid_unknown_fields=True):
    content: str | list[Text | Image]


class EncodedSource(msgspec.Struct, tag_field="type", tag="base64"):
    media_type: str = ""


class UrlSource(msgspec.Struct, tag_field="type", tag="url"):
    url: str = ""


class FileSource(msgspec.Struct, tag_field="type", tag="file"):
    file_id: str = ""


class Citations(msgspec.Struct, forbid_unknown_fields=True):
    enabled: bool = False


class Document(Block, tag="document"):
    source: TextSource | ContentSource | EncodedSource | UrlSource | FileSource
    title: str | None = None
    context: str | None = None
    citations: Citations | None = None


class SearchResult(Block, tag="search_result"):
    content: list[Text]
    source: str
    title: str
    citations: Citations | None = None


class Thinking(Block, tag="thinking"):
    thinking: str
    signature: str = ""


class RedactedThinking(Block, tag="redacted_thinking"):
    data: str


class ToolUse(Block, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]
    caller: Any = None
    toolset_name: str | None = None


class ToolResult(Block, tag="tool_result"):
    tool_use_id: str
    content: str | list[Text | Image | Document | SearchResult] = ""
    is_error: bool | None = None
    toolset_name: str | None = None


AnyBlock = Text | Image | Document | SearchResult | Thinking | RedactedThinking | ToolUse | ToolResult
Content = str | list[AnyBlock]


class Message(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["user", "assistant", "system"]
    content: Content
