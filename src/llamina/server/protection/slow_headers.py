"""A time limit for a request's headers: connections that say nothing, or say it letter by letter, are closed."""

import asyncio
from typing import Any

SECONDS = 30.0


def hurried(protocol: type[Any], seconds: float = SECONDS) -> type[Any]:
    """uvicorn's protocol of a connection; it is closed if a request's headers take longer than that to come."""

    class Hurried(protocol):  # type: ignore[misc]
        _timer: asyncio.TimerHandle | None = None

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
