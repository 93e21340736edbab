"""A conversation of the TUI: its lines are worked on in a thread, and the screen looks at `items` for what there is."""

import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import RenderableType
from rich.text import Text

from llamina.errors import LlaminaError
from llamina.repl.desk import Desk
from llamina.repl.library import Kept, Library
from llamina.repl.partner import Figures, Message, Reply
from llamina.repl.server_events import Snapshot
from llamina.repl.talk import Talk, text_of
from llamina.repl.visible import visible

Allow = Callable[[str], bool]


@dataclass(eq=False)
class Item:
    """Something in a conversation. The thread that works on it adds text; the screen only reads."""

    kind: Literal["system", "user", "assistant", "tool", "note", "error"]
    text: str = ""
    reasoning: str = ""
    figures: str = ""  # of an answer that is over
    what: RenderableType | None = None  # of a note that is not a text


class Conversation(Desk):
    """Takes one line at a time. Every change is kept in the library."""

    keys = "Enter sends · Ctrl-J, Alt-Enter or a \\ at the end goes on · Esc stops an answer · F1 lists the keys"

    def __init__(self, talk: Talk, kept: Kept, library: Library, allow: Allow) -> None:
        super().__init__(talk)
        self.kept, self.busy, self.pieces = kept, False, 0
        if kept.messages:
            talk.messages = kept.messages
        self.items: Sequence[Item] = ()
        self._library, self._allow = library, allow
        self._notes: list[Item] = []
        self._known: dict[int, tuple[Message, Item]] = {}  # by the message's identity
        self._reply: Reply | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._arrange()

    # ---- from the screen ---------------------------------------------------------------------------------

    def begin(self, line: str) -> None:
        """Work on a line in the background; `busy` until that is over."""
        assert not self.busy
        self.busy, self._stopping, self._notes = True, False, []
        self._thread = threading.Thread(target=self._work, args=(line,), name="conversation", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the answer soon; what was said of it stays."""
        self._stopping = True
        if self._reply is not None:
            self._reply.stop()

    def join(self, seconds: float) -> None:
        """Wait until nothing is worked on any more."""
        if self._thread is not None:
            self._thread.join(seconds)

    def rename(self, title: str) -> None:
        """Raises SnapshotError if that cannot be kept."""
        self.kept.title = title
        self._keep()

    # ---- in the thread -----------------------------------------------------------------------------------

    def _work(self, line: str) -> None:
        try:
            self.take(line)
            self._keep()
        except LlaminaError as error:  # it could not be kept
            self.refuse(str(error))
        finally:
            self._reply = None
            self._arrange()
            self.busy = False

    def _keep(self) -> None:
        self.kept.messages = self.talk.messages
        if self.kept.on_disk or any(message["role"] != "system" for message in self.talk.messages):
            self._library.keep(self.kept)

    def _arrange(self) -> None:
        """Make the items of the messages, and of the notes behind them."""
        self.items = [*map(self._item, self.talk.messages), *self._notes]

    def _item(self, message: Message) -> Item:
        if id(message) not in self._known:
            text = visible(text_of(message)) if message.get("content") else ""
            calls = [f"`{call['function']['name']}({call['function']['arguments']})`" for call in _calls(message)]
            item = Item(message["role"], "\n\n".join(filter(None, [text, *map(visible, calls)])))
            item.reasoning = visible(message.get("reasoning_content") or "")
            self._known[id(message)] = (message, item)
        return self._known[id(message)][1]

    def tell(self, text: str) -> None:
        self._note(Item("note", visible(text)))

    def refuse(self, text: str) -> None:
        self._note(Item("error", visible(text)))

    def show(self, what: RenderableType) -> None:
        self._note(Item("note", what=Text.from_markup(what) if isinstance(what, str) else what))

    def recall(self) -> None:
        """The screen shows all of it anyway."""

    def _note(self, item: Item) -> None:
        self._notes.append(item)
        self._arrange()

    def hear(self, reply: Reply) -> None:
        self._reply, item = reply, Item("assistant")
        self._arrange()
        self.items = [*self.items, item]
        self._keep()
        if self._stopping:
            reply.stop()
        for piece in reply:
            item.reasoning += visible(piece.reasoning)
            item.text += visible(piece.text)
            self.pieces += 1

    def heard(self, figures: Figures) -> None:
        message, item = self.talk.messages[-1], self.items[-1]
        item.figures = figures.line(None)  # the screen has a meter for the context
        if not _calls(message):  # an answer with calls is shown anew, with them
            self._known[id(message)] = (message, item)

    def allow(self, question: str) -> bool:
        return not self._stopping and self._allow(question)


def _calls(message: Message) -> Sequence[Mapping[str, Any]]:
    return message.get("tool_calls") or ()


class Absent:
    """Who answers while a model is not there yet, or cannot be had: nobody."""

    name, context = "", None

    def __init__(self) -> None:
        self.why = "the model is still loading: send it again in a moment"

    def answer(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Reply:
        raise LlaminaError(self.why)

    def check(self, options: Mapping[str, Any]) -> None:
        raise LlaminaError(self.why)

    def models(self) -> list[str]:
        raise LlaminaError(self.why)

    def use(self, name: str) -> None:
        raise LlaminaError(self.why)

    def stats(self) -> dict[str, str]:
        raise LlaminaError(self.why)

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        raise LlaminaError(self.why)
        yield

    def save(self, path: Path, messages: Sequence[Message]) -> str:
        raise LlaminaError(self.why)

    def load(self, path: Path) -> list[dict[str, Any]]:
        raise LlaminaError(self.why)

    def close(self) -> None: ...
