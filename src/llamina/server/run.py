"""Running a server: its socket, loading at start, and an orderly end."""

import asyncio
import logging
from collections.abc import Callable

import uvicorn

from llamina.server.admin.listener import admin_listener
from llamina.server.app import build_app
from llamina.server.config import Config
from llamina.server.listen import check_tls, listen, options_of
from llamina.server.models import Models


def serve(config: Config, *, eager: bool = True, tell: Callable[[str], None] = print) -> int:
    """Serve until Ctrl-C or SIGTERM; the exit code. `tell` gets a line when it listens, and when a model is ready."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    check_tls(config)
    listening = listen(config.host, config.port)
    address = f"{'https' if config.certfile else 'http'}://{config.host}:{listening.getsockname()[1]}"
    models = Models(config)
    app = build_app(config, models)
    server = uvicorn.Server(options_of(app, config))

    async def main() -> None:
        tell(f"listening on {address}")
        loading = asyncio.ensure_future(_load_first(models, tell)) if eager else None
        async with admin_listener(app, config, server, tell):
            await server.serve(sockets=[listening])
        if loading is not None:
            loading.cancel()

    asyncio.run(main())
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
