"""Chunks of an answer as output items, and as the events that tell of them."""

from collections.abc import Callable
from typing import Any, Literal

from llamina.server.model import Chunk
from llamina.server.model.frames import CallDelta, Logprob
from llamina.server.openai.responses.items import NewId
from llamina.server.openai.responses.schema import ContentPart, ItemObject
from llamina.server.openai.responses.schema import ResponseEvent as Event
from llamina.server.openai.schema import TokenLogprob
from llamina.server.openai.usage import logprobs

Kind = Literal["message", "reasoning", "function_call"]
Status = Literal["in_progress", "completed", "incomplete"]
NewEvent = Callable[..., Event]


class Part:
    """An output item under way. `text` is what it says so far: its text, its reasoning, or a call's arguments."""

    def __init__(self, kind: Kind, id: str, index: int, call: CallDelta | None = None) -> None:
        self.kind, self.id, self.index, self.call = kind, id, index, call
        self.status: Status = "in_progress"
        self.scored: list[TokenLogprob] = []
        self._pieces: list[str] = []

    def add(self, text: str) -> None:
        self._pieces.append(text)

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def content(self) -> ContentPart:
        """The one part that a message's or reasoning's content has."""
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": self.text}
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": list(self.scored)}

    def item(self, *, begun: bool = False) -> ItemObject:
        """The item; `begun`: as it is announced, without content."""
        item: ItemObject = {"type": self.kind, "id": self.id, "status": self.status}
        if self.call is not None:
            item |= {"call_id": self.call.id or "", "name": self.call.name, "arguments": self.text}
            return item
        item["content"] = [] if begun else [self.content()]
        if self.kind == "reasoning":
            item |= {"summary": [], "encrypted_content": None}
        else:
            item["role"] = "assistant"
        return item


class Output:
    """Takes chunks; has the items that they come to, and returns the events of each.

    A call that turns out to be none is withdrawn: it was added, is never done, and is no item in the end.
    """

    def __init__(self, new_id: NewId, event: NewEvent) -> None:
        self._new_id, self._event = new_id, event
        self._parts: list[Part] = []
        self._count = 0
        self._open: Part | None = None
        self._call = -1  # the index of the call that is open
        self._scored: list[Logprob | None] = []  # not told yet
        self.reasoning_tokens = 0

    @property
    def items(self) -> list[ItemObject]:
        return [part.item() for part in self._parts]

    def take(self, chunk: Chunk) -> list[Event]:
        events: list[Event] = []
        for call in chunk.calls:
            if call.dropped:
                self._withdraw(call.index)
        more = [call for call in chunk.calls if call.name is None and call.index == self._call and self._open]
        for call in more:
            events += self._more("response.function_call_arguments.delta", call.arguments)
        if chunk.reasoning:
            self.reasoning_tokens += len(chunk.tokens) if not chunk.text else 0
            self._scored = []
            events += self._begin("reasoning") + self._more("response.reasoning_text.delta", chunk.reasoning)
        elif not chunk.calls:
            self._scored += chunk.logprobs or []
        if chunk.text:
            events += self._begin("message") + self._say(chunk.text)
        for call in chunk.calls:
            if not call.dropped and call not in more:
                events += self._take_call(call)
        return events

    def finish(self, status: Status) -> list[Event]:
        """End the item that is open; an answer without any is an empty message."""
        events = [] if self._parts else self._begin("message")
        return events + self._close(status)

    def _begin(self, kind: Kind, call: CallDelta | None = None) -> list[Event]:
        """Open an item, unless one of that kind is open."""
        if self._open is not None and self._open.kind == kind and call is None:
            return []
        events = self._close("completed")
        prefix = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}[kind]
        part = self._open = Part(kind, self._new_id(prefix), self._count, call)
        self._parts.append(part)
        self._count += 1
        added = self._event("response.output_item.added", output_index=part.index, item=part.item(begun=True))
        events.append(added)
        if call is None:
            events.append(self._event("response.content_part.added", **self._where(part), part=part.content()))
        return events

    def _take_call(self, call: CallDelta) -> list[Event]:
        events: list[Event] = []
        if call.name is not None:
            events += self._begin("function_call", call)
            self._call, self._scored = call.index, []
        if call.arguments and call.index == self._call:
            events += self._more("response.function_call_arguments.delta", call.arguments)
        return events

    def _withdraw(self, index: int) -> None:
        if self._open is not None and self._open.call is not None and index == self._call:
            self._parts.remove(self._open)
            self._open, self._call = None, -1

    def _say(self, text: str) -> list[Event]:
        assert self._open is not None
        scored, self._scored = logprobs(self._scored), []
        self._open.scored += scored
        return self._more("response.output_text.delta", text, logprobs=scored)

    def _more(self, name: str, text: str, **also: Any) -> list[Event]:
        assert self._open is not None
        self._open.add(text)
        return [self._event(name, **self._where(self._open), delta=text, **also)]

    def _where(self, part: Part) -> dict[str, Any]:
        where: dict[str, Any] = {"item_id": part.id, "output_index": part.index}
        return where if part.call is not None else where | {"content_index": 0}

    def _close(self, status: Status) -> list[Event]:
        part, self._open, self._call = self._open, None, -1
        if part is None:
            return []
        part.status = status
        where = self._where(part)
        if part.kind == "message":
            self._scored = []  # of tokens without text: the end of the answer, the marker of a call
            done = self._event("response.output_text.done", **where, text=part.text, logprobs=list(part.scored))
        elif part.kind == "reasoning":
            done = self._event("response.reasoning_text.done", **where, text=part.text)
        else:
            assert part.call is not None
            name = "response.function_call_arguments.done"
            done = self._event(name, **where, name=part.call.name, arguments=part.text)
        events = [done]
        if part.call is None:
            events.append(self._event("response.content_part.done", **where, part=part.content()))
        return [*events, self._event("response.output_item.done", output_index=part.index, item=part.item())]
