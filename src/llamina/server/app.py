"""The ASGI application: every API's routes, around one server's state."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from llamina.errors import LlaminaError
from llamina.server import docs, health, metrics
from llamina.server.access import Access
from llamina.server.anthropic import messages
from llamina.server.config import Config
from llamina.server.errors import ApiError, answer, on_error
from llamina.server.instance import Instance
from llamina.server.jobs import Jobs
from llamina.server.models import Models
from llamina.server.native import aliases, completion, embedding, infill, lora, props, rerank, score, slots, tokens
from llamina.server.ollama import chat as ollama_chat
from llamina.server.ollama import embed, generate, manage
from llamina.server.ollama import models as ollama_models
from llamina.server.ollama.kept import restore
from llamina.server.openai import batch_jobs, batches, chat, chat_ws, completions, embeddings, files, transcriptions
from llamina.server.openai import models as openai_models
from llamina.server.openai.assistants import assistants, runs, threads
from llamina.server.openai.responses import conversations
from llamina.server.openai.responses import routes as responses
from llamina.server.page import dashboard
from llamina.server.page import files as page
from llamina.server.protection.chain import protection
from llamina.server.protection.keys import Keys
from llamina.server.requests import CountRequests, RequestCounts
from llamina.server.store import Store
from llamina.server.tracing import open_tracing
from llamina.server.waiting import Disconnects, Patience

OLLAMA = (ollama_chat, generate, embed, ollama_models, manage)
ASSISTANTS = (assistants, runs, threads)  # runs first: /v1/threads/runs is no thread
KEPT = (responses, conversations, files, batches, batch_jobs, *ASSISTANTS)
NATIVE = (aliases, completion, embedding, infill, tokens, props, slots, lora, rerank, score)
OPENAI = (openai_models, chat, chat_ws, completions, embeddings, transcriptions, *KEPT)
APIS = (page, dashboard, health, docs, metrics, *OPENAI, messages, *NATIVE, *OLLAMA)


@dataclass
class Server:
    """What handlers reach as `request.app.state.server`."""

    config: Config
    models: Models
    store: Store
    keys: Keys
    jobs: Jobs = field(init=False)
    requests: RequestCounts = field(default_factory=RequestCounts)
    instance: Instance = field(init=False)  # this process, among those that share the data folder
    batch_slots: asyncio.Semaphore = field(init=False)  # one for each line of a batch that is being answered

    def __post_init__(self) -> None:
        self.jobs = Jobs(self.config.share_prefixes)
        self.instance = Instance(self.store.folder)
        self.batch_slots = asyncio.Semaphore(self.config.batch_concurrency)


def build_app(config: Config, models: Models | None = None) -> Starlette:
    """An application; `models` may be given for tests, else they are those of the configuration.

    Raises RequestError for settings of its protection that do not protect.
    """
    counts, keys = RequestCounts(), Keys(config)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        store = await asyncio.to_thread(Store, config.database_url, config.data_folder)
        app.state.server = server = Server(config, models or Models(config), store, keys, requests=counts)
        try:
            await restore(store, server.models)
            with server.instance.taking_over():
                for api in APIS:
                    if hasattr(api, "resume"):
                        await api.resume(server)  # what an earlier process of the server left unfinished goes on
            yield
        finally:
            await server.jobs.close()
            await server.models.close()
            server.instance.close()
            store.close()
            if tracing is not None:
                await asyncio.to_thread(tracing.close)

    tracing = open_tracing(config.otel)
    routes = [route for api in APIS for route in api.routes]
    middleware = [
        Middleware(CountRequests, counts, routes),
        Middleware(Access, tracing),
        *protection(config, keys),
        Middleware(Patience),
        Middleware(Disconnects),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers=error_handlers(),  # type: ignore[arg-type]
        lifespan=lifespan,
        middleware=middleware,
    )
    app.state.keys = keys
    return app


def error_handlers() -> dict[Any, Any]:
    """Errors that are expected, by their classes. Any other is for `Mistakes`."""
    return {**dict.fromkeys((ApiError, LlaminaError, msgspec.MsgspecError), on_error), HTTPException: _not_found}


async def _not_found(request: Request, error: Exception) -> Response:
    """Paths and methods that there are not, in the shape of the API that was meant."""
    assert isinstance(error, HTTPException)
    kind = "not_found_error" if error.status_code == 404 else "invalid_request_error"
    message = f"{request.method} {request.url.path}: {error.detail}"
    return answer(ApiError(error.status_code, message, kind, headers=dict(error.headers or {})), request.url.path)
