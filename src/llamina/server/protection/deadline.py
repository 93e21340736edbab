"""Time limits: for a body to come, for an answer to be made, and for its stream to be taken.

An answer's own limit is kept where it is made (`ChunkStream`, `Model.call`), so that its error has the API's shape and
is an event of a stream that has begun. Here a client is held to it that sends or reads too slowly.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llamina.server.caller import TIMEOUT
from llamina.server.errors import ApiError

GRACE = 10.0  # seconds that the last events of a stream have to be taken
LEAST_RATE = 64 << 10  # bytes a second that a large body must come at, once it takes longer than that
STREAMS = (b"text/event-stream", b"application/x-ndjson")  # what ends by itself in time; a file may take longer


class Deadline:
    """Bodies must come within `seconds`, or not too slowly; streams be taken soon after the answer had to be done."""

    def __init__(self, app: ASGIApp, seconds: float, grace: float = GRACE) -> None:
        self._app, self._seconds, self._grace = app, seconds, grace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        TIMEOUT.set(self._seconds)
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        end = asyncio.get_running_loop().time() + self._seconds
        whole = False  # whether the body has come; after that, what is received is that the client is gone

        async def limited_receive() -> Message:
            nonlocal whole, end
            if whole:
                return await receive()
            try:
                async with asyncio.timeout_at(end):
                    message = await receive()
            except TimeoutError:
                message_text = f"the body did not come within {self._seconds:g} s: send it at once"
                raise ApiError(408, message_text, code="timeout", headers={"Connection": "close"}) from None
            whole = not message.get("more_body", False)
            end += len(message.get("body", b"")) / LEAST_RATE
            return message

        limit = asyncio.timeout(None)

        async def watched_send(message: Message) -> None:
            if message["type"] == "http.response.start" and _streams(message):
                limit.reschedule(asyncio.get_running_loop().time() + self._seconds + self._grace)
            await send(message)

        try:
            async with limit:
                await self._app(scope, limited_receive, watched_send)
        except TimeoutError:
            if not limit.expired():
                raise
            # a stream that nobody takes is left unfinished: the connection is closed


def _streams(message: Message) -> bool:
    return any(name.lower() == b"content-type" and value.startswith(STREAMS) for name, value in message["headers"])
