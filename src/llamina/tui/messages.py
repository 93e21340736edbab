"""The talk in the middle: questions, answers as Markdown while they stream, notes."""

import asyncio
from collections.abc import Sequence
from urllib.parse import urlsplit

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Collapsible, Markdown, Static

from llamina.tui.conversation import Item


class Words(Static):
    """A question or a note."""

    DEFAULT_CSS = """
    Words { height: auto; margin: 0 0 1 0; padding: 0 1; }
    Words.user { background: $panel; border-left: thick $primary; padding: 0 1; }
    Words.system, Words.tool { color: $text-muted; border-left: thick $surface-lighten-2; }
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
        height: auto; margin: 0 0 1 0; padding: 0 1;
        & > Markdown { padding: 0; margin: 0; background: transparent; }
        & MarkdownH1, & MarkdownH2 { content-align: left middle; margin: 0 0 1 0; }
        & > Collapsible { border: none; padding: 0; background: transparent; margin: 0; }
        & > Collapsible Static { color: $text-muted; text-style: italic; }
        & > .figures { color: $text-muted; height: auto; }
    }
    """

    def __init__(self, item: Item) -> None:
        super().__init__()
        self.item = item
        self._shown = 0
        self._thought = 0

    def compose(self) -> ComposeResult:
        self._reasoning = Static("", markup=False)
        yield Collapsible(self._reasoning, title="reasoning", classes="reasoning")
        yield Markdown("", open_links=False)
        yield Static("", classes="figures", markup=False)

    async def follow(self) -> None:
        """Show what has come since the last time."""
        text, reasoning = self.item.text, self.item.reasoning  # the thread may add to them meanwhile
        self.query_one(".reasoning").display = bool(reasoning)
        if len(reasoning) > self._thought:
            self._reasoning.update(reasoning)
            self._thought = len(reasoning)
        if len(text) > self._shown:
            fresh, self._shown = text[self._shown :], len(text)
            await self.query_one(Markdown).append(fresh)
        figures = self.query_one(".figures", Static)
        figures.display = bool(self.item.figures)
        figures.update(self.item.figures)

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """The model chose where it goes: only the web, and it is told where that is."""
        event.stop()
        if urlsplit(event.href).scheme in ("http", "https", "mailto"):
            self.app.open_url(event.href)
        self.notify(event.href, title="link", markup=False)


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
