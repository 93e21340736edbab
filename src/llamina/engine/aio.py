"""An engine for asyncio: requests of many tasks in one batch, and an event loop that is never held up."""

import asyncio
import inspect
from collections import abc
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from llamina.engine.cancellation import SCOPE, Scope
from llamina.engine.delta import Delta
from llamina.engine.engine import MAX_TOKENS, Engine
from llamina.engine.options import ChatOptions, StreamOptions
from llamina.engine.request import Request, request_of
from llamina.engine.runner.load import Source, load
from llamina.engine.sequence import Sequence
from llamina.engine.tasks.chat import AnswerParser, ChatCompletion, ChatDelta, Messages, prepare
from llamina.engine.tasks.completion import Completion, completion_of
from llamina.engine.tasks.scoring import Text
from llamina.engine.tasks.tools import ToolRun
from llamina.errors import check_whole

Result = TypeVar("Result")
Params = ParamSpec("Params")
THREADS = 64  # calls that wait at a time, each in a thread; more wait for one of them to end


def _awaitable(
    verb: Callable[Concatenate[Engine, Params], Result],
) -> Callable[Concatenate["AsyncEngine", Params], Coroutine[Any, Any, Result]]:
    """A verb of `Engine` for a task: it waits in a thread of its own. Cancelling the task cancels its requests."""

    @wraps(verb)
    async def call(self: "AsyncEngine", *args: Params.args, **kwargs: Params.kwargs) -> Result:
        scope = Scope()

        def run() -> Result:
            SCOPE.set(scope)
            try:
                return verb(self.engine, *args, **kwargs)
            finally:
                SCOPE.set(None)

        try:
            return await self.in_thread(run)
        except asyncio.CancelledError:
            scope.cancel()
            raise

    return call  # type: ignore[return-value]


class AsyncEngine:
    """An engine whose verbs are awaited, with the options that `Engine`'s have."""

    def __init__(self, engine: Engine) -> None:
        """A thread makes the engine's steps from now on."""
        self.engine = engine
        self._threads = ThreadPoolExecutor(THREADS, "llamina-call")
        self._outbox: list[tuple[asyncio.AbstractEventLoop, asyncio.Queue[Delta], Delta]] = []
        engine.stepper.after_step.append(self._deliver)
        engine.stepper.serve()

    @classmethod
    async def load(cls, model: Source | None = None, **options: Any) -> Self:
        """Load a model while the event loop goes on; all is as with `load`."""
        return cls(await asyncio.to_thread(load, model, **options))

    generate = _awaitable(Engine.generate)
    embed = _awaitable(Engine.embed)
    rerank = _awaitable(Engine.rerank)
    score = _awaitable(Engine.score)
    token_scores = _awaitable(Engine.token_scores)
    perplexity = _awaitable(Engine.perplexity)
    logits = _awaitable(Engine.logits)
    hidden = _awaitable(Engine.hidden)
    logits_torch = _awaitable(Engine.logits_torch)
    embeddings_torch = _awaitable(Engine.embeddings_torch)
    snapshot = _awaitable(Engine.snapshot)
    resume = _awaitable(Engine.resume)
    fork = _awaitable(Engine.fork)
    load_adapter = _awaitable(Engine.load_adapter)
    unload_adapter = _awaitable(Engine.unload_adapter)
    memory = _awaitable(Engine.memory)
    _run_tools = _awaitable(Engine.run_tools)

    def stream(self, prompt: Text, **options: Unpack[StreamOptions]) -> "AsyncGeneration":
        """An asynchronous iterator of deltas; `await .result()` is the whole. It begins when it is first awaited."""

        def make() -> tuple[Request, Any]:
            given: dict[str, Any] = {"max_tokens": MAX_TOKENS, **options}
            listener = given.pop("on_delta", None)
            return request_of(self.engine.encode(prompt), given, self.engine.runner.sampling), listener

        return AsyncGeneration(self, make)

    async def streams(self, prompt: Text, n: int, **options: Unpack[StreamOptions]) -> "list[AsyncGeneration]":
        """n answers to one prompt, which is computed once; the first is what `stream` would give."""
        check_whole("n", n, 1)
        first = self.stream(prompt, **options)
        await first.begin()
        others = []
        for index in range(1, n):
            options["index"] = index
            others.append(self.stream(prompt, **options))
            others[-1].leader = first.sequence
        return [first, *others]

    def stream_chat(self, messages: Messages, **options: Unpack[ChatOptions]) -> "AsyncTurn":
        """The model's turn in a conversation: asynchronous chat deltas; `await .result()` is the whole."""
        return AsyncTurn(self, messages, dict(options))

    async def chat(self, messages: Messages, **options: Unpack[ChatOptions]) -> ChatCompletion:
        """The model's answer to a conversation."""
        return await self.stream_chat(messages, **options).result()

    async def run_tools(
        self,
        messages: Messages,
        functions: abc.Sequence[Callable[..., Any]],
        *,
        max_rounds: int = 8,
        **options: Unpack[ChatOptions],
    ) -> ToolRun:
        """As `Engine.run_tools`. Functions are called in a thread, unless they are coroutines."""
        loop = asyncio.get_running_loop()
        blocking = [_blocking(function, loop) for function in functions]
        return await self._run_tools(messages, blocking, max_rounds=max_rounds, **options)

    async def call(self, function: Callable[..., Result], *args: Any) -> Result:
        """Have a function called between two steps."""
        return await self.in_thread(lambda: self.engine.stepper.call(function, *args))

    async def in_thread(self, function: Callable[[], Result]) -> Result:
        """What a function returns that may have to wait."""
        self.engine.runner.check_open()
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    def post(self, loop: asyncio.AbstractEventLoop, queue: "asyncio.Queue[Delta]", delta: Delta) -> None:
        """Leave a delta for a task; all of a step are delivered together."""
        self._outbox.append((loop, queue, delta))

    def _deliver(self) -> None:
        letters, self._outbox = self._outbox, []
        for loop in {letter[0] for letter in letters}:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_put, [(queue, delta) for to, queue, delta in letters if to is loop])

    async def close(self) -> None:
        """End whatever is under way with an error, and the engine and its threads."""
        await asyncio.to_thread(self.engine.close)
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _put(letters: "list[tuple[asyncio.Queue[Delta], Delta]]") -> None:
    for queue, delta in letters:
        queue.put_nowait(delta)


