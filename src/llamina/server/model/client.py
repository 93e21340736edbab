"""A model as the server's APIs see it: streams of chunks, and verbs with one result."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from itertools import count
from math import inf
from types import TracebackType
from typing import Any, Protocol, Self

from llamina.errors import LlaminaError
from llamina.server.caller import CALLER, TIMEOUT
from llamina.server.model.frames import (
    Call,
    Cancel,
    Chunk,
    Chunks,
    ErrorInfo,
    Failed,
    FromModel,
    Generate,
    ModelInfo,
    Result,
    ToModel,
    encode,
)
from llamina.server.record import current

LOST = "ModelLost"  # the kind of error that a worker's death is
LATE = "Timeout"  # the kind of error that an answer is which took too long
UNREAD = 1 << 14  # chunks that may wait for a client: about 8 MB


class ModelError(LlaminaError):
    """An error that a model answered with; `info.kind` is the class it had there."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message)
        self.info = info


def packed(frame: ToModel) -> bytes:
    """The bytes of a frame. Raises ModelError for what JSON may have and msgpack does not."""
    try:
        return encode(frame)
    except (OverflowError, RecursionError) as error:
        message = "the request has a number outside of 64 bits, or is nested too deeply"
        raise ModelError(ErrorInfo("RequestError", message)) from error


class Link(Protocol):
    """The way to a model's service."""

    def send(self, frame: ToModel) -> None:
        """Send a frame without waiting. Raises ModelError if there is nobody to send it to."""
        ...


