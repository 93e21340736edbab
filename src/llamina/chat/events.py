"""Events of a chat answer (content, reasoning, tool calls), and what they add up to."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A tool call begins; its arguments follow."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of a call's arguments: JSON as the model wrote it."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A call is complete, and its arguments are a JSON object."""

    index: int


@dataclass(frozen=True, slots=True)
class CallDropped:
    """The text of a call that had begun is no call: it follows as content."""

    index: int


ChatEvent = Content | Reasoning | CallBegin | CallArguments | CallEnd | CallDropped


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that the model asks for; `arguments` is the JSON that it wrote."""

    id: str
    name: str
    arguments: str

    def message(self) -> dict[str, Any]:
        """Return the call as an entry of an assistant message's `tool_calls`."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(slots=True)
class Collected:
    """The text, reasoning and calls that events add up to."""

    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    _open: dict[int, CallBegin] = field(default_factory=dict)
    _arguments: dict[int, list[str]] = field(default_factory=dict)

    def add(self, event: ChatEvent) -> None:
        """Add the next event."""
        match event:
            case Content(text):
                self.text += text
            case Reasoning(text):
                self.reasoning += text
            case CallBegin(index):
                self._open[index], self._arguments[index] = event, []
            case CallArguments(index, text):
                self._arguments[index].append(text)
            case CallEnd(index):
                begun = self._open.pop(index)
                self.tool_calls.append(ToolCall(begun.id, begun.name, "".join(self._arguments.pop(index))))
            case CallDropped(index):
                del self._open[index], self._arguments[index]


def merged(events: Iterable[ChatEvent]) -> list[ChatEvent]:
    """Return the events with neighbours of one kind joined and empty ones left out."""
    joined: list[ChatEvent] = []
    for event in events:
        match event, joined[-1] if joined else None:
            case (Content("") | Reasoning("") | CallArguments(_, ""), _):
                continue
            case (Content(text), Content(before)):
                joined[-1] = Content(before + text)
            case (Reasoning(text), Reasoning(before)):
                joined[-1] = Reasoning(before + text)
            case (CallArguments(index, text), CallArguments(same, before)) if index == same:
                joined[-1] = CallArguments(index, before + text)
            case _:
                joined.append(event)
    return joined
