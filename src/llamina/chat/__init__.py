"""Reasoning and tool calls in a model's answers: formats of families, an incremental parser, grammars of calls."""

from llamina.chat.events import (
    CallArguments,
    CallBegin,
    CallDropped,
    CallEnd,
    ChatEvent,
    Collected,
    Content,
    Reasoning,
    ToolCall,
    merged,
)
from llamina.chat.formats import FORMATS, Format, choose, format_of
from llamina.chat.parser import Parser
from llamina.chat.tools import Tools

__all__ = [
    "FORMATS",
    "CallArguments",
    "CallBegin",
    "CallDropped",
    "CallEnd",
    "ChatEvent",
    "Collected",
    "Content",
    "Format",
    "Parser",
    "Reasoning",
    "ToolCall",
    "Tools",
    "choose",
    "format_of",
    "merged",
]
