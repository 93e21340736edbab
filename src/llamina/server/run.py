"""Running a server: its socket, loading at start, and an orderly end."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from llamina.errors import RequestError
from llamina.server import logs
from llamina.server.app import build_app
from llamina.server.config import Config
from llamina.server.models import Models

log = logging.getLogger("llamina.server")
AFTERWARDS = 3  # seconds for clients to take the last event, after the grace period
ENDS = "the server is shutting down: ask again later"


class Listening(uvicorn.Server):
    """Ends in order at the first signal: answers under way have `grace` seconds, then they end with an error event.

    The second signal ends the process at once; workers end with it.
    """

    def __init__(self, config: uvicorn.Config, models: Models, grace: float) -> None:
        super().__init__(config)
        self._models, self._grace = models, grace

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os._exit(128 + sig)
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        timer = asyncio.get_running_loop().call_later(self._grace, self._models.stop, ENDS)
        await super().shutdown(sockets)
        timer.cancel()


def serve(config: Config, *, tell: Callable[[str], None] = print) -> int:
    """Serve until Ctrl-C or SIGTERM; the exit code. `tell` gets a line when it listens, and when a model is ready."""
    logs.set_up(config.log_level, config.log_format)
    if config.log_format == "json":
        tell = log.warning  # every line is an object then
    listening = _listen(config.host, config.port)
    address = f"http://{config.host}:{listening.getsockname()[1]}"
    models = Models(config)
    options = uvicorn.Config(
        build_app(config, models),
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=int(config.grace) + AFTERWARDS,
        server_header=False,
        ws_max_size=2 * config.limits.body_bytes,  # what is over the limit gets an answer, what is far over it none
    )
    server = Listening(options, models, config.grace)

    async def main() -> None:
        tell(f"listening on {address}")
        loading = asyncio.ensure_future(_load_first(models, tell)) if config.load and models.entries else None
        await server.serve(sockets=[listening])
        if loading is not None:
            loading.cancel()

    try:
        with asyncio.Runner(loop_factory=options.get_loop_factory()) as runner:  # uvloop, where there is one
            runner.run(main())
    except KeyboardInterrupt:  # uvicorn raises the signal again when all is done
        return 128 + signal.SIGINT
    return 0


async def _load_first(models: Models, tell: Callable[[str], None]) -> None:
    entry = next(iter(models.entries.values()))
    tell(f"loading {entry.id} …")
    try:
        model = await models.load(entry)
    except Exception as error:
        tell(f"{entry.id} cannot be loaded: {error}")
    else:
        tell(f"{entry.id} is ready: {model.info.architecture}, context of {model.info.context} tokens")


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens, so that a port that is taken is an error at once. Raises RequestError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else asyncio leaves Nagle's algorithm on
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(1024)
    except OSError as error:
        found.close()
        message = f"cannot listen on {host}:{port}: {error.strerror}: give another --host or --port"
        raise RequestError(message, "port") from error
    return found
