"""`/v1/chat/completions`: a conversation in, an answer or a stream of its deltas out."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.routing import Route

from llamina.server.config import Limits
from llamina.server.errors import ApiError
from llamina.server.http import DONE, PING, Events, Json, bursts, encode, event, events, json, read
from llamina.server.ids import new_id
from llamina.server.model import Chunk
from llamina.server.model.client import ChunkStream
from llamina.server.model.frames import CallDelta, Logprob, Usage
from llamina.server.openai.sampling import SamplingFields, check_limits
from llamina.server.openai.schema import (
    ChatChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    ChunkChoice,
    FunctionCall,
    FunctionDelta,
    ToolCall,
    ToolCallDelta,
)
from llamina.server.openai.usage import logprobs, timings, usage
from llamina.server.tools import check_count, warning_headers

REASONING_FORMATS = ("none", "auto", "deepseek")  # in the text, or in reasoning_content, as the two others say

MARK = "\0"  # where a text goes; no model has it for a name


class JsonSchema(msgspec.Struct, forbid_unknown_fields=True):
    name: str = ""
    schema: dict[str, Any] | bool = {}
    strict: bool | None = None
    description: str | None = None


class ResponseFormat(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    schema: dict[str, Any] | None = None  # llama.cpp's: a schema with json_object


class ChatRequest(SamplingFields, kw_only=True, forbid_unknown_fields=True):
    """OpenAI's request with extensions. Fields that a local model has no use for are accepted if they ask nothing."""

    messages: list[dict[str, Any]]
    model: str = ""
    max_completion_tokens: int | None = None
    response_format: ResponseFormat | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    reasoning_effort: str | None = None
    reasoning_format: str | None = None
    reasoning_budget: int | None = None
    thinking_token_budget: int | None = None  # vLLM's name of it
    thinking_budget_tokens: int | None = None  # llama.cpp's
    chat_template_kwargs: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    verbosity: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    modalities: list[str] | None = None

    def chat_options(self, limits: Limits) -> dict[str, Any]:
        """The engine's options of the conversation. Raises ApiError for what cannot be done."""
        given = self.options(limits)
        if self.max_completion_tokens is not None:
            given["max_tokens"] = self.max_completion_tokens
        if len(self.messages) > limits.messages:
            raise ApiError(
                400, f"there are {len(self.messages)} messages: {limits.messages} are allowed", param="messages"
            )
        if self.store:
            message = "store is true: chat completions are not kept here: leave it out, or use /v1/responses"
            raise ApiError(400, message, param="store")
        if self.modalities not in (None, ["text"]):
            raise ApiError(400, f"modalities is {self.modalities}: answers are text", param="modalities")
        if self.tools:
            check_count(self.tools, limits)
            given["tools"] = self.tools
        if self.tool_choice is not None:
            given["tool_choice"] = self.tool_choice
        if self.parallel_tool_calls is not None:
            given["parallel_tool_calls"] = self.parallel_tool_calls
        if self.logprobs or self.top_logprobs is not None:
            given["logprobs"] = _top_logprobs(self.top_logprobs or 0, limits.top_logprobs)
        template = dict(self.chat_template_kwargs or {})
        if self.reasoning_effort is not None:
            template.setdefault("reasoning_effort", self.reasoning_effort)
            template.setdefault("enable_thinking", self.reasoning_effort not in ("none", "minimal"))
        if template:
            given["template_options"] = template
        given |= self._reasoning()
        given |= _constraint(self.response_format)
        check_limits(given, limits)
        return given

    def _reasoning(self) -> dict[str, Any]:
        """Where the reasoning is told, and how long it may be. Raises ApiError."""
        if self.reasoning_format not in (None, *REASONING_FORMATS):
            known = ", ".join(REASONING_FORMATS)
            message = f"reasoning_format is {self.reasoning_format!r}: must be {known}"
            raise ApiError(400, message, param="reasoning_format")
        given: dict[str, Any] = {"reasoning": False} if self.reasoning_format == "none" else {}
        budgets = {self.reasoning_budget, self.thinking_token_budget, self.thinking_budget_tokens} - {None}
        if len(budgets) > 1:
            message = "reasoning_budget is given under several names, with several values"
            raise ApiError(400, message, param="reasoning_budget")
        budget = next(iter(budgets), -1)
        return given | (
            {"reasoning_budget": budget} if budget != -1 else {}
        )  # -1: without a limit, as llama.cpp has it

    @property
    def warnings(self) -> list[str]:
        """What is asked for and not done, though it is no mistake to ask."""
        found = []
        if self.verbosity not in (None, "medium"):
            found.append(f"verbosity {self.verbosity} is not known to the model")
        if self.service_tier not in (None, "auto", "default"):
            found.append(f"there is no service_tier {self.service_tier}: all requests are served alike")
        return found


