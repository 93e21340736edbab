"""An engine for asyncio: requests of many tasks in one batch, and an event loop that is never held up."""

import asyncio
import inspect
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from types import TracebackType
from typing import Any, Self, TypeVar

from llamina.chat import ChatEvent, Collected
from llamina.engine.aside import Aside
from llamina.engine.dispatch import Rounds, ToolRun
from llamina.engine.engine import Engine
from llamina.engine.load import load
from llamina.engine.pooling import Array
from llamina.engine.readings import Readings, Score, Text
from llamina.engine.request import Event, Request, request_of
from llamina.engine.result import Completion, completion_of
from llamina.engine.several import Several, check_count
from llamina.engine.turn import ChatCompletion, chat_completion, prepare
from llamina.engine.worker import Worker

Result = TypeVar("Result")
Listener = Callable[[Event], None]


class AsyncGeneration:
    """Iterate over it for text as it comes; it begins when it is first awaited. Dropped early, it is cancelled."""

    def __init__(self, worker: Worker, make: Callable[[Listener], Request]) -> None:
        self.request: Request | None = None
        self._worker = worker
        self._make = make
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._done = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        try:
            await self.begin()
            while not self._done:
                event = await self._events.get()
                self._done = event.finish_reason is not None
                if event.text:
                    return event.text
        except BaseException:
            self.drop()
            raise
        if self.request is not None and self.request.error is not None:
            raise self.request.error
        raise StopAsyncIteration

    async def begin(self) -> None:
        """Have it submitted; waiting for its first text does so, too."""
        if self.request is None:
            loop, events = asyncio.get_running_loop(), self._events
            self.request = await asyncio.to_thread(self._make, partial(_post, loop, events))
            await asyncio.wrap_future(self._worker.call(self._worker.engine.submit, self.request))

    async def result(self) -> Completion:
        """Everything, once it is done."""
        async for _ in self:
            pass
        assert self.request is not None
        return completion_of(self.request)

    async def aclose(self) -> None:
        """Stop here: nothing more is computed for it."""
        self._done = True
        if self.request is not None:
            await asyncio.wrap_future(self._worker.call(self._worker.engine.cancel, self.request))

    def drop(self) -> None:
        """As `aclose`, without waiting for it."""
        self._done = True
        if self.request is not None and self.request.finish_reason is None and not self._worker.closed:
            self._worker.call(self._worker.engine.cancel, self.request)

    def __del__(self) -> None:
        self.drop()


def _post(loop: asyncio.AbstractEventLoop, events: "asyncio.Queue[Event]", event: Event) -> None:
    """From the engine's thread to the loop that waits."""
    loop.call_soon_threadsafe(events.put_nowait, event)


