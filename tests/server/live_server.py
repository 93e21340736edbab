"""A server in a thread, on a free port, for official clients to talk to."""

import asyncio
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import httpx
import msgspec
import uvicorn
from contract import Contract

from llamina.engine import Engine
from llamina.server.admin import listener as listening
from llamina.server.admin.app import build_admin
from llamina.server.app import Server, build_app
from llamina.server.config import Config
from llamina.server.model import Chunk, LocalModel, Model, ModelInfo
from llamina.server.model.frames import Call, Cancel, Chunks, Generate, ToModel, Usage
from llamina.server.models import Models

PATIENCE = 60.0


class Live:
    """A server that runs: its address, its models, and a way into its event loop."""

    def __init__(
        self, url: str, models: Models, loop: asyncio.AbstractEventLoop, engines: dict[str, Engine], app: Any = None
    ) -> None:
        self.url, self.models, self.engines, self.app = url, models, engines, app
        self._loop = loop
        self.contracts: list[Contract] = []

    @property
    def server(self) -> Server:
        found: Server = self.app.state.server
        return found

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """What a coroutine of the server's event loop returns."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=PATIENCE, **options)

    def adopt(self, id: str, build: Callable[[], Model]) -> Model:
        """Serve a model that is made in the server's event loop."""

        async def add() -> Model:
            model = build()
            self.models.adopt(id, model)
            return model

        model: Model = self.call(add())
        return model

    def idle(self, id: str) -> bool:
        """Whether nothing is under way in a model, seen from the server and from the engine."""
        model, core = self.models.entries[id].model, self.engines[id].core
        return model is not None and model.active == 0 and not core.running and not core.waiting


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether a condition comes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


@contextmanager
def serving(
    engines: dict[str, Engine], config: Config | None = None, others: dict[str, Callable[[], Model]] | None = None
) -> Iterator[Live]:
    """A server with these engines, and other models that are made for it, as its models; it closes them in the end.

    All that it answers must be as its OpenAPI document says.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    folder = tempfile.mkdtemp(prefix="llamina-server-")
    started = threading.Event()
    found: dict[str, Any] = {}
    contracts: list[Contract] = []

    def contract(app: Any) -> Contract:
        contracts.append(Contract(app))
        return contracts[-1]

    async def main() -> None:
        settings = config or Config(data=folder)
        found["models"] = models = Models(settings)
        found["loop"] = asyncio.get_running_loop()
        for id, engine in engines.items():
            models.adopt(id, LocalModel(engine))
        for id, build in (others or {}).items():
            models.adopt(id, build())
        found["app"] = app = build_app(settings, models)
        settled = uvicorn.Config(contract(app), log_level="warning", timeout_graceful_shutdown=5)
        found["server"] = server = uvicorn.Server(settled)
        started.set()
        if settings.admin_port is None:
            await server.serve(sockets=[listener])
            return
        with patch.object(listening, "build_admin", lambda *given: contract(build_admin(*given))):
            async with listening.admin_listener(app, settings, server, lambda line: None):
                await server.serve(sockets=[listener])

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="test-server")
    thread.start()
    started.wait(PATIENCE)
    try:
        assert wait_for(lambda: found["server"].started), "the server does not start"
        port = listener.getsockname()[1]
        live = Live(f"http://127.0.0.1:{port}", found["models"], found["loop"], engines, found["app"])
        live.contracts = contracts
        yield live
    finally:
        found["server"].should_exit = True
        thread.join(PATIENCE)
        shutil.rmtree(folder)
    broken = [each for contract in contracts for each in contract.broken]
    assert not broken, "\n".join(broken[:10])


class Scripted(Model):
    """A model that says what it is told to, and remembers what it was asked; `senses` are `sees` and `hears`."""

    def __init__(self, chunks: list[Chunk], template: str = "{{ messages }} <think></think>", **senses: bool) -> None:
        self.chunks, self.asked = chunks, list[Generate | Call]()
        self.cancelled = 0
        self._loop = asyncio.get_running_loop()
        super().__init__(msgspec.structs.replace(_described(template), **senses), self)

    def send(self, frame: ToModel) -> None:
        if isinstance(frame, Cancel):
            self.cancelled += 1
            return
        self.asked.append(frame)
        if isinstance(frame, Generate):
            for chunk in self.chunks:
                self._loop.call_soon(self.receive, Chunks([msgspec.structs.replace(chunk, id=frame.id)]))

    async def close(self) -> None:
        """Nothing is left to end."""


def _described(template: str) -> ModelInfo:
    return ModelInfo(
        path="scripted.gguf",
        architecture="llama",
        name="scripted",
        context=4096,
        vocab=100,
        parameters=1,
        weight_bytes=1,
        causal=True,
        has_template=bool(template),
        template=template,
        pooling="last",
        fingerprint="0",
    )


def done(reason: str = "stop", tokens: int = 5, **fields: Any) -> Chunk:
    """A last chunk."""
    usage = Usage(7, tokens, 3, prompt_seconds=0.25, completion_seconds=0.5)
    return Chunk(0, finish_reason=reason, usage=usage, prompt_tokens=7, cached_tokens=3, **fields)


def said(**fields: Any) -> Chunk:
    """A chunk in the middle, of one token."""
    return Chunk(0, prompt_tokens=7, cached_tokens=3, tokens=[1], **fields)