def _top_logprobs(n: int, most: int) -> int:
    if not 0 <= n <= most:
        raise ApiError(400, f"top_logprobs is {n}: must be a number from 0 to {most}", param="top_logprobs")
    return n


def _constraint(format: ResponseFormat | None) -> dict[str, Any]:
    """The grammar that a response format asks for."""
    if format is None or format.type == "text":
        return {}
    if format.type == "json_object":
        return {"json_schema": format.schema if format.schema is not None else {"type": "object"}}
    if format.json_schema is None:
        raise ApiError(
            400, "response_format is json_schema and has no json_schema", param="response_format.json_schema"
        )
    return {"json_schema": format.json_schema.schema}


async def create(request: Request) -> Json[ChatCompletion] | Events[ChatCompletionChunk]:
    """POST /v1/chat/completions."""
    server = request.app.state.server
    body = await read(request, ChatRequest)
    headers = warning_headers(body.warnings)
    if not body.stream:
        return json(await answer(server, body), headers=headers)
    async with _begun(server, body) as (making, stream):
        first = await stream.__anext__()  # what is wrong with the request is an answer of its own, not an event
    response = events(request, _events(server, body, making, first, stream), owns=[stream])
    response.headers.update(headers)
    return response


async def answer(server: Any, body: ChatRequest, **defaults: Any) -> ChatCompletion:
    """A `chat.completion`. `defaults` are options of the engine where the request gives none."""
    async with _begun(server, body, **defaults) as (making, stream), stream:
        async for chunk in stream:
            making.take(chunk)
    return making.whole()


@asynccontextmanager
async def _begun(server: Any, body: ChatRequest, **defaults: Any) -> AsyncIterator[tuple["Answer", ChunkStream]]:
    """An answer and the chunks that it is made of."""
    n = check_n(body.n, server.config.limits.answers)
    options = defaults | body.chat_options(server.config.limits)
    async with server.models.use(body.model) as (entry, model):
        stream = model.generate(messages=body.messages, options=options, n=n)
        yield Answer(new_id("chatcmpl-"), entry.id, body, n), stream


async def _events(server: Any, body: ChatRequest, answer: "Answer", first: Chunk, stream: Any) -> AsyncIterator[bytes]:
    async with server.models.use(body.model), stream:
        for index in range(answer.n):
            yield event(answer.delta(index, {"role": "assistant", "content": ""}))
        for part in answer.deltas(first):
            yield part
        async for chunks in bursts(stream):
            yield b"".join(part for chunk in chunks for part in answer.deltas(chunk)) if chunks else PING
        if body.stream_options is not None and body.stream_options.include_usage:
            yield event(answer.usage_chunk())
        yield DONE


