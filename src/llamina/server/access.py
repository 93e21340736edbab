"""Around every request: its id, a line in the log, a trace, and an answer even to a mistake of ours."""

import asyncio
import logging
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llamina.server.caller import EVERYBODY
from llamina.server.errors import answer
from llamina.server.record import Record, begin
from llamina.server.tracing import Tracing

log = logging.getLogger("llamina.requests")
LEFT = 499  # the status of a request whose client did not wait for the answer


class Access:
    """ASGI middleware. `x-request-id` is the client's, if it gives one, and in every answer."""

    def __init__(self, app: ASGIApp, tracing: Tracing | None = None) -> None:
        self._app, self._tracing = app, tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name: value for name, value in scope["headers"] if name in (b"x-request-id", b"traceparent")}
        record = Record.of(headers[b"x-request-id"].decode("latin-1") if b"x-request-id" in headers else None)
        begin(record)
        started, status = time.perf_counter(), 0

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.accept"):
                status = message.get("status", 101)
                own = [pair for pair in message.get("headers", []) if pair[0].lower() != b"x-request-id"]
                message = {**message, "headers": [*own, (b"x-request-id", record.id.encode())]}
            await send(message)

        span = self._tracing.start(headers.get(b"traceparent")) if self._tracing is not None else None
        try:
            await self._app(scope, receive, told)
        except asyncio.CancelledError:
            status = status or LEFT
            raise
        except Exception as error:
            if status:  # it is too late for another answer: the connection is closed
                log.exception("request %s broke off", record.id)
                raise
            await answer(error, scope["path"])(scope, receive, told)
        finally:
            facts = _facts(scope, record, status or LEFT, time.perf_counter() - started)
            log.info("%s", _line(facts), extra={"fields": facts})
            if span is not None:
                span.end(facts)


def _facts(scope: Scope, record: Record, status: int, seconds: float) -> dict[str, Any]:
    """What is told of a request: never its query, its body or its headers."""
    route = getattr(scope.get("route"), "path", None)
    return {
        "method": scope.get("method", "WEBSOCKET"),
        "route": route or scope["path"][:200].encode("unicode_escape").decode(),
        "status": status,
        "ms": round(1e3 * seconds, 1),
        "request_id": record.id,
        "key": scope.get("caller", EVERYBODY).id,
        "model": record.model,
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
    }


def _line(facts: dict[str, Any]) -> str:
    head = "{method} {route} {status} {ms} ms, {request_id}".format(**facts)
    key = f", key {facts['key']}" if facts["key"] else ""
    tokens = f", {facts['prompt_tokens']} + {facts['completion_tokens']} tokens" if facts["completion_tokens"] else ""
    return head + key + (f", {facts['model']}" if facts["model"] else "") + tokens
