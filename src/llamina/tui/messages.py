"""The talk in the middle: questions, answers as Markdown while they stream, notes."""

import asyncio
from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Collapsible, Static

from llamina.tui.conversation import Item
from llamina.tui.markdown_lines import MarkdownLines


class Words(Static):
    """A question or a note."""

    DEFAULT_CSS = """
    Words { height: auto; margin: 0 0 1 0; padding: 0 1; }
    Words.user { background: $panel; border-left: thick $primary; padding: 0 1; }
    Words.system, Words.tool { color: $text-muted; border-left: thick $foreground 20%; }
    Words.note { color: $text-muted; }
    Words.error { color: $text-error; border-left: thick $error; }
    """

    def __init__(self, item: Item) -> None:
        super().__init__(item.text if item.what is None else item.what, markup=item.what is not None)
        self.item = item
        self.add_class(item.kind)

    async def follow(self) -> None:
        """Nothing of it changes."""


class Answer(Vertical):
    """An answer: reasoning, folded; the text; its figures when it is over."""

    DEFAULT_CSS = """
    Answer {
        height: auto; margin: 0; padding: 0 1;
        & > Collapsible { border: none; padding: 0; background: transparent; margin: 0 0 1 0; }
        & > Collapsible Static { color: $text-muted; text-style: italic; }
        & > .figures { color: $text-muted; height: auto; margin: 0 0 1 0; }
    }
    """

    def __init__(self, item: Item) -> None:
        super().__init__()
        self.item = item
        self._reasoning = Static("", markup=False)
        self._text = MarkdownLines()
        self._figures = Static("", classes="figures", markup=False)
        self._figures.display = False

    def compose(self) -> ComposeResult:
        yield self._text
        yield self._figures

    async def follow(self) -> None:
        """Show what has come since the last time."""
        if self.item.reasoning:
            if not self._reasoning.is_attached:
                await self.mount(Collapsible(self._reasoning, title="reasoning"), before=self._text)
            self._reasoning.update(self.item.reasoning)
        self._text.show(self.item.text)
        if self.item.figures and not self._figures.display:
            self._figures.update(self.item.figures)
            self._figures.display = True


class Messages(VerticalScroll):
    """The items of a conversation, from the oldest on. It stays at the end unless one scrolls away from it."""

    DEFAULT_CSS = """
    Messages {
        height: 1fr;
        & > Vertical { height: auto; min-height: 100%; padding: 1 1 0 1; }
    }
    """  # an anchored container shows less than a screenful at its bottom: so there always is one

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._views: list[Words | Answer] = []
        self._following = asyncio.Lock()

    def compose(self) -> ComposeResult:
        yield Vertical()

    async def follow(self, items: Sequence[Item]) -> None:
        """Show these items: what is there already stays, and only what is new of it is drawn."""
        async with self._following:
            await self._follow(items)

    async def _follow(self, items: Sequence[Item]) -> None:
        same = 0
        while same < min(len(items), len(self._views)) and self._views[same].item is items[same]:
            same += 1
        sheet = self.query_one(Vertical)
        if gone := self._views[same:]:
            await sheet.remove_children(gone)
        fresh = [Answer(item) if item.kind == "assistant" else Words(item) for item in items[same:]]
        self._views = [*self._views[:same], *fresh]
        if fresh:
            await sheet.mount_all(fresh)
            self.anchor()
        for view in self._views[-1:] if not fresh else [*self._views[same - 1 : same], *fresh]:
            await view.follow()
