"""While a request waits: a client that leaves cancels it, and one that asked for a stream hears that it goes on."""

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llamina.server import http
from llamina.server.record import current


class Disconnects:
    """ASGI middleware: when the client hangs up, the handler is cancelled, and with it what a model computes for it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        whole = asyncio.Event()  # the body is read: what comes next is the end of the connection
        answered = False

        async def reading() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                whole.set()
            return message

        async def sending(message: Message) -> None:
            nonlocal answered
            whole.set()  # who answers reads no further
            answered = message["type"] == "http.response.body" and not message.get("more_body")
            await send(message)

        async def watch() -> None:
            await whole.wait()
            while (await receive())["type"] != "http.disconnect":
                pass
            if not answered:
                work.cancel()

        work = asyncio.ensure_future(self._app(scope, reading, sending))
        watching = asyncio.ensure_future(watch())
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            if not work.cancelled():  # the server ends
                work.cancel()
                with suppress(asyncio.CancelledError):
                    await work
                raise
        finally:
            watching.cancel()


class Patience:
    """ASGI middleware: a stream begins with comments while its model is loaded or the queue is long.

    An error that comes after the first comment is an event, since the status is sent by then.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith("/api/"):  # Ollama's streams know no comments
            await self._app(scope, receive, send)
            return
        begun = _Begun(scope, send)
        work = asyncio.ensure_future(self._app(scope, receive, begun.send))
        try:
            while not (await asyncio.wait({work}, timeout=http.KEEP_ALIVE))[0] and not begun.answered:
                if scope.get("streams"):
                    await begun.comment()
            await work
        finally:
            work.cancel()


class _Begun:
    """The answer to one request, which may begin before the handler has one."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope, self._send = scope, send
        self.answered = False  # the handler has begun to
        self._early = False
        self._error: bytes | None = None  # the body of one, as far as it is known

    async def comment(self) -> None:
        """Tell the client that it is waited for, and for what."""
        if not self._early:
            self._early = True
            headers = [(name.lower().encode(), value.encode()) for name, value in http.HEADERS.items()]
            headers.append((b"content-type", b"text/event-stream; charset=utf-8"))
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._body(f": {self._progress()}\n\n".encode())

    def _progress(self) -> str:
        record, entries = current(), self._scope["app"].state.server.models.entries
        entry = entries.get(record.model) if record is not None else None
        if entry is None or entry.status != "loading":
            return "waiting"
        now = entry.progress
        return f"loading {entry.id}" + (f": {now.stage} {now.done}/{now.total}" if now is not None else "")

    async def send(self, message: Message) -> None:
        """What the handler sends."""
        self.answered = True
        if not self._early:
            await self._send(message)
        elif message["type"] == "http.response.start":
            self._error = b"" if message["status"] >= 400 else None
        elif self._error is None:
            await self._send(message)
        else:
            self._error += message.get("body", b"")
            if not message.get("more_body"):
                name = b"event: error\n" if self._scope["path"].startswith("/v1/messages") else b""
                await self._body(name + b"data: " + self._error + b"\n\n", more=False)

    async def _body(self, part: bytes, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": part, "more_body": more})
