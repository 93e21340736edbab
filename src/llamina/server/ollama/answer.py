"""Chunks put together as Ollama's responses, and as the lines of its streams."""

import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any, Generic

import msgspec
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import StreamingResponse

from llamina.server.errors import ApiError, api_error, ollama_shape
from llamina.server.http import HEADERS, Json, Told, encode, json, with_keep_alive
from llamina.server.model import Chunk, Model
from llamina.server.model.client import ChunkStream
from llamina.server.model.frames import Logprob, Usage
from llamina.server.models import Entry, Models
from llamina.server.ollama.names import keep
from llamina.server.ollama.schema import Call, ChatContent, GenerateContent, TokenLogprob

Line = dict[str, Any]
Begin = Callable[[Entry, Model], ChunkStream]


def now() -> str:
    """RFC 3339, in UTC."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


class Answer:
    """Give it every chunk; it tells the stream's lines, and in the end the whole response. Durations are in ns."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._started = self._loaded = time.perf_counter_ns()
        self._text = self._thinking = ""
        self._calls: dict[int, dict[str, Any]] = {}  # that are not told yet; arguments as text
        self._told: list[Call] = []
        self._logprobs: list[Logprob | None] | None = None
        self._generated: list[int] = []
        self._last: Chunk | None = None

    def loaded(self) -> None:
        """The model can be asked from now on."""
        self._loaded = time.perf_counter_ns()

    # ---- what the two kinds of response differ in --------------------------------------------------------

    def content(self, text: str, thinking: str, calls: list[Call]) -> ChatContent | GenerateContent:
        """The fields that hold what was said."""
        raise NotImplementedError

    def ending(self, last: Chunk, generated: list[int]) -> Line:
        """Further fields of the last line."""
        return {}

    # ---- lines -------------------------------------------------------------------------------------------

    def take(self, chunk: Chunk) -> list[Line]:
        """The lines of a chunk; the last chunk's last line is the one that is done."""
        self._text += chunk.text
        self._thinking += chunk.reasoning
        self._generated += chunk.tokens
        if chunk.logprobs is not None:
            self._logprobs = [*(self._logprobs or []), *chunk.logprobs]
        calls = self._take_calls(chunk)
        lines = []
        if chunk.text or chunk.reasoning or calls or chunk.logprobs:
            lines.append(self._line(chunk.text, chunk.reasoning, calls, chunk.logprobs))
        if chunk.finish_reason is not None:
            self._last = chunk
            lines.append(self._line("", "", [], None) | self._end(chunk))
        return lines

    def whole(self) -> Line:
        """The response, after the last chunk."""
        assert self._last is not None
        return self._line(self._text, self._thinking, self._told, self._logprobs) | self._end(self._last)

    def empty(self, reason: str) -> Line:
        """The response to a request that only loads or unloads the model."""
        return self._line("", "", [], None) | {"done": True, "done_reason": reason}

    def keep_alive(self) -> Line:
        """A line without news."""
        return self._line("", "", [], None)

    def _line(self, text: str, thinking: str, calls: list[Call], logprobs: list[Logprob | None] | None) -> Line:
        line: Line = {"model": self._model, "created_at": now(), **self.content(text, thinking, calls), "done": False}
        if logprobs is not None:
            line["logprobs"] = [_entry(x) for x in logprobs if x is not None]
        return line

    def _end(self, last: Chunk) -> Line:
        if last.finish_reason not in ("stop", "length"):
            raise ApiError(503, f"the answer ended early: {last.finish_reason}", "service_unavailable")
        metrics = self._metrics(last.usage) if last.usage is not None else {}
        end = self.ending(last, self._generated)
        return {"done": True, "done_reason": last.finish_reason, **end, **metrics}

    def _metrics(self, usage: Usage) -> Line:
        return {
            "total_duration": time.perf_counter_ns() - self._started,
            "load_duration": self._loaded - self._started,
            "prompt_eval_count": usage.prompt_tokens,
            "prompt_eval_duration": round(1e9 * usage.prompt_seconds),
            "eval_count": usage.completion_tokens,
            "eval_duration": round(1e9 * usage.completion_seconds),
        }

    def _take_calls(self, chunk: Chunk) -> list[Call]:
        """The calls that are complete: another has begun after them, or the answer is done."""
        for call in chunk.calls:
            if call.dropped:
                self._calls.pop(call.index, None)
            elif call.name is not None:
                self._calls[call.index] = {"id": f"call_{call.id}", "name": call.name, "arguments": call.arguments}
            else:
                self._calls[call.index]["arguments"] += call.arguments
        last = max(self._calls, default=0)
        done = [index for index in self._calls if index < last or chunk.finish_reason is not None]
        calls = [_call(index, self._calls.pop(index)) for index in done]
        self._told += calls
        return calls


def _call(index: int, call: dict[str, Any]) -> Call:
    arguments = msgspec.Raw((call["arguments"] or "{}").encode())  # the parser has seen that it is an object
    return {"id": call["id"], "function": {"index": index, "name": call["name"], "arguments": arguments}}


def _entry(x: Logprob) -> TokenLogprob:
    text, number = x.bytes.decode("utf-8", "replace"), max(x.logprob, -9999.0)
    entry: TokenLogprob = {"token": text, "logprob": number, "bytes": list(x.bytes)}
    if x.top:
        entry["top_logprobs"] = [_entry(top) for top in x.top]
    return entry


# ---- responses -------------------------------------------------------------------------------------------


class Lines(StreamingResponse, Generic[Told]):
    """A stream of lines, each the JSON of this type."""

    media_type = "application/x-ndjson"


def ndjson(source: AsyncIterator[Any]) -> Lines[Any]:
    """A stream of lines. An error in the middle is a last line."""
    return Lines(_guarded(source), headers=HEADERS)


async def _guarded(source: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    try:
        async for line in source:
            yield encode(line) + b"\n"
    except Exception as error:
        yield encode(ollama_shape(api_error(error))) + b"\n"


async def respond(
    request: Request, entry: Entry, answer: Answer, begin: Begin, stream: bool, keep_alive: float | None
) -> Json[Any] | Lines[Any]:
    """Generate, and answer with lines or with the whole. `begin` starts the generation, or raises ApiError."""
    models: Models = request.app.state.server.models
    async with models.use(entry.id) as (_, model):
        answer.loaded()
        chunks = begin(entry, model)
        if stream:
            first = await chunks.__anext__()  # what is wrong with the request is an answer of its own, not a line
        else:
            async with chunks:
                async for chunk in chunks:
                    answer.take(chunk)
    response: Json[Any] | Lines[Any]
    response = ndjson(_lines(models, entry, answer, first, chunks)) if stream else json(answer.whole())
    response.background = BackgroundTask(keep, models, entry, keep_alive)
    return response


async def _lines(
    models: Models, entry: Entry, answer: Answer, first: Chunk, chunks: ChunkStream
) -> AsyncIterator[Line]:
    async with models.use(entry.id), chunks:
        for line in answer.take(first):
            yield line
        async for chunk in with_keep_alive(chunks):
            for line in answer.take(chunk) if chunk is not None else [answer.keep_alive()]:
                yield line


async def only_load(request: Request, entry: Entry, answer: Answer, keep_alive: float | None) -> Json[Any]:
    """Answer a request that has nothing to say: with a `keep_alive` of 0 the model is unloaded, else loaded."""
    models: Models = request.app.state.server.models
    if keep_alive != 0:
        async with models.use(entry.id):
            pass
    await keep(models, entry, keep_alive)
    return json(answer.empty("unload" if keep_alive == 0 else "load"))
