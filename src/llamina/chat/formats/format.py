"""What a format is: the markers around reasoning, and the styles in which calls are written."""

from dataclasses import dataclass
from typing import Protocol

from llamina.chat.formats.lark import Lark, Schema
from llamina.chat.parse.calls import Calls
from llamina.chat.parse.reader import Parse, Reader

Markers = tuple[str, str]
THINK: Markers = ("<think>", "</think>")


@dataclass(frozen=True, slots=True)
class Block:
    """Text before and after calls, and between several of them; `between` None: each has a block of its own."""

    before: str = ""
    after: str = ""
    between: str | None = None


class Style(Protocol):
    """A way of writing calls: how to read them, and the grammar that makes a model write them."""

    @property
    def opens(self) -> tuple[str, ...]:
        """The markers at which calls begin."""

    @property
    def markers(self) -> tuple[str, ...]:
        """All markers. Where they are control tokens, the parser's text must contain them."""

    def read(self, reader: Reader, opened: str, calls: Calls) -> Parse[None]:
        """Emit the calls after the marker `opened`, up to the marker that closes them. Raises NotACall."""

    @property
    def trigger(self) -> str:
        """The text with which a written block of calls begins; empty if there is no such text."""

    @property
    def block(self) -> Block:
        """The text around one or several written calls."""

    def write(self, name: str, schema: Schema, lark: Lark) -> list[str]:
        """Return the parts of a grammar rule for a call of this tool, within a block."""


@dataclass(frozen=True, slots=True)
class Format:
    """How a family writes. The first style is the one that calls are made to follow; all are read."""

    name: str
    styles: tuple[Style, ...]
    reasoning: Markers | None = THINK  # markers around reasoning; None: it is left in the text
    breaks: tuple[str, ...] = ()  # markers of calls that end reasoning, too
    bare: bool = False  # a JSON object that names a tool is a call without any marker
    messages: bool = False  # the answer consists of harmony's messages

    @property
    def markers(self) -> tuple[str, ...]:
        """All markers that the parser must see, even where they are control tokens."""
        return tuple(dict.fromkeys([*(self.reasoning or ()), *(m for s in self.styles for m in s.markers if m)]))
