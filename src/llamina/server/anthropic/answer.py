"""Chunks put together as an Anthropic message, and as the events of its stream."""

from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

import msgspec

from llamina.server.anthropic.conversation import CALL_PREFIX, hide
from llamina.server.anthropic.schema import ContentBlock, Delta, Event, Message, MessageUsage
from llamina.server.errors import ApiError
from llamina.server.ids import new_id
from llamina.server.model import Chunk
from llamina.server.model.frames import CallDelta


@dataclass(eq=False)
class Block:
    """A content block on its way; `text` is its text, its thinking, or the JSON of a call's arguments."""

    kind: Literal["text", "thinking", "tool_use"]
    text: str = ""
    id: str = ""
    name: str = ""
    signature: str = ""

    def whole(self) -> ContentBlock:
        match self.kind:
            case "text":
                return {"type": "text", "text": self.text, "citations": None}
            case "thinking":
                return {"type": "thinking", "thinking": self.text, "signature": self.signature}
        arguments = msgspec.Raw((self.text or "{}").encode())  # the parser has seen that it is an object
        return {"type": "tool_use", "id": self.id, "name": self.name, "input": arguments}

    def empty(self) -> ContentBlock:
        """As a stream begins it."""
        return Block(self.kind, id=self.id, name=self.name).whole()

    def delta(self, text: str) -> Delta:
        match self.kind:
            case "text":
                return {"type": "text_delta", "text": text}
            case "thinking":
                return {"type": "thinking_delta", "thinking": text}
        return {"type": "input_json_delta", "partial_json": text}


