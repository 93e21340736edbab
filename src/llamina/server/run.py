"""Running a server: its socket, loading at start, and an orderly end."""

import asyncio
import logging
import socket
from collections.abc import Callable

import uvicorn

from llamina.errors import RequestError
from llamina.server.app import build_app
from llamina.server.config import Config
from llamina.server.models import Models

GRACE = 10  # seconds that answers under way have to end after Ctrl-C or SIGTERM


def serve(config: Config, *, eager: bool = True, tell: Callable[[str], None] = print) -> int:
    """Serve until Ctrl-C or SIGTERM; the exit code. `tell` gets a line when it listens, and when a model is ready."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    listening = _listen(config.host, config.port)
    address = f"http://{config.host}:{listening.getsockname()[1]}"
    models = Models(config)
    app = build_app(config, models)
    options = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=GRACE,
        server_header=False,
        ws_max_size=2 * config.limits.body_bytes,  # what is over the limit gets an answer, what is far over it none
    )
    server = uvicorn.Server(options)

    async def main() -> None:
        tell(f"listening on {address}")
        loading = asyncio.ensure_future(_load_first(models, tell)) if eager else None
        await server.serve(sockets=[listening])
        if loading is not None:
            loading.cancel()

    with asyncio.Runner(loop_factory=options.get_loop_factory()) as runner:  # uvloop, where there is one
        runner.run(main())
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
