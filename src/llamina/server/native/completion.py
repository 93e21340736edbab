"""`/completion`: llama.cpp's own way to continue a prompt, whole or streamed."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Literal, cast

from starlette.requests import Request
from starlette.routing import Route

from llamina.server.http import KEEP_ALIVE, Events, Json, event, events, json, read, with_keep_alive
from llamina.server.model import Chunk, Model
from llamina.server.model.client import ChunkStream
from llamina.server.model.frames import Logprob, Usage
from llamina.server.native.cutoff import Cutoff
from llamina.server.native.request import CompletionRequest, NativeFields
from llamina.server.native.schema import NativeCompletion, PromptProgress, TokenProbability
from llamina.server.native.settings import sampling_of, settings
from llamina.server.openai.usage import timings

MISSING = object()
STOP_TYPES: dict[str, Literal["limit"]] = {"length": "limit", "cancelled": "limit"}
Whole = Json[NativeCompletion | list[NativeCompletion]]
Prompts = Callable[[Model], Awaitable[list[list[int]]]]


async def create(request: Request) -> Whole | Events[NativeCompletion]:
    """POST /completion."""
    body = await read(request, CompletionRequest)
    parts = body.prompts(request.app.state.server.config.limits)

    async def prompts(model: Model) -> list[list[int]]:
        return [await model.call("mixed_prompt", parts=part) for part in parts]

    return await respond(request, body, prompts)


async def respond(request: Request, body: NativeFields, prompts: Prompts) -> Whole | Events[NativeCompletion]:
    """Generate, and answer with events or with the whole; several answers are a list."""
    server = request.app.state.server
    limits = server.config.limits
    n = body.answers(limits.answers)
    async with server.models.use(body.model) as (entry, model):
        names = await model.call("adapters") if body.lora else []
        options = body.engine_options(limits, names)
        tokens = await prompts(model)
        said = settings(sampling_of(model.info.sampling, options), options, bool(body.stream))
        said |= {"n_predict": 0, "max_tokens": 0} if body.silent else {}
        answers = [
            [
                Completion(body, entry.id, said, at * n + i, prompt, await model.call("written_out", tokens=prompt))
                for i in range(n)
            ]
            for at, prompt in enumerate(tokens)
        ]
        streams = [model.generate(prompt=prompt, options=options, n=n, slot=body.id_slot) for prompt in tokens]
        async with AsyncExitStack() as stack:
            for stream in streams:
                await stack.enter_async_context(stream)
            if body.stream:
                first = await streams[0].__anext__()  # what is wrong with the request is an answer, not an event
                stack.pop_all()
                return events(request, _events(server, body, answers, first, streams), owns=streams)
            for group, stream in zip(answers, streams, strict=True):
                async for chunk in stream:
                    group[chunk.index].take(chunk)
                    if all(answer.done for answer in group):
                        break
    whole = [answer.whole() for group in answers for answer in group]
    return json(whole if len(whole) > 1 else whole[0])


async def _events(
    server: Any, body: NativeFields, answers: "list[list[Completion]]", first: Chunk, streams: list[ChunkStream]
) -> AsyncIterator[bytes]:
    pause = body.sse_ping_interval if body.sse_ping_interval is not None else KEEP_ALIVE
    async with server.models.use(body.model):
        for part in answers[0][first.index].news(first):
            yield event(part)
        for group, stream in zip(answers, streams, strict=True):
            if all(answer.done for answer in group):
                continue
            async for chunk in with_keep_alive(stream, pause if pause > 0 else float("inf")):
                if chunk is None:
                    yield b": keep-alive\n\n"
                    continue
                for part in group[chunk.index].news(chunk):
                    yield event(part)
                if all(answer.done for answer in group):
                    break


class Completion:
    """One answer, put together as it comes."""

    def __init__(
        self, body: NativeFields, model: str, said: dict[str, Any], index: int, prompt: list[int], text: str
    ) -> None:
        self._body, self._model, self._said, self._index = body, model, said, index
        self._prompt, self._prompt_text = prompt, text
        self._cutoff = Cutoff(body.t_max_predict_ms, body.n_indent)
        self._text, self._tokens = "", list[int]()
        self._logprobs: list[Logprob | None] = []
        self._last: Chunk | None = None
        self._begun = time.perf_counter()
        self._first: float | None = None
        self._cached = 0

    @property
    def done(self) -> bool:
        return self._last is not None or self._cutoff.done

    def take(self, chunk: Chunk) -> str:
        """The text that a chunk adds."""
        if self.done:
            return ""
        self._last = chunk if chunk.finish_reason is not None else None
        self._cached = chunk.cached_tokens
        if chunk.tokens and self._first is None:
            self._first = time.perf_counter()
        if self._body.silent:
            return ""
        text = self._cutoff.push(chunk.text) if chunk.tokens else chunk.text
        self._text += text
        self._tokens += chunk.tokens
        self._logprobs += chunk.logprobs or []
        return text

    def news(self, chunk: Chunk) -> list[NativeCompletion]:
        """The events of a chunk."""
        if self.done:
            return []
        text, parts = self.take(chunk), list[NativeCompletion]()
        if chunk.tokens and not self._body.silent and (text or not self.done):
            parts.append(self._partial(text, chunk))
        elif self._body.return_progress and not chunk.tokens and not self.done:
            parts.append({**self._partial("", chunk), "prompt_progress": self._progress(chunk)})
        if self.done:
            parts.append(self.whole())
        return parts

    def _partial(self, text: str, chunk: Chunk) -> NativeCompletion:
        part: NativeCompletion = {
            "index": self._index,
            "content": text,
            "tokens": chunk.tokens,
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": len(self._tokens),
            "tokens_evaluated": len(self._prompt),
        }
        if chunk.logprobs:
            part["completion_probabilities"] = probabilities(chunk.logprobs)
        if self._body.timings_per_token:
            part["timings"] = timings([self._usage()])
        return part

    def _progress(self, chunk: Chunk) -> PromptProgress:
        return {
            "total": chunk.prompt_tokens,
            "cache": chunk.cached_tokens,
            "processed": chunk.computed,
            "time_ms": round(1e3 * (time.perf_counter() - self._begun)),
        }

    def _usage(self) -> Usage:
        """The engine's, or by the clock where it has not said it."""
        if self._last is not None and self._last.usage is not None and not self._body.silent:
            return self._last.usage
        now = time.perf_counter()
        first = self._first or now
        counts = len(self._prompt), len(self._tokens), self._cached
        return Usage(*counts, prompt_seconds=first - self._begun, completion_seconds=now - first)

    def whole(self) -> NativeCompletion:
        """The answer; of a streamed one the text was told before."""
        streamed, last = bool(self._body.stream), self._last
        reason = last.finish_reason if last is not None and not self._cutoff.done else "cancelled"
        word = (last.stop if last is not None else None) or ""
        made, limit = len(self._tokens), self._said["max_tokens"]
        answer: NativeCompletion = {
            "index": self._index,
            "content": "" if streamed else self._text,
            "tokens": self._tokens if self._body.return_tokens and not streamed else [],
            "id_slot": last.slot if last is not None else self._body.id_slot,
            "stop": True,
            "model": self._model,
            "tokens_predicted": made,
            "tokens_evaluated": len(self._prompt),
            "generation_settings": self._said | {"timings_per_token": self._body.timings_per_token},
            "prompt": self._prompt_text,
            "has_new_line": "\n" in self._text,
            "truncated": reason == "length" and made != limit,
            "stop_type": "word" if word else STOP_TYPES.get(reason or "", "eos"),
            "stopping_word": word,
            "tokens_cached": len(self._prompt) + max(made - 1, 0),
            "timings": timings([self._usage()]),
        }
        if self._logprobs and not streamed:
            answer["completion_probabilities"] = probabilities(self._logprobs)
        fields = self._body.response_fields
        return _picked(answer, fields) if fields else answer


def probabilities(entries: list[Logprob | None]) -> list[TokenProbability]:
    """Log-probabilities as llama.cpp has them."""
    return [{**_entry(x), "top_logprobs": [_entry(top) for top in x.top]} for x in entries if x is not None]


def _entry(x: Logprob) -> TokenProbability:
    text = x.bytes.decode("utf-8", "replace")
    return {"id": x.token, "token": text, "bytes": list(x.bytes), "logprob": max(x.logprob, -9999.0)}


def _picked(answer: NativeCompletion, fields: list[str]) -> NativeCompletion:
    """The fields that are wanted; `a/b` is b of a. Those that there are not are left out, as llama.cpp does."""
    found: dict[str, Any] = {}
    for field in fields:
        value: Any = answer
        for name in field.split("/"):
            value = value.get(name, MISSING) if isinstance(value, dict) else MISSING
        if value is not MISSING:
            found[field] = value
    return cast(NativeCompletion, found)


routes = [Route(path, create, methods=["POST"]) for path in ("/completion", "/completions")]
