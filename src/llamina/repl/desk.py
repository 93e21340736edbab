"""A conversation at work: lines become commands or questions; whoever has the screen shows what comes of them."""

from abc import ABC, abstractmethod
from typing import Any

from rich.console import RenderableType

from llamina.chat import ToolCall
from llamina.chat.functions import ToolFailed
from llamina.errors import LlaminaError
from llamina.repl import commands
from llamina.repl.partner import Figures, Reply
from llamina.repl.talk import Talk

MOST_ROUNDS = 8  # of tool calls for one question


class Desk(ABC):
    """A talk, and the state of the line that is typed next. Errors are shown, and it goes on."""

    keys = ""  # help of the keyboard, one line

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.figures: Figures | None = None  # of the last answer
        self.over = False
        self.draft = ""  # what the next message begins with

    # ---- what is shown -----------------------------------------------------------------------------------

    @abstractmethod
    def tell(self, text: str) -> None:
        """A note that is not part of the conversation."""

    @abstractmethod
    def show(self, what: RenderableType) -> None:
        """What a command was asked for."""

    @abstractmethod
    def refuse(self, text: str) -> None:
        """An error."""

    @abstractmethod
    def hear(self, reply: Reply) -> None:
        """An answer, as it streams; returns when it is over."""

    @abstractmethod
    def heard(self, figures: Figures) -> None:
        """The answer that was heard, in numbers; its message is in the talk."""

    @abstractmethod
    def allow(self, question: str) -> bool:
        """Whether a tool may be called."""

    @abstractmethod
    def recall(self) -> None:
        """Show what was said before, in a conversation that was loaded."""

    # ---- what is done ------------------------------------------------------------------------------------

    def take(self, line: str) -> None:
        """A command or a message. What goes wrong is shown."""
        try:
            if line.startswith("/"):
                commands.run(self, line)
            else:
                self.talk.ask(line)
                self.answer()
        except (LlaminaError, OSError, ValueError) as error:
            self.refuse(str(error))

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
                self.draft = self.talk.undo()
            raise

    def _answer_once(self) -> None:
        reply = self.talk.partner.answer(self.talk.messages, self.talk.options)
        self.hear(reply)
        self.talk.messages.append(reply.message())
        self.figures = reply.figures()
        self.heard(self.figures)

    def _called(self, call: ToolCall) -> dict[str, Any]:
        """The result of a call that was allowed, as a message to the model."""
        assert self.talk.functions is not None
        if not self.allow(f"call {call.name}({call.arguments})?"):
            result = "the user does not allow this call"
        else:
            try:
                result = self.talk.functions.call(call)
            except ToolFailed as error:
                result = f"error: {error}"
        self.tell(f"{call.name} → {result}")
        return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": result}
