"""The loop: read, run a command or ask the model, show the answer, until it is over."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from llamina.chat import ToolCall
from llamina.chat.functions import ToolFailed
from llamina.errors import LlaminaError
from llamina.repl import commands
from llamina.repl.keyboard import Keyboard, Pipe, Reader
from llamina.repl.markdown import Writer
from llamina.repl.partner import Figures, Reply
from llamina.repl.talk import Talk

MOST_ROUNDS = 8  # of tool calls for one question


class Repl:
    """A conversation in a terminal. Errors are shown, and it goes on."""

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
        self.talk, self.console, self.plain = talk, console, plain
        self.figures: Figures | None = None  # of the last answer
        self.over = False
        self.draft = ""  # what the next message begins with
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

    def take(self, line: str) -> None:
        """A command or a message. What goes wrong is shown."""
        try:
            if line.startswith("/"):
                commands.run(self, line)
            else:
                self.talk.ask(line)
                self.answer()
        except (LlaminaError, OSError, ValueError) as error:
            self.console.print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True)

    def tell(self, text: str) -> None:
        """A note that is not part of the conversation."""
        self.console.print(escape(text), style="dim", soft_wrap=True)

    def answer(self) -> None:
        """Let the model answer the last message, and call its tools if it wants to. A question that fails is undone."""
        try:
            for _ in range(MOST_ROUNDS):
                self._answer_once()
                calls = self.talk.calls() if self.talk.functions is not None else []
                if not calls:
                    return
                for call in calls:
                    self.talk.messages.append(self._called(call))
            self.tell(f"the model called tools {MOST_ROUNDS} times in a row: that is enough for one question")
        except LlaminaError:
            if self.talk.messages and self.talk.messages[-1]["role"] == "user":
                question = self.talk.undo()
                self.draft = question if self.console.is_terminal else ""
            raise

    def _answer_once(self) -> None:
        reply = self.talk.partner.answer(self.talk.messages, self.talk.options)
        with Writer(self.console, self.plain) as writer, _stopped_by_ctrl_c(reply):
            for piece in reply:
                if piece.reasoning:
                    writer.reasoning(piece.reasoning)
                if piece.text:
                    writer.text(piece.text)
        self.talk.messages.append(reply.message())
        self.figures = reply.figures()
        if self.console.is_terminal:
            self.tell(self.figures.line(self.talk.partner.context))

    def _called(self, call: ToolCall) -> dict[str, Any]:
        """The result of a call that was allowed, as a message to the model."""
        assert self.talk.functions is not None
        if not self._confirm(f"call {call.name}({call.arguments})?"):
            result = "the user does not allow this call"
        else:
            try:
                result = self.talk.functions.call(call)
            except ToolFailed as error:
                result = f"error: {error}"
        self.tell(f"{call.name} → {result}")
        return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": result}

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
