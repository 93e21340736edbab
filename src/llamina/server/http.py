"""Bodies in, JSON and server-sent events out."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from llamina.server.errors import ApiError, api_error, shape_for
from llamina.server.model import Chunk
from llamina.server.model.client import ChunkStream

Body = TypeVar("Body")
Value = TypeVar("Value")
Told = TypeVar("Told", covariant=True)
RawObject = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"})]  # an object that is JSON already
KEEP_ALIVE = 15.0  # seconds without news after which a comment is sent, so that nobody in between hangs up
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
DONE = b"data: [DONE]\n\n"
PING = b": keep-alive\n\n"

encode = msgspec.json.Encoder().encode
CONTAINERS = (dict, list, msgspec.Struct)


async def read(request: Request, kind: type[Body], limit: int | None = None) -> Body:
    """The body as a struct. Raises ApiError for one that is too large, msgspec's errors for one that does not fit."""
    found = parse(await read_bytes(request, limit), kind, request.app.state.server.config.limits.depth)
    request.scope["streams"] = getattr(found, "stream", None) is True
    return found


def parse(body: bytes, kind: type[Body], depth: int) -> Body:
    """JSON as a struct, of so many levels at most. Raises ApiError or msgspec's errors for what does not fit."""
    try:
        found = msgspec.json.decode(body, type=kind)
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is not UTF-8: {error.reason}") from None
    check_depth(found, depth)
    return found


def check_depth(value: Any, most: int) -> None:
    """Raise ApiError if lists and objects are nested deeper than may be: what follows may walk them recursively."""
    level, depth = [value] if isinstance(value, CONTAINERS) else [], 0
    while level:
        if depth > most:
            raise ApiError(400, f"the body is nested deeper than {most} levels")
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                children: Any = item.values()
            else:
                children = item if isinstance(item, list) else msgspec.structs.asdict(item).values()
            inner += [child for child in children if isinstance(child, CONTAINERS)]
        level, depth = inner, depth + 1


async def read_bytes(request: Request, limit: int | None = None) -> bytes:
    """The body, read no further than the limit, which is the server's unless given."""
    most = limit if limit is not None else request.app.state.server.config.limits.body_bytes
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise ApiError(413, f"the body is larger than {most} bytes", "payload_too_large")
        parts.append(part)
    return b"".join(parts)


class Json(Response, Generic[Told]):
    """An answer of this type. Handlers say it in their signatures: the OpenAPI document tells its schema."""

    media_type = "application/json"


def json(value: Value, status: int = 200, headers: dict[str, str] | None = None) -> Json[Value]:
    return Json(encode(value), status, headers)


def event(value: Any, name: str | None = None) -> bytes:
    """One server-sent event."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + encode(value) + b"\n\n"


def events(
    request: Request, source: AsyncIterator[bytes], error_name: str | None = None, owns: Sequence[ChunkStream] = ()
) -> "Events[Any]":
    """A stream of server-sent events. An error in the middle is a last event in the API's shape.

    The streams that it `owns` are cancelled when it ends, even if the client has left before its first event.
    """
    shape = shape_for(request.url.path)
    return Events(source, lambda error: event(shape(api_error(error)), error_name), owns)


class Events(StreamingResponse, Generic[Told]):
    """A response in parts as they come, each an event of this type. `waiting.Disconnects` cancels it when the client
    leaves.

    Tokens come by the thousand, so little is done for a part: it goes past the middlewares, which look at the beginning
    and the end of a response only, and the task that waits for it is not inside the frames of all of them.
    """

    media_type = "text/event-stream"

    def __init__(
        self, source: AsyncIterator[bytes], on_error: Callable[[Exception], bytes], owns: Sequence[ChunkStream]
    ) -> None:
        super().__init__(source, headers=HEADERS)
        self._source, self._on_error, self._owns = source, on_error, owns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await asyncio.ensure_future(self._send_parts(scope.get("send_part", send)))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            for stream in self._owns:
                stream.cancel()

    async def _send_parts(self, send: Send) -> None:
        try:
            async for part in self._source:
                if part:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        except Exception as error:
            await send({"type": "http.response.body", "body": self._on_error(error), "more_body": True})


async def bursts(
    stream: ChunkStream, seconds: float | None = None, most: int | None = None
) -> AsyncIterator[list[Chunk]]:
    """The chunks of a stream, all (or `most`) that are there; none after so many seconds without. Leaving it cancels.

    Events of a burst are best sent together: a server that cannot keep up with its models sends fewer, larger parts.
    """
    async with stream:
        try:
            while True:
                yield await stream.burst(KEEP_ALIVE if seconds is None else seconds, most)
        except StopAsyncIteration:
            return


async def with_keep_alive(stream: ChunkStream, seconds: float | None = None) -> AsyncIterator[Chunk | None]:
    """The chunks of a stream one by one; None after so many seconds without one. Leaving it cancels the stream."""
    async with stream:
        async for chunks in bursts(stream, seconds, 1):
            if not chunks:
                yield None
            for chunk in chunks:
                yield chunk
