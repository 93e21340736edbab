"""Python functions that the model calls, round by round."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llamina.chat import ToolCall
from llamina.chat.functions import Functions, ToolFailed
from llamina.engine.tasks.chat import ChatCompletion, Messages, conversation
from llamina.errors import RequestError


@dataclass(frozen=True, slots=True)
class ToolRun:
    """A conversation with its tools called. The last answer still has calls in it if the rounds were used up."""

    result: ChatCompletion
    messages: list[dict[str, Any]]  # all of them, the last answer included
    rounds: int  # of calls that were answered


class Rounds:
    """Answers, and the calls that they ask for. `messages` and `options` are those of the next one."""

    def __init__(
        self,
        messages: Messages,
        functions: Sequence[Callable[..., Any]],
        max_rounds: int,
        options: dict[str, Any],
    ) -> None:
        if max_rounds < 1:
            raise RequestError(f"max_rounds is {max_rounds}: it must be at least 1", "max_rounds")
        self._functions = Functions(functions)
        self._most, self._rounds = max_rounds, 0
        self.messages = conversation(messages)
        self.options = options | {"tools": self._functions.tools}

    def take(self, result: ChatCompletion) -> ToolRun | None:
        """Call what an answer asks for; None: go on with the results."""
        self.messages.append(result.message())
        if not result.tool_calls or self._rounds == self._most:
            return ToolRun(result, self.messages, self._rounds)
        for call in result.tool_calls:
            self.messages.append(_answer(self._functions, call))
        self._rounds += 1
        self.options |= {"tool_choice": "auto"}  # what must be called has been called
        return None


def _answer(functions: Functions, call: ToolCall) -> dict[str, Any]:
    try:
        content = functions.call(call)
    except ToolFailed as error:
        content = f"error: {error}"
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}