class Answer:
    """What the chunks of a request come to, in OpenAI's objects."""

    def __init__(self, id: str, model: str, body: ChatRequest, n: int) -> None:
        self.id, self.model, self.n = id, model, n
        self._created = int(time.time())
        self._logprobs = body.logprobs or body.top_logprobs is not None
        self._progress = bool(body.return_progress)
        self._choices = [Choice(index) for index in range(n)]
        self._usages: list[Usage] = []
        self._around: list[tuple[bytes, bytes] | None] = [None] * n

    def take(self, chunk: Chunk) -> None:
        self._choices[chunk.index].take(chunk)
        if chunk.usage is not None:
            self._usages.append(chunk.usage)

    def whole(self) -> ChatCompletion:
        """A `chat.completion`."""
        return {
            "id": self.id,
            "object": "chat.completion",
            "created": self._created,
            "model": self.model,
            "choices": [choice.whole(self._logprobs) for choice in self._choices],
            "usage": usage(self._usages),
            "timings": timings(self._usages),
        }

    def deltas(self, chunk: Chunk) -> list[bytes]:
        """The `chat.completion.chunk` events of a chunk."""
        if chunk.text and not (chunk.reasoning or chunk.calls or chunk.logprobs or chunk.finish_reason):
            return [self._text_event(chunk.index, chunk.text)]
        self.take(chunk)
        choice = self._choices[chunk.index]
        parts: list[bytes] = []
        if self._progress and not chunk.tokens and chunk.finish_reason is None:
            part = self.delta(chunk.index, {})
            part["prompt_progress"] = {"total": chunk.prompt_tokens, "processed": chunk.computed}
            return [event(part)]
        for delta in choice.news(chunk):
            parts.append(
                event(self.delta(chunk.index, delta, logprobs=self._logprobs_of(chunk) if not parts else None))
            )
        if chunk.finish_reason is not None:
            last = self.delta(chunk.index, {}, choice.reason)
            last["timings"] = timings(self._usages)
            parts.append(event(last))
        return parts

    def _text_event(self, index: int, text: str) -> bytes:
        """The event of a chunk that is text alone, as nearly all are: only the text is encoded anew."""
        if (around := self._around[index]) is None:
            before, _, after = event(self.delta(index, {"content": MARK})).partition(encode(MARK))
            around = self._around[index] = (before, after)
        return around[0] + encode(text) + around[1]

    def _logprobs_of(self, chunk: Chunk) -> ChatLogprobs | None:
        return {"content": logprobs(chunk.logprobs)} if self._logprobs and chunk.logprobs else None

    def delta(
        self, index: int, delta: ChatDelta, reason: str | None = None, logprobs: ChatLogprobs | None = None
    ) -> ChatCompletionChunk:
        choice: ChunkChoice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return self._chunk([choice])

    def usage_chunk(self) -> ChatCompletionChunk:
        chunk = self._chunk([])
        chunk["usage"] = usage(self._usages)
        return chunk

    def _chunk(self, choices: list[ChunkChoice]) -> ChatCompletionChunk:
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self.model,
            "choices": choices,
        }


class Choice:
    """One of the answers, put together as it comes."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.reason = "stop"
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self.calls: dict[int, ToolCall] = {}
        self._logprobs: list[Logprob | None] = []

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    def take(self, chunk: Chunk) -> None:
        self._text.append(chunk.text)
        if chunk.reasoning:
            self._reasoning.append(chunk.reasoning)
        if chunk.logprobs:
            self._logprobs += chunk.logprobs
        for call in chunk.calls:
            self._take_call(call)
        if chunk.finish_reason is not None:
            called = bool(self.calls) and chunk.finish_reason == "stop"
            self.reason = "tool_calls" if called else chunk.finish_reason

    def _take_call(self, call: CallDelta) -> None:
        if call.dropped:
            self.calls.pop(call.index, None)
        elif call.name is not None:
            function: FunctionCall = {"name": call.name, "arguments": ""}
            self.calls[call.index] = {"id": call.id or "", "type": "function", "function": function}
        else:
            self.calls[call.index]["function"]["arguments"] += call.arguments

    def news(self, chunk: Chunk) -> list[ChatDelta]:
        """What is new in a chunk, as deltas of a message."""
        deltas: list[ChatDelta] = []
        if chunk.reasoning:
            deltas.append({"reasoning_content": chunk.reasoning})
        if chunk.text or (chunk.logprobs and not chunk.calls and not chunk.reasoning):
            deltas.append({"content": chunk.text})
        for call in chunk.calls:
            function: FunctionDelta = {"arguments": call.arguments}
            part: ToolCallDelta = {"index": call.index, "function": function}
            if call.name is not None:
                part |= {"id": call.id, "type": "function"}
                function["name"] = call.name
            if not call.dropped:
                deltas.append({"tool_calls": [part]})
        return deltas

    def message(self) -> ChatMessage:
        text, reasoning = self.text, self.reasoning
        message: ChatMessage = {"role": "assistant", "content": text, "refusal": None}
        if reasoning:
            message["reasoning_content"] = reasoning
        if self.calls:
            message["tool_calls"] = list(self.calls.values())
            message["content"] = text or None
        return message

    def whole(self, with_logprobs: bool) -> ChatChoice:
        scored: ChatLogprobs | None = {"content": logprobs(self._logprobs), "refusal": None} if with_logprobs else None
        return {"index": self.index, "message": self.message(), "logprobs": scored, "finish_reason": self.reason}


def check_n(n: int | None, most: int) -> int:
    if n is not None and not 1 <= n <= most:
        raise ApiError(400, f"n is {n}: must be a number from 1 to {most}", param="n")
    return n or 1


routes = [Route("/v1/chat/completions", create, methods=["POST"])]
