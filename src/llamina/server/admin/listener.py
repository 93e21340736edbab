"""The admin API's own listener, for as long as the server runs."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.applications import Starlette

from llamina.errors import RequestError
from llamina.server.admin.app import build_admin
from llamina.server.config import Config
from llamina.server.listen import listen, options_of

PORT = 8081
POLL = 0.02  # seconds between looks at whether the server has started


class Beside(uvicorn.Server):
    """A server that leaves signals to the one it runs beside."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def admin_listener(
    app: Starlette, config: Config, server: uvicorn.Server, tell: Callable[[str], None]
) -> AsyncIterator[None]:
    """Serve `/admin` as soon as `server` has started, until the context ends. Raises RequestError for a taken port."""
    listening = _listen(config, tell)
    if listening is None:
        yield
        return
    tell(f"the admin API listens on {config.admin_host}:{listening.getsockname()[1]}")
    beside = Beside(options_of(build_admin(app, config, app.state.keys), config))
    beside.config.lifespan = "off"

    async def serve() -> None:
        while not server.started:
            await asyncio.sleep(POLL)
        await beside.serve(sockets=[listening])

    task = asyncio.ensure_future(serve())
    try:
        yield
    finally:
        beside.should_exit = True
        if not beside.started:
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        listening.close()


def _listen(config: Config, tell: Callable[[str], None]) -> socket.socket | None:
    if not config.admin_host or config.admin_port == 0:
        return None
    try:
        return listen(config.admin_host, PORT if config.admin_port is None else config.admin_port, "admin_port")
    except RequestError as error:
        if config.admin_port is not None:
            raise
        tell(f"there is no admin API: {error}")
        return None
