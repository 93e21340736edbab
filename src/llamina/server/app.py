"""The ASGI application: every API's routes, around one server's state."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from llamina.errors import LlaminaError
from llamina.server import health
from llamina.server.anthropic import messages
from llamina.server.config import Config
from llamina.server.errors import ApiError, answer, on_error
from llamina.server.jobs import Jobs
from llamina.server.models import Models
from llamina.server.ollama import chat as ollama_chat
from llamina.server.ollama import embed, generate, manage
from llamina.server.ollama import models as ollama_models
from llamina.server.openai import chat, completions, embeddings
from llamina.server.openai import models as openai_models
from llamina.server.page import dashboard
from llamina.server.page import files as page
from llamina.server.store import Store

OLLAMA = (ollama_chat, generate, embed, ollama_models, manage)
APIS = (page, dashboard, health, openai_models, chat, completions, embeddings, messages, *OLLAMA)


@dataclass
class Server:
    """What handlers reach as `request.app.state.server`."""

    config: Config
    models: Models
    store: Store
    jobs: Jobs = field(default_factory=Jobs)


def build_app(config: Config, models: Models | None = None) -> Starlette:
    """An application; `models` may be given for tests, else they are those of the configuration."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        store = await asyncio.to_thread(Store, config.database_url, config.data_folder)
        app.state.server = server = Server(config, models or Models(config), store)
        try:
            for api in APIS:
                if hasattr(api, "resume"):
                    await api.resume(server)  # what an earlier process of the server left unfinished goes on
            yield
        finally:
            await server.jobs.close()
            await server.models.close()
            store.close()

    expected = (ApiError, LlaminaError, msgspec.MsgspecError)
    handlers = {**dict.fromkeys(expected, on_error), Exception: on_error, HTTPException: _not_found}
    routes = [route for api in APIS for route in api.routes]
    return Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)  # type: ignore[arg-type]


async def _not_found(request: Request, error: Exception) -> Response:
    """Paths and methods that there are not, in the shape of the API that was meant."""
    assert isinstance(error, HTTPException)
    kind = "not_found_error" if error.status_code == 404 else "invalid_request_error"
    message = f"{request.method} {request.url.path}: {error.detail}"
    return answer(ApiError(error.status_code, message, kind, headers=dict(error.headers or {})), request.url.path)
