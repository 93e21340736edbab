"""A bound on the requests that are under way: beyond it the answer is 503, at once."""

from starlette.types import ASGIApp, Receive, Scope, Send

from llamina.server.errors import RETRY_SECONDS, ApiError
from llamina.server.protection.refusal import refuse
from llamina.server.protection.scopes import PUBLIC

ALWAYS = (*PUBLIC, "/metrics")  # what watches a server that is full


class Concurrency:
    """Lets `most` requests and WebSockets in at a time."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most, self._running = app, most, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or scope["path"] in ALWAYS:
            await self._app(scope, receive, send)
            return
        if self._running >= self._most:
            message = f"{self._most} requests are under way, as many as may be at a time: ask again later"
            retry = {"Retry-After": str(RETRY_SECONDS)}
            error = ApiError(503, message, "service_unavailable", code="too_many_requests", headers=retry)
            await refuse(error, scope, receive, send)
            return
        self._running += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._running -= 1
