"""A client that leaves before its answer begins: what it waits for is cancelled at once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.requests import Request

from llamina.server.errors import ApiError

CLIENT_LEFT = 499  # nginx's status; nobody reads it but logs and metrics


@asynccontextmanager
async def while_connected(request: Request) -> AsyncIterator[None]:
    """A block that is cancelled when the client leaves; it ends with an ApiError that nobody gets to see.

    The body must have been read. Answers that have begun to stream are watched by their response instead.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as scope:  # the standard library's scope for cancelling a block
            watcher = asyncio.create_task(_watch(request, lambda: scope.reschedule(loop.time())))
            try:
                yield
            finally:
                watcher.cancel()
    except TimeoutError:
        if not scope.expired():
            raise
        raise ApiError(CLIENT_LEFT, "the client left before the answer was complete") from None


async def _watch(request: Request, leave: Callable[[], None]) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    leave()