def _blocking(function: Callable[..., Any], loop: asyncio.AbstractEventLoop) -> Callable[..., Any]:
    """A function for another thread, which waits for it if it is one of the loop's."""
    if not inspect.iscoroutinefunction(function):
        return function

    @wraps(function)
    def call(**arguments: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(function(**arguments), loop).result()

    return call


class AsyncEngine:
    """An engine in a thread of its own, which nobody else may use from now on. Options are those of `Engine`."""

    def __init__(self, engine: Engine) -> None:
        self._worker = Worker(engine)
        self.engine = engine

    @classmethod
    async def load(cls, model: str | os.PathLike[str], **options: Any) -> Self:
        """Load a model while the event loop goes on."""
        return cls(await asyncio.to_thread(load, model, **options))

    def stream(self, prompt: str | Sequence[int], *, max_tokens: int | None = 256, **options: Any) -> AsyncGeneration:
        """An asynchronous iterator of text pieces; `await .result()` is the whole."""
        options, also = options | {"max_tokens": max_tokens}, options.pop("on_event", None)

        def make(heard: Listener) -> Request:
            def tell(event: Event) -> None:
                heard(event)
                if also is not None:
                    also(event)

            return request_of(self.engine.encode(prompt), **options | {"on_event": tell})

        return AsyncGeneration(self._worker, make)

    async def streams(self, prompt: str | Sequence[int], n: int, **options: Any) -> list[AsyncGeneration]:
        """n answers to one prompt, which is computed once; the first is what `stream` would give."""
        check_count("n", n)
        first = self.stream(prompt, **options)
        await first.begin()
        return [first, *(self.stream(prompt, **options, index=i, leader=first.request) for i in range(1, n))]

    async def generate(
        self, prompt: str | Sequence[int], *, n: int = 1, best_of: int | None = None, **options: Any
    ) -> Completion:
        """Continue a prompt to its end, as `Engine.generate` does."""
        if "beam_width" in options:
            tokens = await asyncio.to_thread(self.engine.encode, prompt)
            begin = partial(self.engine.search, tokens, n=n, best_of=best_of, **options)
            return await asyncio.wrap_future(self._worker.search(begin))
        asked = Several(n, best_of)
        begun = await self.streams(prompt, asked.count, **asked.options(options))
        try:
            found = await asyncio.gather(*(generation.result() for generation in begun))
        except BaseException:
            for generation in begun:
                generation.drop()
            raise
        return asked.choose(found, options)

    def stream_chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> "AsyncTurn":
        """The model's turn in a conversation: an asynchronous iterator of events; `await .result()` is the whole."""
        return AsyncTurn(self, messages, options)

    async def chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> ChatCompletion:
        """The model's answer to a conversation."""
        return await self.stream_chat(messages, **options).result()

    async def run_tools(
        self,
        messages: Sequence[Mapping[str, Any]],
        functions: Sequence[Callable[..., Any]],
        *,
        max_rounds: int = 8,
        **options: Any,
    ) -> ToolRun:
        """As `Engine.run_tools`. Functions are called in a thread, unless they are coroutines."""
        loop = asyncio.get_running_loop()
        rounds = Rounds(messages, [_blocking(function, loop) for function in functions], max_rounds, options)
        while True:
            result = await self.chat(rounds.said, **rounds.options)
            if (done := await asyncio.to_thread(rounds.take, result)) is not None:
                return done

    async def embed(self, texts: Text | Sequence[Text], **options: Any) -> Array:
        """A vector for each text; options are those of `Engine.embed`."""
        return await self._read(Readings.embed, texts, **options)

    async def rerank(self, query: str, documents: Sequence[str], **options: Any) -> Array:
        """How well each document answers the query, as `Engine.rerank` has it."""
        return await self._read(Readings.rerank, query, documents, **options)

    async def score(self, prompt: Text, continuation: Text, **options: Any) -> Score:
        """How likely the model finds a continuation of a prompt, token by token."""
        return await self._read(Readings.score, prompt, continuation, **options)

    async def token_scores(self, text: Text, **options: Any) -> Score:
        """How likely the model finds each token of a text after the first."""
        return await self._read(Readings.token_scores, text, **options)

    async def _read(self, reading: Callable[..., Result], *args: Any, **options: Any) -> Result:
        """In a thread that waits for it, beside what other tasks ask for."""
        aside = Aside(self._worker)
        try:
            return await asyncio.to_thread(reading, aside, *args, **options)
        except asyncio.CancelledError:
            aside.drop()
            raise

    async def call(self, function: Callable[..., Result], *args: Any) -> Result:
        """Have a function called between two steps, such as `engine.snapshot` or `engine.memory`."""
        return await asyncio.wrap_future(self._worker.call(function, *args))

    async def close(self) -> None:
        """Cancel all requests, and end the thread and the engine."""
        await asyncio.to_thread(self._worker.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncTurn:
    """The model's turn in a conversation: events, as they come."""

    def __init__(self, engine: AsyncEngine, messages: Sequence[Mapping[str, Any]], options: dict[str, Any]) -> None:
        self.generation: AsyncGeneration | None = None
        self._prepare = partial(prepare, engine.engine, messages, options)
        self._engine = engine
        self._events: deque[ChatEvent] = deque()
        self._collected = Collected()
        self._done = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChatEvent:
        if self.generation is None:
            prompt, options, self._parser = await asyncio.to_thread(self._prepare)
            self.generation = self._engine.stream(prompt, **options)
        while not self._events and not self._done:
            piece = await anext(self.generation, None)
            self._done = piece is None
            self._events.extend(self._parser.finish() if piece is None else self._parser.push(piece))
        if not self._events:
            raise StopAsyncIteration
        self._collected.add(event := self._events.popleft())
        return event

    async def aclose(self) -> None:
        """Stop here: nothing more is computed for it."""
        if self.generation is not None:
            await self.generation.aclose()

    async def result(self) -> ChatCompletion:
        """Everything, once it is done."""
        async for _ in self:
            pass
        assert self.generation is not None
        return chat_completion(await self.generation.result(), self._collected)
