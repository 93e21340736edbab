"""Running a server: its socket, loading at start, and an orderly end."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from llamina.backends.host import giving_way
from llamina.server import logs
from llamina.server.admin.listener import admin_listener
from llamina.server.app import build_app
from llamina.server.config import Config
from llamina.server.listen import check_tls, listen, options_of
from llamina.server.models import Models

log = logging.getLogger("llamina.server")
ENDS = "the server is shutting down: ask again later"


class Listening(uvicorn.Server):
    """Ends in order at the first signal: answers under way have `grace` seconds, then they end with an error event.

    The second signal ends the process at once; workers end with it.
    """

    def __init__(self, config: uvicorn.Config, models: Models, grace: float) -> None:
        super().__init__(config)
        self._models, self._grace = models, grace
        self.ended_by = 0  # the signal

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os._exit(128 + sig)
        self.ended_by = sig
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
    check_tls(config)
    listening = listen(config.host, config.port)
    address = f"{'https' if config.certfile else 'http'}://{config.host}:{listening.getsockname()[1]}"
    models = Models(config)
    app = build_app(config, models)
    server = Listening(options_of(app, config), models, config.grace)

    async def main() -> None:
        tell(f"listening on {address}")
        loading = asyncio.ensure_future(_load_first(models, tell)) if config.load and models.entries else None
        async with admin_listener(app, config, server, tell):
            await server.serve(sockets=[listening])
        if loading is not None:
            loading.cancel()

    try:
        loop = server.config.get_loop_factory()  # uvloop, where there is one
        with giving_way(), asyncio.Runner(loop_factory=loop) as runner:
            runner.run(main())
    except KeyboardInterrupt:
        pass  # uvicorn raises the signal again when all is done, unless this process was begun to ignore it
    return 128 + server.ended_by if server.ended_by else 0


async def _load_first(models: Models, tell: Callable[[str], None]) -> None:
    entry = next(iter(models.entries.values()))
    tell(f"loading {entry.id} …")
    try:
        model = await models.load(entry)
    except Exception as error:
        tell(f"{entry.id} cannot be loaded: {error}")
    else:
        info = model.info
        tell(f"{entry.id} is ready: {info.architecture} on {info.device}, context of {info.context} tokens")
