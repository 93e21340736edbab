"""`/v1/completions`: text or token ids in, their continuation out; `echo` with log-probabilities, as lm-eval asks."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from itertools import accumulate
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from llamina.server.config import Limits
from llamina.server.errors import ApiError
from llamina.server.http import DONE, PING, Events, Json, bursts, event, events, json, read
from llamina.server.ids import new_id
from llamina.server.model import Chunk
from llamina.server.model.client import ChunkStream
from llamina.server.model.frames import Logprob, Usage
from llamina.server.openai import beams
from llamina.server.openai.chat import check_n
from llamina.server.openai.sampling import SamplingFields
from llamina.server.openai.schema import (
    CompletionUsage,
    LegacyLogprobs,
    RankedLogprob,
    TextChoice,
    TextCompletion,
)
from llamina.server.openai.usage import timings, usage


class CompletionRequest(SamplingFields, kw_only=True, forbid_unknown_fields=True):
    """OpenAI's request with extensions."""

    prompt: str | list[Any]  # a text, texts, token ids, or lists of them
    model: str = ""
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None
    prompt_logprobs: int | None = None
    # beam search, under vLLM's and transformers' names
    use_beam_search: bool | None = None
    beam_width: int | None = None
    num_beams: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | None = None

    def prompts(self, limits: Limits) -> list[str | list[int]]:
        """Each prompt. Raises ApiError for anything but texts and token ids, or too many of them."""
        given = self.prompt
        prompts = [given] if isinstance(given, str) or (given and type(given[0]) is int) else list(given)
        ids = [item for item in prompts if not isinstance(item, str)]
        if any(not isinstance(item, list) or not item or any(type(t) is not int for t in item) for item in ids):
            raise ApiError(400, "prompt must be a text, texts, token ids, or lists of token ids", param="prompt")
        if not 1 <= len(prompts) <= limits.inputs:
            raise ApiError(400, f"there are {len(prompts)} prompts: 1 to {limits.inputs} are allowed", param="prompt")
        return prompts

    def completion_options(self, limits: Limits) -> dict[str, Any]:
        """The engine's options. Raises ApiError for what cannot be done."""
        options = self.options(limits)
        if self.suffix and self.echo:
            raise ApiError(400, "suffix is given with echo: what is filled in has no prompt to repeat", param="echo")
        if self.stream and self.echo and self.logprobs is not None:
            message = "echo with logprobs cannot be streamed: a prompt's log-probabilities come at its end"
            raise ApiError(400, message, param="stream")
        if self.prompt_logprobs is not None and (self.stream or (self.echo and self.logprobs is not None)):
            message = "prompt_logprobs is given with stream, or with echo and logprobs: they are told once, at the end"
            raise ApiError(400, message, param="prompt_logprobs")
        for name in ("logprobs", "prompt_logprobs"):
            if (n := getattr(self, name)) is not None:
                if not 0 <= n <= limits.top_logprobs:
                    message = f"{name} is {n}: must be a number from 0 to {limits.top_logprobs}"
                    raise ApiError(400, message, param=name)
                options[name] = n
        if self.echo and self.logprobs is not None:
            options["prompt_logprobs"] = self.logprobs
        if options.get("max_tokens") == 0:
            if not self.echo:
                raise ApiError(400, "max_tokens is 0: without echo nothing would be told", param="max_tokens")
            options["max_tokens"] = 1  # one is computed, and left out of the answer
        return options

    def answers(self, limits: Limits) -> tuple[int, int]:
        """How many answers to each prompt are told, and how many are generated for them to be the likeliest of."""
        n = check_n(self.n, limits.answers)
        if self.best_of is None:
            return n, n
        if not n <= self.best_of <= limits.answers:
            message = f"best_of is {self.best_of}: must be a number from n, which is {n}, to {limits.answers}"
            raise ApiError(400, message, param="best_of")
        if self.stream and self.best_of > n:
            raise ApiError(400, "best_of cannot be streamed: the likeliest is known at the end", param="best_of")
        return n, self.best_of


async def create(request: Request) -> Json[TextCompletion] | Events[TextCompletion]:
    """POST /v1/completions."""
    server = request.app.state.server
    body = await read(request, CompletionRequest)
    if not body.stream:
        return json(await answer(server, body))
    if beams.width(body) is not None:
        raise ApiError(400, "a beam search cannot be streamed: the best is known at the end", param="stream")
    async with _begun(server, body) as (making, streams):
        try:
            first = await streams[0].__anext__()  # what is wrong with the request is an answer of its own, not an event
        except BaseException:
            for stream in streams:
                stream.cancel()
            raise
    return events(request, _events(server, body, making, first, streams), owns=streams)


