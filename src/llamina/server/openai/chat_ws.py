"""`/v1/chat/ws`: chats over a WebSocket, one request after the other, each answered by JSON events."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from llamina.server.caller import caller
from llamina.server.errors import ApiError, api_error
from llamina.server.http import encode, parse
from llamina.server.model import Chunk
from llamina.server.model.frames import Usage
from llamina.server.openai.chat import ChatRequest, Choice, check_n
from llamina.server.openai.schema import ChatDelta
from llamina.server.openai.usage import logprobs, usage


class Kind(msgspec.Struct):
    """What a message is: a request has no type."""

    type: str | None = None


class Cancel(Kind, forbid_unknown_fields=True):
    """`{"type": "cancel"}`."""


async def chat(socket: WebSocket) -> None:
    """One connection, until the client leaves. Nothing that it sends ends more than its own answer."""
    await socket.accept()
    try:
        await Session(socket).serve()
    except WebSocketDisconnect:
        return


class Session:
    """A connection: it listens all the time, beside the one answer that may be under way."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket, self._server = socket, socket.app.state.server
        self._answering: asyncio.Task[None] | None = None
        self._answer: Answer | None = None

    async def serve(self) -> None:
        """Take messages. Raises WebSocketDisconnect when the client is gone, which stops the model at once."""
        try:
            while True:
                try:
                    await self._take(await self._receive())
                except (ApiError, msgspec.MsgspecError, RecursionError) as error:
                    await self._tell_error(error)
        finally:
            if self._answering is not None:
                self._answering.cancel()

    async def _receive(self) -> str:
        """The next message. Raises ApiError for one that is too large or not text."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1000))
        text: str | None = message.get("text")
        if text is None:
            raise ApiError(400, "the message is binary: must be JSON in a text message")
        most = self._server.config.limits.body_bytes
        if len(text) > most or len(text.encode()) > most:
            raise ApiError(413, f"the message is larger than {most} bytes")
        return text

    async def _take(self, data: str) -> None:
        """Begin an answer, or cancel it."""
        busy = self._answering is not None and not self._answering.done()
        if msgspec.json.decode(data, type=Kind).type == "cancel":
            msgspec.json.decode(data, type=Cancel)
            if self._answering is None or self._answer is None or not busy:
                raise ApiError(400, "nothing is being generated that could be cancelled")
            self._answering.cancel()
            await asyncio.wait({self._answering})
            await self._send(self._answer.cancelled())
            return
        if busy:
            raise ApiError(409, "an answer is being generated: wait until it is done, or cancel it")
        caller(self._socket).admit()
        body = parse(data.encode(), ChatRequest, self._server.config.limits.depth)
        n = check_n(body.n, self._server.config.limits.answers)
        options = body.chat_options(self._server.config.limits)
        self._answer = Answer(body, n)
        self._answering = asyncio.ensure_future(self._generate(body, options, self._answer))

    async def _generate(self, body: ChatRequest, options: dict[str, Any], answer: "Answer") -> None:
        try:
            async with (
                self._server.models.use(body.model) as (_, model),
                model.generate(messages=body.messages, options=options, n=answer.n) as stream,
            ):
                async for chunk in stream:
                    for news in answer.take(chunk):
                        await self._send(news)
        except WebSocketDisconnect:
            return  # the receiving side sees it, too
        except Exception as error:
            await self._tell_error(error)

    async def _tell_error(self, error: Exception) -> None:
        if isinstance(error, RecursionError):
            error = ApiError(400, "the message is nested too deeply")
        found = api_error(error)
        news = {"type": "error", "message": found.message, "param": found.param, "code": found.code}
        with suppress(WebSocketDisconnect):
            await self._send(news)

    async def _send(self, news: dict[str, Any]) -> None:
        await self._socket.send({"type": "websocket.send", "text": encode(news).decode()})


class Answer:
    """Chunks as events; with several answers (`n`), events say which by their `index`."""

    def __init__(self, body: ChatRequest, n: int) -> None:
        self.n, self._body = n, body
        self._choices = [Choice(index) for index in range(n)]
        self._prompt, self._made = 0, 0

    def take(self, chunk: Chunk) -> Iterator[dict[str, Any]]:
        """The events of a chunk; after the last answer's end, `done`."""
        choice = self._choices[chunk.index]
        choice.take(chunk)
        self._prompt, self._made = chunk.prompt_tokens, self._made + len(chunk.tokens)
        which = {"index": chunk.index} if self.n > 1 else {}
        if self._body.return_progress and not chunk.tokens and chunk.finish_reason is None:
            yield {"type": "progress", "total": chunk.prompt_tokens, "processed": chunk.computed} | which
        for delta in choice.news(chunk):
            yield _event(delta) | which | self._logprobs(chunk, delta)
        if chunk.finish_reason is not None and chunk.usage is not None:
            yield {"type": "done", "finish_reason": choice.reason, "usage": usage([chunk.usage])} | which

    def _logprobs(self, chunk: Chunk, delta: ChatDelta) -> dict[str, Any]:
        wanted = (self._body.logprobs or self._body.top_logprobs is not None) and "content" in delta
        return {"logprobs": logprobs(chunk.logprobs)} if wanted and chunk.logprobs else {}

    def cancelled(self) -> dict[str, Any]:
        """The last event of an answer that was cancelled, with what was computed until then."""
        return {"type": "done", "finish_reason": "cancelled", "usage": usage([Usage(self._prompt, self._made)])}


def _event(delta: ChatDelta) -> dict[str, Any]:
    """A delta of a message as an event of its own type."""
    if "reasoning_content" in delta:
        return {"type": "reasoning", "delta": delta["reasoning_content"]}
    if "tool_calls" in delta:
        return {"type": "tool_call", "tool_call": delta["tool_calls"][0]}
    return {"type": "token", "delta": delta["content"]}


routes = [WebSocketRoute("/v1/chat/ws", chat)]
