"""Python functions that the model calls, round by round."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llamina.chat import ToolCall
from llamina.chat.functions import Functions, ToolFailed
from llamina.engine.turn import ChatCompletion
from llamina.errors import RequestError

if TYPE_CHECKING:
    from llamina.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class ToolRun:
    """A conversation with its tools called. The last answer still has calls in it if the rounds were used up."""

    result: ChatCompletion
    messages: list[dict[str, Any]]  # all of them, the last answer included
    rounds: int  # of calls that were answered


def run_tools(
    engine: "Engine",
    messages: Sequence[Mapping[str, Any]],
    functions: Sequence[Callable[..., Any]],
    max_rounds: int,
    options: dict[str, Any],
) -> ToolRun:
    """Answer, call what the answer asks for, and go on with the results."""
    if max_rounds < 1:
        raise RequestError(f"max_rounds is {max_rounds}: at least 1 is expected", "max_rounds")
    registered = Functions(functions)
    said = [dict(message) for message in messages]
    rounds = 0
    while True:
        result = engine.chat(said, tools=registered.tools, **options)
        said.append(result.message())
        if not result.tool_calls or rounds == max_rounds:
            return ToolRun(result, said, rounds)
        for call in result.tool_calls:
            said.append(_answer(registered, call))
        rounds += 1
        options = options | {"tool_choice": "auto"}  # what must be called has been called


def _answer(functions: Functions, call: ToolCall) -> dict[str, Any]:
    try:
        content = functions.call(call)
    except ToolFailed as error:
        content = f"error: {error}"
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}