def _blocking(function: Callable[..., Any], loop: asyncio.AbstractEventLoop) -> Callable[..., Any]:
    """A function for another thread, which waits for it if it is one of the loop's."""
    if not inspect.iscoroutinefunction(function):
        return function

    @wraps(function)
    def call(**arguments: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(function(**arguments), loop).result()

    return call


class AsyncGeneration:
    """Iterate over it for deltas as they come. Dropped early, it is cancelled."""

    def __init__(self, engine: AsyncEngine, make: Callable[[], tuple[Request, Any]]) -> None:
        self.sequence: Sequence | None = None
        self.leader: Sequence | None = None  # of several answers to a prompt, the first
        self._engine = engine
        self._make = make
        self._deltas: asyncio.Queue[Delta] = asyncio.Queue()
        self._done = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        """The next delta with tokens or text in it; the last has a finish reason. Raises what ended the sequence."""
        try:
            await self.begin()
            while not self._done:
                delta = await self._deltas.get()
                self._done = delta.finish_reason is not None
                if self._done and self.sequence is not None and self.sequence.error is not None:
                    raise self.sequence.error
                if delta.tokens or delta.text or delta.finish_reason:
                    return delta
        except BaseException:
            self.drop()
            raise
        raise StopAsyncIteration

    async def begin(self) -> None:
        """Have it submitted; waiting for its first delta does so, too."""
        if self.sequence is not None or self._done:
            return
        engine, loop, deltas, scope = self._engine, asyncio.get_running_loop(), self._deltas, Scope()

        def submit() -> Sequence:
            request, listener = self._make()

            def tell(delta: Delta) -> None:
                if listener is not None:
                    listener(delta)
                engine.post(loop, deltas, delta)

            SCOPE.set(scope)
            try:
                sequence = engine.engine.core.prepare(request, self.leader)
                sequence.listeners.append(tell)
                engine.engine.enqueue([sequence])
                return sequence
            finally:
                SCOPE.set(None)

        try:
            self.sequence = await engine.in_thread(submit)
        except asyncio.CancelledError:
            scope.cancel()
            raise

    async def result(self) -> Completion:
        """Everything, once it is done."""
        async for _ in self:
            pass
        assert self.sequence is not None
        return completion_of(self.sequence)

    async def aclose(self) -> None:
        """Stop here: nothing more is computed for it."""
        self._done = True
        if self.sequence is not None:
            await self._engine.call(self._engine.engine.core.cancel, self.sequence)

    def drop(self) -> None:
        """As `aclose`, without waiting for it."""
        self._done = True
        if self.sequence is not None:
            self._engine.engine.stepper.post(self._engine.engine.core.cancel, self.sequence)

    def __del__(self) -> None:
        self.drop()


class AsyncTurn:
    """The model's turn in a conversation: chat deltas, as they come."""

    def __init__(self, engine: AsyncEngine, messages: Messages, options: dict[str, Any]) -> None:
        self.generation: AsyncGeneration | None = None
        self._engine, self._messages, self._options = engine, messages, options

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChatDelta:
        """The next chat delta; the last has a finish reason. Raises what ended the sequence."""
        generation = await self._begin()
        return self._answer.push(await anext(generation))

    async def _begin(self) -> AsyncGeneration:
        if self.generation is None:
            options = dict(self._options)
            also = {"on_delta": options.pop("on_delta")} if "on_delta" in options else {}
            prepared = await self._engine.in_thread(lambda: prepare(self._engine.engine, self._messages, options))
            prompt, options, parser = prepared
            self._answer = AnswerParser(parser)
            self.generation = self._engine.stream(prompt, **options, **also)  # type: ignore[misc, typeddict-item]
        return self.generation

    async def aclose(self) -> None:
        """Stop here: nothing more is computed for it."""
        if self.generation is not None:
            await self.generation.aclose()

    async def result(self) -> ChatCompletion:
        """Everything, once it is done."""
        async for _ in self:
            pass
        assert self.generation is not None
        return self._answer.completion(await self.generation.result())