class ChunkStream(AsyncIterator[Chunk]):
    """The chunks of a `Generate`, of all its answers. Leaving it early (`aclose`, `async with`) cancels them."""

    def __init__(self, model: "Model", frame: Generate) -> None:
        self.id, self._model, self._left = frame.id, model, frame.n
        self._items: deque[Chunk | ErrorInfo] = deque()
        self._news: asyncio.Future[None] | None = None  # somebody waits
        self._until = inf  # no longer than that
        self._alarm: asyncio.TimerHandle | None = None
        self._spend, self._counted = CALLER.get().spend, False
        self._timer = _after_timeout(self.put)

    def put(self, item: Chunk | ErrorInfo) -> None:
        """Add a chunk. When too many wait, nothing more is computed, and an error comes after them."""
        if len(self._items) == UNREAD:
            self._model.cancel(self.id)
            item = ErrorInfo(LATE, f"{UNREAD} parts of the answer were not read: it is computed no further")
        self._items.append(item)
        _wake(self._news)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        """The next chunk. Raises ModelError if an answer failed, StopAsyncIteration when all are done."""
        if self._left == 0:
            raise StopAsyncIteration
        if not self._items:
            await self._wait()
        return self._next()

    async def burst(self, seconds: float, most: int | None = None) -> list[Chunk]:
        """The chunks that are there, all or so many; none after so many seconds without. Raises as `__anext__` does."""
        if self._left == 0:
            raise StopAsyncIteration
        if not self._items:
            await self._wait(seconds)
        chunks: list[Chunk] = []
        while self._items and self._left and len(chunks) != most:
            if chunks and _error_of(self._items[0]) is not None:
                break  # an error comes alone, after what was said before it
            chunks.append(self._next())
        return chunks

    async def _wait(self, seconds: float = inf) -> None:
        """Return when something is there, or after so many seconds."""
        loop = asyncio.get_running_loop()
        self._news, self._until = loop.create_future(), loop.time() + seconds
        if self._alarm is None and seconds < inf:
            self._alarm = loop.call_at(self._until, self._ring)
        try:
            await self._news
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            self._news = None

    def _ring(self) -> None:
        """End a wait that is over. One timer serves many waits: chunks come thousands of times as often."""
        loop = asyncio.get_running_loop()
        over = loop.time() >= self._until
        self._alarm = None if over else loop.call_at(self._until, self._ring)
        if over:
            _wake(self._news)

    def _next(self) -> Chunk:
        item = self._items.popleft()
        if (error := _error_of(item)) is not None:
            self.cancel()
            raise ModelError(error)
        assert isinstance(item, Chunk)
        self._spend(len(item.tokens) + (0 if self._counted else item.prompt_tokens))
        self._counted = True
        if item.finish_reason is not None:
            if item.usage is not None and (record := current()) is not None:
                record.prompt_tokens += item.usage.prompt_tokens if not item.index else 0
                record.completion_tokens += item.usage.completion_tokens
            self._left -= 1
            if self._left == 0:
                self._end()
                self._model.forget(self.id)
        return item

    def _end(self) -> None:
        for timer in (self._timer, self._alarm):
            if timer is not None:
                timer.cancel()

    def cancel(self) -> None:
        """Nothing more is computed for it."""
        if self._left:
            self._left = 0
            self._end()
            self._model.cancel(self.id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()


def _wake(news: "asyncio.Future[None] | None") -> None:
    if news is not None and not news.done():
        news.set_result(None)


def _error_of(item: Chunk | ErrorInfo) -> ErrorInfo | None:
    return item if isinstance(item, ErrorInfo) else item.error


class Model:
    """A loaded model at the other end of a link. All methods are for the event loop's thread."""

    def __init__(self, info: ModelInfo, link: Link) -> None:
        self.info = info
        self.adapters: dict[str, float] = {}  # LoRAs that act on requests which name none, with their scales
        self._link = link
        self._ids = count(1)
        self._streams: dict[int, ChunkStream] = {}
        self._calls: dict[int, asyncio.Future[Any]] = {}

    @property
    def active(self) -> int:
        """Streams and calls under way."""
        return len(self._streams) + len(self._calls)

    def generate(
        self,
        *,
        prompt: str | list[int] | None = None,
        messages: list[dict[str, Any]] | None = None,
        options: dict[str, Any] | None = None,
        n: int = 1,
        prefill: str = "",
        tell_prompt: bool = False,
        suffix: str = "",
        slot: int = -1,
    ) -> ChunkStream:
        """Continue a prompt, or answer a conversation; see `Generate`. Options are those of `Engine.stream_chat`."""
        given = {"adapters": self.adapters, **(options or {})} if self.adapters else options or {}
        frame = Generate(next(self._ids), prompt, messages, salted(given), n, prefill, tell_prompt, suffix, slot)
        stream = ChunkStream(self, frame)
        self._streams[frame.id] = stream
        try:
            self._link.send(frame)
        except ModelError as error:
            stream.put(error.info)
        return stream

    async def call(self, verb: str, **params: Any) -> Any:
        """The result of a verb of `verbs.py`. Raises ModelError if it fails; cancelling the task cancels it."""
        frame = Call(next(self._ids), verb, params, CALLER.get().salt)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls[frame.id] = future
        timer = _after_timeout(lambda error: self._fail(frame.id, error))
        try:
            self._link.send(frame)
            value = await future
        except BaseException:
            self.cancel(frame.id)
            raise
        finally:
            self._calls.pop(frame.id, None)
            if timer is not None:
                timer.cancel()
        _spend(value)
        return value

    def _fail(self, id: int, error: ErrorInfo) -> None:
        if (future := self._calls.get(id)) is not None and not future.done():
            future.set_exception(ModelError(error))

    def cancel(self, id: int) -> None:
        self.forget(id)
        with suppress(ModelError):  # nobody computes it any more
            self._link.send(Cancel(id))

    def forget(self, id: int) -> None:
        self._streams.pop(id, None)

    def receive(self, frame: FromModel) -> None:
        """Pass on what the model says."""
        match frame:
            case Chunks(chunks):
                for chunk in chunks:
                    if (stream := self._streams.get(chunk.id)) is not None:
                        stream.put(chunk)
            case Result(id, value):
                if (future := self._calls.get(id)) is not None and not future.done():
                    future.set_result(value)
            case Failed(id, error):
                if (stream := self._streams.get(id)) is not None:
                    stream.put(error)
                self._fail(id, error)

    async def close(self) -> None:
        """End the model."""
        raise NotImplementedError

    def lose(self, message: str, kind: str = LOST) -> None:
        """Nobody answers any more: whoever waits gets an error."""
        error = ErrorInfo(kind, message)
        for stream in list(self._streams.values()):
            stream.put(error)
        for future in list(self._calls.values()):
            if not future.done():
                future.set_exception(ModelError(error))


def salted(options: dict[str, Any]) -> dict[str, Any]:
    """Options whose prefixes in the KV cache are the caller's own; within them a client may make further ones."""
    salt = CALLER.get().salt
    return options | {"cache_salt": f"{salt}/{options.get('cache_salt', '')}"} if salt else options


def _spend(value: Any) -> None:
    """Charge the caller with the tokens that a verb says it has read."""
    tokens = value.get("tokens") if isinstance(value, dict) else None
    if isinstance(tokens, list):
        CALLER.get().spend(sum(tokens) if "vectors" in value else len(tokens))
    elif isinstance(tokens, int):
        CALLER.get().spend(tokens)


def _after_timeout(tell: Callable[[ErrorInfo], None]) -> asyncio.TimerHandle | None:
    """Tell of an error when the time for an answer is over, unless the handle is cancelled before."""
    seconds = TIMEOUT.get()
    if seconds is None:
        return None
    error = ErrorInfo(LATE, f"the answer was not done within {seconds:g} s: ask for fewer tokens, or allow more time")
    return asyncio.get_running_loop().call_later(seconds, tell, error)