async def answer(server: Any, body: CompletionRequest, **defaults: Any) -> TextCompletion:
    """A `text_completion`. `defaults` are options of the engine where the request gives none."""
    if beams.width(body) is not None:
        limits = server.config.limits
        options = defaults | body.completion_options(limits)
        return await beams.answer(server, body, body.prompts(limits), options, check_n(body.n, limits.answers))
    async with AsyncExitStack() as all_streams:
        making, streams = await all_streams.enter_async_context(_begun(server, body, **defaults))
        for stream in streams:
            await all_streams.enter_async_context(stream)
        for at, stream in enumerate(streams):
            async for chunk in stream:
                making.take(at, chunk)
    return making.whole()


@asynccontextmanager
async def _begun(
    server: Any, body: CompletionRequest, **defaults: Any
) -> AsyncIterator[tuple["Completions", list[ChunkStream]]]:
    """An answer and the chunks that it is made of, for each prompt."""
    limits = server.config.limits
    prompts, options = body.prompts(limits), defaults | body.completion_options(limits)
    n, made = body.answers(limits)
    if made > n:
        options.setdefault("logprobs", 0)
    async with server.models.use(body.model) as (entry, model):
        echoed = [await _text(model, prompt) for prompt in prompts] if body.echo else [""] * len(prompts)
        suffix = body.suffix or ""
        streams = [model.generate(prompt=prompt, options=options, n=made, suffix=suffix) for prompt in prompts]
        yield Completions(new_id("cmpl-"), entry.id, body, echoed, n, made), streams


async def _text(model: Any, prompt: str | list[int]) -> str:
    return prompt if isinstance(prompt, str) else str(await model.call("detokenize", tokens=prompt))


async def _events(
    server: Any, body: CompletionRequest, answer: "Completions", first: Chunk, streams: list[ChunkStream]
) -> AsyncIterator[bytes]:
    async with server.models.use(body.model):
        for part in answer.deltas(0, first):
            yield part
        async with aclosing(_together(streams)) as news:
            async for prompt, chunks in news:
                yield b"".join(part for chunk in chunks for part in answer.deltas(prompt, chunk)) if chunks else PING
        if body.stream_options is not None and body.stream_options.include_usage:
            yield event(answer.usage_chunk())
        yield DONE