class Answer:
    """Give it every chunk; it tells the stream's events, and in the end the whole message.

    A call is told when it is complete, as what begins like one may turn out to be none; those of `eager` tools are
    told as they are made.
    """

    def __init__(
        self, model: str, max_tokens: int, omit_thinking: bool, one_call: bool, eager: Container[str] = ()
    ) -> None:
        self._id, self._model, self._max_tokens = new_id("msg_"), model, max_tokens
        self._omit_thinking, self._one_call, self._eager = omit_thinking, one_call, eager
        self._blocks: list[Block] = []
        self._index = -1  # of the last block that the stream has begun
        self._open: Block | None = None
        self._thoughts = ""  # of the open thinking block, shown or not
        self._blank = ""  # white space that a text block may begin with
        self._calls: dict[int, Block] = {}
        self._held: Block | None = None  # the call that is not told yet
        self._prompt_tokens = self._cached = self._tokens = self._thinking_tokens = 0
        self.stop_reason: str | None = None
        self.stop_sequence: str | None = None

    # ---- objects -----------------------------------------------------------------------------------------

    def whole(self) -> Message:
        """The message so far."""
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [block.whole() for block in self._blocks],
            "stop_reason": self.stop_reason,
            "stop_sequence": self.stop_sequence,
            "usage": {**self._usage(), "service_tier": "standard"},
        }

    def start(self, first: Chunk) -> Event:
        """The event that begins the stream; it has the counts of the prompt."""
        self._prompt_tokens, self._cached = first.prompt_tokens, first.cached_tokens
        return {"type": "message_start", "message": self.whole()}

    def end(self) -> list[Event]:
        """The events after the last block."""
        delta: Delta = {"stop_reason": self.stop_reason, "stop_sequence": self.stop_sequence}
        return [{"type": "message_delta", "delta": delta, "usage": self._usage()}, {"type": "message_stop"}]

    def _usage(self) -> MessageUsage:
        return {
            "input_tokens": self._prompt_tokens - self._cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": self._cached,
            "output_tokens": self._tokens,
            "output_tokens_details": {"thinking_tokens": self._thinking_tokens},
        }

    # ---- chunks ------------------------------------------------------------------------------------------

    def take(self, chunk: Chunk) -> list[Event]:
        """The events of a chunk. After one that brings a `stop_reason` nothing more is wanted."""
        self._prompt_tokens, self._cached = chunk.prompt_tokens, chunk.cached_tokens
        if self._max_tokens == 0:  # the prompt alone was to be computed
            return self._finish("max_tokens") if chunk.tokens else []
        self._count(chunk)
        events: list[Event] = []
        begun = {call.index for call in chunk.calls if call.name is not None}
        lost = {call.index for call in chunk.calls if call.dropped}
        for call in chunk.calls:
            if call.index not in begun:
                events += self._continue_call(call)
        if chunk.reasoning or chunk.text:
            events += self._release()
        if chunk.reasoning:
            events += self._think(chunk.reasoning)
        if chunk.text:
            events += self._say(chunk.text)
        for call in chunk.calls:
            if call.index not in begun - lost:
                continue
            if call.name is not None and self._one_call and self._calls:
                return [*events, *self._finish("tool_use")]
            events += self._begin_call(call) if call.name is not None else self._continue_call(call)
        if chunk.finish_reason is not None:
            events += self._finish(self._reason(chunk))
        return events

    def _count(self, chunk: Chunk) -> None:
        self._tokens += len(chunk.tokens)
        if chunk.reasoning and not chunk.text and not chunk.calls:
            self._thinking_tokens += len(chunk.tokens)

    def _reason(self, chunk: Chunk) -> str:
        if chunk.finish_reason == "length":
            return "max_tokens" if self._tokens >= self._max_tokens else "model_context_window_exceeded"
        if chunk.finish_reason != "stop":
            raise ApiError(503, f"the answer ended early: {chunk.finish_reason}", "service_unavailable")
        self.stop_sequence = chunk.stop
        return "stop_sequence" if chunk.stop is not None else "tool_use" if self._calls else "end_turn"

    # ---- blocks ------------------------------------------------------------------------------------------

    def _say(self, text: str) -> list[Event]:
        if self._open is not None and self._open.kind == "text":
            return [self._more(text)]
        self._blank += text
        if not self._blank.strip():
            return []  # a block of white space alone is none
        text, self._blank = self._blank, ""
        return [*self._begin(Block("text")), self._more(text)]

    def _think(self, text: str) -> list[Event]:
        opened = self._begin(Block("thinking")) if self._open is None or self._open.kind != "thinking" else []
        self._thoughts += text
        return opened if self._omit_thinking else [*opened, self._more(text)]

    def _begin_call(self, call: CallDelta) -> list[Event]:
        released = self._release()
        block = self._calls[call.index] = Block("tool_use", id=f"{CALL_PREFIX}{call.id}", name=call.name or "")
        if block.name in self._eager:
            return [*released, *self._begin(block)]
        self._held = block
        return released

    def _continue_call(self, call: CallDelta) -> list[Event]:
        """More arguments. Of an eager call that turns out to be none the stream keeps a block that breaks off."""
        block = self._calls[call.index]
        if not call.dropped:
            if block is not self._held:
                return [self._more(call.arguments)]
            block.text += call.arguments
            return []
        del self._calls[call.index]
        if block is self._held:
            self._held = None
            return []
        self._blocks.remove(block)
        return self._close()

    def _release(self) -> list[Event]:
        """The events of the call that was held back: it is complete."""
        block, self._held = self._held, None
        if block is None:
            return []
        arguments, block.text = block.text, ""
        return [*self._begin(block), self._more(arguments)]

    def _begin(self, block: Block) -> list[Event]:
        events = self._close()
        self._open, self._thoughts = block, ""
        self._index += 1
        self._blocks.append(block)
        return [*events, {"type": "content_block_start", "index": self._index, "content_block": block.empty()}]

    def _more(self, text: str) -> Event:
        assert self._open is not None
        self._open.text += text
        return {"type": "content_block_delta", "index": self._index, "delta": self._open.delta(text)}

    def _close(self) -> list[Event]:
        """The events that end the open block. That of thinking is signed first."""
        block, self._open, self._blank = self._open, None, ""
        if block is None:
            return []
        events: list[Event] = []
        if block.kind == "thinking":
            block.signature = hide(self._thoughts) if self._omit_thinking else new_id("sig_")
            delta: Delta = {"type": "signature_delta", "signature": block.signature}
            events.append({"type": "content_block_delta", "index": self._index, "delta": delta})
        return [*events, {"type": "content_block_stop", "index": self._index}]

    def _finish(self, reason: str) -> list[Event]:
        self.stop_reason = reason
        return [*self._release(), *self._close()]
