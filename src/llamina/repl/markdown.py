"""Markdown as it streams: finished blocks are printed once, only the last open one is drawn again."""

import re
from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.text import Text

from llamina.repl.visible import visible

FRAMES = 12  # a second
FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)


def finished(text: str) -> int:
    """Where the last block begins that more text may still change: all before it is final."""
    end, open_fence, at = 0, "", 0
    for line in text.splitlines(keepends=True):
        at += len(line)
        found = FENCE.match(line)
        if found and not open_fence:
            open_fence = found[1]
        elif found and found[1].startswith(open_fence) and not line.strip().strip(open_fence[0]):
            open_fence = ""
        elif not open_fence and not line.strip() and line.endswith("\n"):
            end = at
    return end


class Tail:
    """The open block, as many lines of it as the terminal has room for."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(options.size.height - 2, 1)
        lines = console.render_lines(Markdown(self._text), options.update(height=None), pad=False)
        for line in lines[-room:]:
            yield from line
            yield "\n"


class Writer:
    """`text` and `reasoning` as they come. Without a terminal, text is printed as it is and reasoning left out."""

    def __init__(self, console: Console, plain: bool = False) -> None:
        self._console, self._plain = console, plain or not console.is_terminal
        self._open = ""
        self._thinking = False
        self._printed = False  # a block of the answer
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if not self._plain:
            self._live = Live(console=self._console, refresh_per_second=FRAMES, transient=True, auto_refresh=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update(Text(""))
            self._live.stop()
            self._print(self._open)
        elif self._open and not self._open.endswith("\n"):
            self._console.print()

    def reasoning(self, text: str) -> None:
        if self._plain:
            return
        self._open += visible(text)
        self._thinking = True
        assert self._live is not None
        whole, _, rest = self._open.rpartition("\n")
        if whole:
            self._console.print(Text(whole, style="dim italic"))
            self._open = rest
        self._live.update(Text(self._open, style="dim italic"))

    def text(self, text: str) -> None:
        if self._console.is_terminal:
            text = visible(text)
        if self._plain:
            self._open = text
            self._console.print(text, end="", markup=False, highlight=False, soft_wrap=True)
            return
        assert self._live is not None
        if self._thinking:
            self._console.print(Text(self._open + "\n", style="dim italic"))
            self._open, self._thinking = "", False
        self._open += text
        if end := finished(self._open):
            self._print(self._open[:end])
            self._open = self._open[end:]
        self._live.update(Tail(self._open))

    def _print(self, text: str) -> None:
        if self._thinking:
            self._console.print(Text(text, style="dim italic"))
        elif text.strip():
            if self._printed:
                self._console.print()
            self._console.print(Markdown(text))
            self._printed = True
