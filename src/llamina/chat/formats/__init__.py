"""How families of models write reasoning and tool calls: one file per style, and the table of families."""

from llamina.chat.formats.detect import choose, format_of
from llamina.chat.formats.families import FORMATS
from llamina.chat.formats.format import Format, Style

__all__ = ["FORMATS", "Format", "Style", "choose", "format_of"]
