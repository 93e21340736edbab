"""Markdown that grows, in one widget: finished blocks are rendered once, only the last open one again."""

import io
from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown
from rich.segment import Segment
from rich.theme import Theme
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from llamina.repl.markdown import finished

CODE = {True: "github-dark", False: "friendly"}  # Pygments' styles for dark and light


class _Left(Heading):
    """A heading at the left, without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Blocks(Markdown):
    elements: ClassVar = {**Markdown.elements, "heading_open": _Left}


class MarkdownLines(Widget):
    """A widget for each block would make every layout as long as the whole talk."""

    DEFAULT_CSS = "MarkdownLines { height: auto; width: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self._source = ""
        self._final: list[Strip] = []  # lines of finished blocks
        self._tail: list[Strip] = []  # of the last one
        self._final_chars = 0  # characters of the text in finished blocks
        self._drawn: tuple[object, int] = (None, 0)  # what the lines were drawn for, and characters of the text

    def show(self, text: str) -> None:
        """Show a text that begins with the one that was shown before."""
        if text == self._source:
            return
        self._source, width = text, self.size.width
        if not width:
            self.refresh(layout=True)
            return
        final, height = len(self._final), self._height
        self._draw(width)
        if self._height == height:  # the line has room left: nothing else moves
            self.refresh(Region(0, final, width, height - final))
        else:
            self.refresh(layout=True)

    @property
    def _height(self) -> int:
        return len(self._final) + len(self._tail)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._draw(width)
        return self._height

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        self._draw(width)
        at = y - len(self._final)
        line = self._final[y] if at < 0 else self._tail[at] if at < len(self._tail) else Strip.blank(width)
        return line.adjust_cell_length(width).apply_style(self.rich_style)

    def _draw(self, width: int) -> None:
        """Bring the lines up to date with the text, the width and the theme."""
        look = (width, self.app.theme)
        if self._drawn == (look, len(self._source)):
            return
        if self._drawn[0] != look:
            self._final, self._final_chars = [], 0
        self._drawn = (look, len(self._source))
        console = self._colored(width)
        rest = self._source[self._final_chars :]
        done = finished(rest)
        self._final += self._block(console, rest[:done])
        self._final_chars += done
        self._tail = self._block(console, rest[done:])

    def _block(self, console: Console, text: str) -> list[Strip]:
        """The lines of some Markdown, with an empty one behind it."""
        if not text.strip():
            return []
        markdown = _Blocks(text, code_theme=CODE[self.app.current_theme.dark], hyperlinks=False)
        return [Strip(line) for line in console.render_lines(markdown, pad=False)] + [Strip([Segment("")])]

    def _colored(self, width: int) -> Console:
        """One that renders in the colours of the application's theme; Textual makes of them what the terminal has."""
        colors = self.app.theme_variables
        strong, code = colors["primary"], colors["accent"]
        styles = {
            "markdown.code": f"{code} on {colors['panel']}",
            "markdown.code_block": code,
            "markdown.block_quote": "italic",
            "markdown.list": "default",
            "markdown.item.bullet": f"bold {strong}",
            "markdown.item.number": f"bold {strong}",
            "markdown.h1": f"bold underline {strong}",
            "markdown.h2": f"bold {strong}",
            "markdown.h3": f"bold {strong}",
            "markdown.h4": strong,
            "markdown.link": f"underline {colors['secondary']}",
            "markdown.link_url": colors["secondary"],
            "markdown.table.border": strong,
            "markdown.table.header": f"bold {strong}",
        }
        return Console(
            file=io.StringIO(), width=width, force_terminal=True, color_system="truecolor", theme=Theme(styles)
        )
