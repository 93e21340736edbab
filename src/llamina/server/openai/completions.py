"""`/v1/completions`: text or token ids in, their continuation out; `echo` with log-probabilities, as lm-eval asks."""

import math
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import accumulate
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from llamina.server.config import Limits
from llamina.server.errors import ApiError
from llamina.server.http import DONE, PING, bursts, event, events, json, read
from llamina.server.ids import new_id
from llamina.server.model import Chunk
from llamina.server.model.client import ChunkStream
from llamina.server.model.frames import Logprob, Usage
from llamina.server.openai.chat import check_n, timings, usage
from llamina.server.openai.sampling import SamplingFields


class CompletionRequest(SamplingFields, kw_only=True, forbid_unknown_fields=True):
    """OpenAI's request with extensions."""

    prompt: str | list[Any]  # a text, texts, token ids, or lists of them
    model: str = ""
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None

    def prompts(self, limits: Limits) -> list[str | list[int]]:
        """Each prompt. Raises ApiError for anything but texts and token ids, or too many of them."""
        given = self.prompt
        prompts = [given] if isinstance(given, str) or (given and type(given[0]) is int) else list(given)
        ids = [item for item in prompts if not isinstance(item, str)]
        if any(not isinstance(item, list) or not item or any(type(t) is not int for t in item) for item in ids):
            raise ApiError(400, "prompt must be a text, texts, token ids, or lists of token ids", param="prompt")
        if not 1 <= len(prompts) <= limits.inputs:
            raise ApiError(400, f"there are {len(prompts)} prompts: 1 to {limits.inputs} are allowed", param="prompt")
        if self.stream and len(prompts) > 1:
            raise ApiError(400, "several prompts cannot be streamed: send one", param="prompt")
        return prompts

    def completion_options(self, limits: Limits) -> dict[str, Any]:
        """The engine's options. Raises ApiError for what cannot be done."""
        options = self.options(limits)
        if self.suffix and self.echo:
            raise ApiError(400, "suffix is given with echo: what is filled in has no prompt to repeat", param="echo")
        if self.stream and self.echo and self.logprobs is not None:
            message = "echo with logprobs cannot be streamed: a prompt's log-probabilities come at its end"
            raise ApiError(400, message, param="stream")
        if self.logprobs is not None:
            if not 0 <= self.logprobs <= limits.top_logprobs:
                message = f"logprobs is {self.logprobs}: must be a number from 0 to {limits.top_logprobs}"
                raise ApiError(400, message, param="logprobs")
            options["logprobs"] = self.logprobs
            if self.echo:
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


async def create(request: Request) -> Response:
    """POST /v1/completions."""
    server = request.app.state.server
    body = await read(request, CompletionRequest)
    if not body.stream:
        return json(await answer(server, body))
    async with _begun(server, body) as (making, [stream]):
        first = await stream.__anext__()
    return events(request, _events(server, body, making, first, stream), owns=[stream])


async def answer(server: Any, body: CompletionRequest, **defaults: Any) -> dict[str, Any]:
    """A `text_completion`. `defaults` are options of the engine where the request gives none."""
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
    server: Any, body: CompletionRequest, answer: "Completions", first: Chunk, stream: Any
) -> AsyncIterator[bytes]:
    async with server.models.use(body.model), stream:
        for part in answer.deltas(first):
            yield part
        async for chunks in bursts(stream):
            yield b"".join(part for chunk in chunks for part in answer.deltas(chunk)) if chunks else PING
        if body.stream_options is not None and body.stream_options.include_usage:
            yield event(answer.head() | {"choices": [], "usage": usage(answer.usages)})
        yield DONE


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

    def deltas(self, chunk: Chunk) -> list[bytes]:
        """The events of a chunk of the only prompt."""
        echo = self._echoed[0] if not self._logprobs[chunk.index] and not chunk.finish_reason else ""
        begun = bool(self._logprobs[chunk.index]) or self._texts[chunk.index] != self._echoed[0]
        self.take(0, chunk)
        text = ("" if begun else echo) + chunk.text
        if not text and not chunk.tokens and chunk.finish_reason is None:
            return []
        scored = legacy_logprobs(chunk.logprobs or []) if self._body.logprobs is not None else None
        choice = {"index": chunk.index, "text": text, "logprobs": scored, "finish_reason": chunk.finish_reason}
        ended = {"timings": timings(self.usages)} if chunk.finish_reason is not None else {}
        return [event(self.head() | {"choices": [choice]} | ended)]

    def whole(self) -> dict[str, Any]:
        """A `text_completion`."""
        choices = [
            {
                "index": index,
                "text": self._texts[at],
                "logprobs": self._scored(at) if self._body.logprobs is not None else None,
                "finish_reason": self._reasons[at],
            }
            for index, at in enumerate(self._told())
        ]
        return self.head() | {"choices": choices, "usage": self._usage(), "timings": timings(self.usages)}

    def _told(self) -> list[int]:
        """The answers that are told: of each prompt the likeliest by mean log-probability."""
        if self._made == self._n:
            return list(range(len(self._texts)))
        groups = [range(start, start + self._made) for start in range(0, len(self._texts), self._made)]
        return [at for group in groups for at in sorted(group, key=self._likelihood, reverse=True)[: self._n]]

    def _likelihood(self, at: int) -> float:
        scores = [entry.logprob for entry in self._logprobs[at] if entry is not None]
        return sum(scores) / len(scores) if scores else -math.inf

    def _scored(self, at: int) -> dict[str, Any]:
        if not self._body.echo:
            return legacy_logprobs(self._logprobs[at])
        return legacy_logprobs([*self._prompts[at], *self._logprobs[at]], self._starts[at], len(self._texts[at]))

    def _usage(self) -> dict[str, Any]:
        """Of all prompts; each is counted once, whatever n is."""
        whole = usage(self.usages)
        prompts = sum(part.prompt_tokens for part in self.usages) // self._made
        return whole | {"prompt_tokens": prompts, "total_tokens": prompts + whole["completion_tokens"]}

    def head(self) -> dict[str, Any]:
        return {"id": self._id, "object": "text_completion", "created": self._created, "model": self._model}


def legacy_logprobs(entries: list[Logprob | None], start: str = "", length: int | None = None) -> dict[str, Any]:
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


def _likeliest(entry: Logprob) -> dict[str, float]:
    return {top.bytes.decode("utf-8", "replace"): top.logprob for top in entry.top}


routes = [Route("/v1/completions", create, methods=["POST"])]
