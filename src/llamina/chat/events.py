"""What is noticed in an answer while it is being made."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text of the model to itself."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A call of a tool begins; its arguments follow."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of a call's arguments: JSON, as the model writes it."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A call is complete, and its arguments are a JSON object."""

    index: int


@dataclass(frozen=True, slots=True)
class CallDropped:
    """What had begun as a call is none: it comes as content instead."""

    index: int


ChatEvent = Content | Reasoning | CallBegin | CallArguments | CallEnd | CallDropped


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for; `arguments` is the JSON that it wrote."""

    id: str
    name: str
    arguments: str

    def message(self) -> dict[str, Any]:
        """The call as a part of an assistant's message."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(slots=True)
class Collected:
    """Events put together."""

    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    _open: dict[int, CallBegin] = field(default_factory=dict)
    _arguments: dict[int, list[str]] = field(default_factory=dict)

    def add(self, event: ChatEvent) -> None:
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
    """Neighbours of one kind as one event, empty ones left out."""
    found: list[ChatEvent] = []
    for event in events:
        match event, found[-1] if found else None:
            case (Content("") | Reasoning("") | CallArguments(_, ""), _):
                continue
            case (Content(text), Content(before)):
                found[-1] = Content(before + text)
            case (Reasoning(text), Reasoning(before)):
                found[-1] = Reasoning(before + text)
            case (CallArguments(index, text), CallArguments(same, before)) if index == same:
                found[-1] = CallArguments(index, before + text)
            case _:
                found.append(event)
    return found
