"""Bodies in, JSON and server-sent events out."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from llamina.server.errors import ApiError, api_error, shape_for
from llamina.server.model import Chunk
from llamina.server.model.host import ChunkStream

Body = TypeVar("Body")
KEEP_ALIVE = 15.0  # seconds without news after which a comment is sent, so that nobody in between hangs up
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
DONE = b"data: [DONE]\n\n"

encode = msgspec.json.Encoder().encode
CONTAINERS = (dict, list, msgspec.Struct)


async def read(request: Request, kind: type[Body], limit: int | None = None) -> Body:
    """The body as a struct. Raises ApiError for one that is too large, msgspec's errors for one that does not fit."""
    body = await read_bytes(request, limit)
    try:
        found = msgspec.json.decode(body, type=kind)
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is not UTF-8: {error.reason}") from None
    check_depth(found, request.app.state.server.config.limits.depth)
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


def json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encode(value), status, headers, "application/json")


def event(value: Any, name: str | None = None) -> bytes:
    """One server-sent event."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + encode(value) + b"\n\n"


def events(request: Request, source: AsyncIterator[bytes], error_name: str | None = None) -> Response:
    """A stream of server-sent events. An error in the middle is a last event in the API's shape."""
    return StreamingResponse(_guarded(request, source, error_name), headers=HEADERS, media_type="text/event-stream")


async def _guarded(request: Request, source: AsyncIterator[bytes], error_name: str | None) -> AsyncIterator[bytes]:
    try:
        async for part in source:
            yield part
    except Exception as error:
        yield event(shape_for(request.url.path)(api_error(error)), error_name)


async def with_keep_alive(stream: ChunkStream, seconds: float = KEEP_ALIVE) -> AsyncIterator[Chunk | None]:
    """The chunks of a stream; None after so many seconds without one. Leaving it cancels the stream."""
    async with stream:
        waiting: asyncio.Task[Chunk] | None = None
        try:
            while True:
                waiting = waiting or asyncio.ensure_future(stream.__anext__())
                done, _ = await asyncio.wait({waiting}, timeout=seconds)
                if not done:
                    yield None
                    continue
                finished, waiting = waiting, None
                try:
                    yield finished.result()
                except StopAsyncIteration:
                    return
        finally:
            if waiting is not None:
                waiting.cancel()
