"""Limits of a request's headers: those that come letter by letter, or without end, are not waited for."""

import asyncio
from typing import Any

SECONDS = 30.0
BYTES = 64 << 10  # of a request's line and headers, as h11 has it; httptools has no limit of its own


def hurried(protocol: type[Any], seconds: float = SECONDS) -> type[Any]:
    """uvicorn's protocol of a connection; it is closed if a request's headers take longer than that to come.

    Headers that are too large are answered with 400.
    """

    class Hurried(protocol):  # type: ignore[misc]
        _timer: asyncio.TimerHandle | None = None
        _head = 0  # bytes of the request's headers so far

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._answers() or self.transport.get_protocol() is not self:
                self._stop()  # a request is being answered, or is a WebSocket now
            elif self._timer is None:
                self._wait()  # the beginning of another

        def on_message_begin(self) -> None:
            self._head = 0
            super().on_message_begin()

        def on_url(self, url: bytes) -> None:
            self._count(len(url))
            super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            self._count(len(name) + len(value))
            super().on_header(name, value)

        def _count(self, n: int) -> None:
            self._head += n
            if self._head > BYTES:
                raise ValueError("the headers are too large")  # which the parser makes an error of its own

        def _wait(self) -> None:
            self._timer = self.loop.call_later(seconds, self._too_slow)

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _too_slow(self) -> None:
            self._timer = None
            if not self._answers():
                self.transport.close()

        def _answers(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

    return Hurried
