"""The loop: read, run a command or ask the model, show the answer, until it is over."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, RenderableType
from rich.markup import escape

from llamina.repl.commands import said
from llamina.repl.desk import Desk
from llamina.repl.keyboard import Keyboard, Pipe, Reader
from llamina.repl.markdown import Writer
from llamina.repl.partner import Figures, Reply
from llamina.repl.talk import Talk


class Repl(Desk):
    """A conversation in a terminal, line by line."""

    keys = "Enter sends · Alt-Enter or a line that ends with \\ goes on · Ctrl-C stops an answer · Ctrl-D leaves"

    def __init__(
        self,
        talk: Talk,
        console: Console,
        *,
        history: Path | None = None,
        plain: bool = False,
        reader: Reader | None = None,
        confirm: Callable[[str], bool] | None = None,
    ) -> None:
        super().__init__(talk)
        self.console, self.plain = console, plain
        self._reader: Reader = reader or (Keyboard(self, history) if console.is_terminal else Pipe())
        self._confirm = confirm or self._ask_yes

    def run(self) -> None:
        """Until `/quit`, the end of the input, or Ctrl-C at an empty line."""
        while not self.over:
            draft, self.draft = self.draft, ""
            try:
                line = self._reader.read(draft).strip()
            except EOFError:
                return
            except KeyboardInterrupt:
                self.tell("Ctrl-D or /quit leaves")
                continue
            if line:
                self.take(line)

    def tell(self, text: str) -> None:
        self.console.print(escape(text), style="dim", soft_wrap=True)

    def show(self, what: RenderableType) -> None:
        self.console.print(what)

    def refuse(self, text: str) -> None:
        self.console.print(f"[red]error:[/] {escape(text)}", soft_wrap=True)
        if not self.console.is_terminal:
            self.draft = ""  # what is piped in goes on with the next line

    def hear(self, reply: Reply) -> None:
        with Writer(self.console, self.plain) as writer, _stopped_by_ctrl_c(reply):
            for piece in reply:
                if piece.reasoning:
                    writer.reasoning(piece.reasoning)
                if piece.text:
                    writer.text(piece.text)

    def heard(self, figures: Figures) -> None:
        if self.console.is_terminal:
            self.tell(figures.line(self.talk.partner.context))

    def allow(self, question: str) -> bool:
        return self._confirm(question)

    def recall(self) -> None:
        for message in self.talk.messages[-2:]:
            self.show(said(message))

    def _ask_yes(self, question: str) -> bool:
        self.console.print(f"[yellow]{escape(question)}[/] [dim](y/N)[/] ", end="")
        try:
            return self._reader.read().strip().lower() in ("y", "yes")
        except (EOFError, KeyboardInterrupt):
            return False


@contextmanager
def _stopped_by_ctrl_c(reply: Reply) -> Iterator[None]:
    """Ctrl-C ends the answer; what was said of it stays."""

    def stop(number: int, frame: object) -> None:
        reply.stop()

    try:
        before = signal.signal(signal.SIGINT, stop)
    except ValueError:  # not the main thread: signals are somebody else's
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
