"""An error as the answer of a middleware, in the shape of the API that was meant."""

from starlette.types import Receive, Scope, Send

from llamina.server.errors import ApiError, answer

POLICY = 1008  # the WebSocket code of a connection that is refused


async def refuse(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request with an error. A WebSocket gets it in the place of its handshake."""
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": POLICY, "reason": error.message[:120]})
        return
    await answer(error, scope["path"])(scope, receive, send)
