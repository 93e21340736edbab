"""Reasoning and calls of tools in a model's answers: formats of families, an incremental parser, grammars."""

from llamina.chat.calls import Tools
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