async def _together(streams: list[ChunkStream]) -> AsyncGenerator[tuple[int, list[Chunk]], None]:
    """The bursts of all streams as they come, each with the place of its stream. Leaving it cancels all of them."""
    if len(streams) == 1:  # without a task for each burst
        async for chunks in bursts(streams[0]):
            yield 0, chunks
        return
    sources = [bursts(stream) for stream in streams]
    waiting = {asyncio.ensure_future(anext(source)): at for at, source in enumerate(sources)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                at = waiting.pop(task)
                with suppress(StopAsyncIteration):
                    yield at, task.result()
                    waiting[asyncio.ensure_future(anext(sources[at]))] = at
    finally:
        for task in waiting:
            task.cancel()
        for stream in streams:
            stream.cancel()


class Completions:
    """What the chunks come to: a choice for each answer to each prompt."""

    def __init__(self, id: str, model: str, body: CompletionRequest, echoed: list[str], n: int, made: int) -> None:
        """Of each prompt `made` answers are generated, and the `n` likeliest told."""
        self._id, self._model, self._n, self._made = id, model, n, made
        self._created = int(time.time())
        self._body, self._echoed = body, echoed
        self._texts = [text for text in echoed for _ in range(made)]
        self._reasons: list[str | None] = [None] * len(self._texts)
        self._logprobs: list[list[Logprob | None]] = [[] for _ in self._texts]
        self._prompts: list[list[Logprob | None]] = [[] for _ in self._texts]
        self._starts = [""] * len(self._texts)  # the text of each prompt's first token
        self._told_echoes: set[int] = set()  # the choices whose stream has begun
        self.usages: list[Usage] = []

    def take(self, prompt: int, chunk: Chunk) -> None:
        at = prompt * self._made + chunk.index
        if self._body.max_tokens != 0:
            self._texts[at] += chunk.text
            self._logprobs[at] += chunk.logprobs or []
        if chunk.prompt_logprobs is not None:
            self._prompts[at] = chunk.prompt_logprobs
            self._starts[at] = chunk.prompt_start.decode("utf-8", "replace")
        if chunk.finish_reason is not None:
            self._reasons[at] = chunk.finish_reason
        if chunk.usage is not None:
            self.usages.append(chunk.usage)

    def deltas(self, prompt: int, chunk: Chunk) -> list[bytes]:
        """The events of a chunk of a prompt."""
        self.take(prompt, chunk)
        at = prompt * self._made + chunk.index
        choice: TextChoice = {"index": at, "text": "", "logprobs": None, "finish_reason": chunk.finish_reason}
        if not chunk.text and not chunk.tokens and chunk.finish_reason is None:
            part = self._told([choice])
            part["prompt_progress"] = {"total": chunk.prompt_tokens, "processed": chunk.computed}
            return [event(part)] if self._body.return_progress else []
        choice["text"] = chunk.text if self._body.max_tokens != 0 else ""
        if at not in self._told_echoes:
            self._told_echoes.add(at)
            choice["text"] = self._echoed[prompt] + choice["text"]
        if self._body.logprobs is not None:
            choice["logprobs"] = legacy_logprobs(chunk.logprobs or [])
        part = self._told([choice])
        if chunk.finish_reason:
            part["timings"] = timings([chunk.usage] if chunk.usage is not None else [])
        return [event(part)]

    def whole(self) -> TextCompletion:
        """A `text_completion`."""
        whole = self._told([self._choice(index, at) for index, at in enumerate(self._best())])
        whole["usage"], whole["timings"] = self.usage(), timings(self.usages)
        return whole

    def usage_chunk(self) -> TextCompletion:
        part = self._told([])
        part["usage"] = self.usage()
        return part

    def _choice(self, index: int, at: int) -> TextChoice:
        choice: TextChoice = {
            "index": index,
            "text": self._texts[at],
            "logprobs": self._scored(at) if self._body.logprobs is not None else None,
            "finish_reason": self._reasons[at],
        }
        if self._body.prompt_logprobs is not None:
            choice["prompt_logprobs"] = prompt_logprobs(self._prompts[at])
        return choice

    def _told(self, choices: list[TextChoice]) -> TextCompletion:
        return {
            "id": self._id,
            "object": "text_completion",
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }

    def _best(self) -> list[int]:
        """The answers that are told: of each prompt the likeliest by mean log-probability."""
        if self._made == self._n:
            return list(range(len(self._texts)))
        groups = [range(start, start + self._made) for start in range(0, len(self._texts), self._made)]
        return [at for group in groups for at in sorted(group, key=self._likelihood, reverse=True)[: self._n]]

    def _likelihood(self, at: int) -> float:
        scores = [entry.logprob for entry in self._logprobs[at] if entry is not None]
        return sum(scores) / len(scores) if scores else -math.inf

    def _scored(self, at: int) -> LegacyLogprobs:
        if not self._body.echo:
            return legacy_logprobs(self._logprobs[at])
        return legacy_logprobs([*self._prompts[at], *self._logprobs[at]], self._starts[at], len(self._texts[at]))

    def usage(self) -> CompletionUsage:
        """Of all prompts; each is counted once, whatever n is."""
        whole = usage(self.usages)
        whole["prompt_tokens"] = sum(part.prompt_tokens for part in self.usages) // self._made
        whole["total_tokens"] = whole["prompt_tokens"] + whole["completion_tokens"]
        return whole


def legacy_logprobs(entries: list[Logprob | None], start: str = "", length: int | None = None) -> LegacyLogprobs:
    """Log-probabilities as the completions API has them. The first token of a prompt, `start`, has none.

    Where tokens are longer than the text of this `length`, they begin with BOS or a space that are not in it.
    """
    tokens = [entry.bytes.decode("utf-8", "replace") if entry is not None else start for entry in entries]
    ends = list(accumulate(map(len, tokens), initial=0))
    before = max(0, ends[-1] - length) if length is not None else 0
    return {
        "tokens": tokens,
        "token_logprobs": [entry.logprob if entry is not None else None for entry in entries],
        "top_logprobs": [_likeliest(entry) if entry is not None else None for entry in entries],
        "text_offset": [max(0, end - before) for end in ends[:-1]],
    }


def prompt_logprobs(entries: list[Logprob | None]) -> list[dict[str, RankedLogprob] | None]:
    """Those of a prompt's tokens as vLLM has them: by token id, the token's own and the likeliest."""
    return [_ranked(entry) if entry is not None else None for entry in entries]


def _ranked(entry: Logprob) -> dict[str, RankedLogprob]:
    ranks = {top.token: rank for rank, top in enumerate(entry.top, 1)}
    return {
        str(x.token): {
            "logprob": max(x.logprob, -9999.0),
            "rank": ranks.get(x.token),
            "decoded_token": x.bytes.decode("utf-8", "replace"),
        }
        for x in (entry, *entry.top)
    }


def _likeliest(entry: Logprob) -> dict[str, float | None]:
    return {top.bytes.decode("utf-8", "replace"): top.logprob for top in entry.top}


routes = [Route("/v1/completions", create, methods=["POST"])]
