"""The screen of conversations: the list at the left, the talk in the middle, plots at the right."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.widgets import Footer

from llamina.errors import LlaminaError
from llamina.repl.library import Kept, Library
from llamina.repl.partner import Partner
from llamina.repl.server_events import Server
from llamina.repl.talk import Talk
from llamina.tui.composer import Composer
from llamina.tui.conversation import Absent, Conversation
from llamina.tui.dialogs import Ask, Sure
from llamina.tui.messages import Messages
from llamina.tui.shelf import Shelf, Titles
from llamina.tui.speeds import Speeds
from llamina.tui.status_line import Loading, StatusLine
from llamina.tui.top import Top

Progress = Callable[[str, int, int], None]
Open = Callable[[Progress], Partner]
FRAMES = 10  # a second, while something is worked on


class Chat(Screen[None]):
    """`open_partner` finds or loads the model, in a thread; `system` and `settings` are those of new conversations."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (90, "-medium"), (120, "-wide")]  # noqa: RUF012 - Textual's name
    CSS = """
    Chat.-narrow Shelf, Chat.-narrow Speeds, Chat.-medium Speeds { display: none; }
    Chat.-fold-left Shelf, Chat.-wide.-fold-right Speeds { display: none; }
    Chat.-narrow.-fold-left Shelf { display: block; }
    Chat.-narrow.-fold-right Speeds, Chat.-medium.-fold-right Speeds { display: block; }
    Chat #middle { width: 1fr; min-width: 20; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+n", "new", "New", priority=True),
        Binding("ctrl+r", "again", "Again", priority=True),
        Binding("escape", "stop", "Stop"),
        Binding("ctrl+c", "interrupt", "Stop", show=False, priority=True),
        Binding("ctrl+o", "fold('left')", "List", priority=True),
        Binding("ctrl+g", "fold('right')", "Plots", priority=True),
        Binding("ctrl+y", "copy", "Copy", show=False, priority=True),
        Binding("ctrl+f", "search", "Search", show=False, priority=True),
        Binding("ctrl+t", "top", "Top", show=False, priority=True),
    ]
    KEYS: ClassVar[dict[str, str]] = {
        "Enter": "send; Ctrl-J or Alt-Enter begins a new line",
        "Esc, Ctrl-C": "stop the answer; what was said of it stays",
        "Ctrl-R": "answer the last question again",
        "↑": "in an empty field: edit the last question",
        "Ctrl-Y": "copy the last answer, as Markdown",
        "Ctrl-N": "new conversation",
        "Ctrl-O": "list of conversations: Enter opens, r renames, d deletes",
        "Ctrl-F": "search titles and messages",
        "Ctrl-G": "plots of speed, KV cache and batch",
        "Ctrl-T": "the server's requests, with --url",
        "/help": "commands: settings, files, tools, models",
    }

    def __init__(
        self,
        open_partner: Open,
        library: Library,
        *,
        system: str | None = None,
        settings: Mapping[str, Any] | None = None,
        server: Server | None = None,
    ) -> None:
        super().__init__()
        self.partner: Partner = Absent()
        self._open_partner, self._library, self._server = open_partner, library, server
        self._system, self._settings = system, dict(settings or {})
        self._conversations: dict[str, Conversation] = {}  # those that were opened
        self._kept: list[Kept] = []
        self._search = ""
        self._listed: object = None  # what the list shows
        self.current = self._conversation(Kept())

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Shelf(id="left")
            with Vertical(id="middle"):
                yield Loading()
                yield Messages(id="messages")
                yield StatusLine()
                yield Composer(show_line_numbers=False)
            yield Speeds(id="right")
        yield Footer()

    async def on_mount(self) -> None:
        self._kept, wrong = self._library.read()
        for text in wrong:
            self.notify(text, title="a conversation cannot be read", severity="warning", markup=False)
        self.query_one(Composer).focus()
        self._timer = self.set_interval(1 / FRAMES, self._look, pause=True)
        await self._look()
        threading.Thread(target=self._load, name="load", daemon=True).start()
        self.run_worker(self._watch(), exclusive=False)

    # ---- the model ---------------------------------------------------------------------------------------

    def _load(self) -> None:
        """In a thread: find the partner, and tell the screen how far it is."""

        def progress(what: str, done: int, total: int) -> None:
            self.call_later(self._loading, what, done, total)

        try:
            partner = self._open_partner(progress)
        except Exception as error:  # whatever it is, it must be seen
            self.call_later(self._failed, str(error) or type(error).__name__)
        else:
            self.call_later(self._loaded, partner)

    def _loading(self, what: str, done: int, total: int) -> None:
        loading = self.query_one(Loading)
        loading.show(what, done, total)
        loading.display = not total or done < total

    async def _loaded(self, partner: Partner) -> None:
        self.partner = partner
        for conversation in self._conversations.values():
            conversation.talk.partner = partner
        self.query_one(Loading).display = False
        await self._look()

    async def _failed(self, why: str) -> None:
        assert isinstance(self.partner, Absent)
        self.partner.why = f"there is no model to answer: {why}"
        self.query_one(Loading).display = False
        self.current.refuse(why)
        await self._look()

    async def _watch(self) -> None:
        """Plots of what the model counts; where nobody tells, of what arrives here."""
        why, speeds, before = "", self.query_one(Speeds), 0
        while True:
            try:
                async for snapshot in self.partner.snapshots():
                    speeds.take(snapshot, self.partner.name)
            except LlaminaError as error:
                why = "" if isinstance(self.partner, Absent) else f"measured here: {error}"
            pieces = sum(conversation.pieces for conversation in self._conversations.values())
            speeds.guess(pieces - before, why)
            before = pieces
            await asyncio.sleep(1)

    # ---- conversations -----------------------------------------------------------------------------------

    def _conversation(self, kept: Kept) -> Conversation:
        if kept.id not in self._conversations:
            talk = Talk(self.partner, None if kept.messages else self._system, self._settings)
            self._conversations[kept.id] = Conversation(talk, kept, self._library, self._allow)
        return self._conversations[kept.id]

    def _allow(self, question: str) -> bool:
        """In a conversation's thread: ask whether a tool may be called."""
        answer: Future[bool | None] = Future()
        self.app.call_later(self.app.push_screen, Sure(question), answer.set_result)
        return bool(answer.result())

    def _list(self) -> None:
        busy = {id for id, conversation in self._conversations.items() if conversation.busy}
        self._kept.sort(key=lambda kept: kept.changed, reverse=True)
        shown = [kept for kept in self._kept if not self._search or kept.has(self._search)]
        state = self.current.kept.id, busy, [(kept.id, kept.shown_title) for kept in shown]
        if state != self._listed:
            self._listed = state
            self.query_one(Shelf).fill(shown, self.current.kept.id, busy)

    async def _open(self, kept: Kept) -> None:
        self.current = self._conversation(kept)
        self._list()
        await self._look()
        self.query_one(Composer).focus()

    async def _begin(self, line: str) -> None:
        """Have a line worked on, in the conversation that is open."""
        if self.current.busy:
            self.notify("an answer is on its way: Esc stops it")
            return
        self.current.begin(line)
        self._timer.resume()
        await self._look()

    async def _look(self) -> None:
        """Show what has come of the conversation that is open; when its work is over, what that leaves behind."""
        busy = [each for each in self._conversations.values() if each.busy]
        await self.query_one(Messages).follow(self.current.items)
        self._status()
        if self.current.kept not in self._kept and self.current.kept.messages:
            self._kept.append(self.current.kept)
            self._list()
        if self.current in busy:
            return
        if not busy:
            self._timer.pause()
        if self.current.draft:
            self._draft(self.current.draft)
            self.current.draft = ""
        if self.current.over:
            self.app.exit()
        self._list()

    def _draft(self, text: str) -> None:
        composer = self.query_one(Composer)
        if not composer.text:
            composer.draft(text)

    def _status(self) -> None:
        current, figures = self.current, self.current.figures
        used = figures.prompt_tokens + figures.completion_tokens if figures else 0
        state = self.partner.name or "loading the model"
        if isinstance(self.partner, Absent) and "loading" not in self.partner.why:
            state = "no model"
        if current.busy:
            state += " · answering, Esc stops"
        self.query_one(StatusLine).show(state, used, self.partner.context)

    # ---- what is wanted ----------------------------------------------------------------------------------

    async def on_composer_sent(self, event: Composer.Sent) -> None:
        if self.current.busy:
            self._draft(event.text)
        await self._begin(event.text)

    async def on_composer_recalled(self) -> None:
        await self._begin("/edit")

    async def on_shelf_changed(self, event: Shelf.Changed) -> None:
        kept = next(kept for kept in self._kept if kept.id == event.id)
        if event.what == "open":
            await self._open(kept)
        elif event.what == "rename":
            self.app.push_screen(
                Ask("A title for this conversation", kept.shown_title), lambda t: self._rename(kept, t)
            )
        else:
            question = f"Delete “{kept.shown_title}” for good?"
            self.app.push_screen(Sure(question), lambda yes: self._delete(kept, yes))

    def on_shelf_searched(self, event: Shelf.Searched) -> None:
        self._search = event.text
        self._list()

    def _rename(self, kept: Kept, title: str | None) -> None:
        if title:
            self._try(lambda: self._conversation(kept).rename(title))
            self._list()

    async def _delete(self, kept: Kept, sure: bool | None) -> None:
        if not sure:
            return
        conversation = self._conversations.pop(kept.id, None)
        if conversation is not None:
            conversation.stop()
            await asyncio.to_thread(conversation.join, 10)  # or it would be kept once more
        self._try(lambda: self._library.delete(kept))
        self._kept.remove(kept)
        if self.current is conversation:
            await self._open(Kept())
        self._list()

    def _try(self, change: Callable[[], None]) -> None:
        try:
            change()
        except LlaminaError as error:
            self.notify(str(error), severity="error", markup=False)

    async def action_new(self) -> None:
        await self._open(Kept())

    async def action_again(self) -> None:
        await self._begin("/regen")

    def action_stop(self) -> None:
        if self.current.busy:
            self.current.stop()
        else:
            self.query_one(Composer).focus()

    def action_interrupt(self) -> None:
        """Ctrl-C: the answer, then the selection, then a hint."""
        composer = self.query_one(Composer)
        if self.current.busy:
            self.current.stop()
        elif text := composer.selected_text or self.get_selected_text():
            self.app.copy_to_clipboard(text)
        else:
            self.notify("Ctrl-Q leaves")

    def action_copy(self) -> None:
        """The last answer goes to the clipboard, by way of the terminal."""
        answers = [item.text for item in self.current.items if item.kind == "assistant"]
        if answers:
            self.app.copy_to_clipboard(answers[-1])
            self.notify("the answer is copied")

    def action_fold(self, side: str) -> None:
        """Show or hide what is at a side; a list that is shown gets the focus."""
        self.toggle_class(f"-fold-{side}")
        if side == "left" and self.query_one(Shelf).display:
            self.query_one(Titles).focus()
        else:
            self.query_one(Composer).focus()

    def action_search(self) -> None:
        if not self.query_one(Shelf).display:
            self.toggle_class("-fold-left")
        self.query_one("#search").focus()

    def action_top(self) -> None:
        if self._server is None:
            self.notify("there is no server to look at: give its address with --url")
        else:
            self.app.push_screen(Top(self._server))

    def close(self) -> None:
        """Stop what is under way, and let the model go. For when the screen is gone."""
        for conversation in self._conversations.values():
            conversation.stop()
        for conversation in self._conversations.values():
            conversation.join(10)
        self.partner.close()
