"""The models that a server knows: loaded on demand, several at once, the least recently used unloaded for room."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from llamina.server.config import Config, ModelProfile
from llamina.server.errors import ApiError
from llamina.server.model import Model, WorkerModel
from llamina.server.model.frames import Loading

Status = Literal["unloaded", "loading", "ready", "failed"]


@dataclass(eq=False)
class Entry:
    """A model that can be asked for by its id."""

    id: str
    profile: ModelProfile
    created: int = field(default_factory=lambda: int(time.time()))
    status: Status = "unloaded"
    progress: Loading | None = None
    error: str = ""
    model: Model | None = None
    users: int = 0
    last_used: float = 0.0
    modelfile: Any = None  # what `/api/create` was told of it
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Models:
    """`use` gives a loaded model for as long as a request needs it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.entries = {id: Entry(id, profile) for id, profile in config.models.items()}
        self._room = asyncio.Lock()

    def add(self, id: str, profile: ModelProfile) -> Entry:
        """Make a model known. Raises ApiError if another has that id."""
        if id in self.entries:
            raise ApiError(409, f"there is a model {id!r} already: unload it, or choose another id", "conflict_error")
        self.entries[id] = Entry(id, profile)
        return self.entries[id]

    def adopt(self, id: str, model: Model) -> None:
        """Serve a model that is loaded already."""
        self.entries[id] = Entry(id, ModelProfile(model.info.path), status="ready", model=model)

    def find(self, name: str | None) -> Entry:
        """The model of an id or an alias; without a name, the only or the first one. Raises ApiError."""
        if not name:
            if not self.entries:
                raise ApiError(404, "no model is configured: start the server with one", "not_found_error")
            return next(iter(self.entries.values()))
        for entry in self.entries.values():
            if name == entry.id or name in entry.profile.aliases:
                return entry
        known = ", ".join(self.entries) or "none"
        message = f"there is no model {name!r}: known are {known}"
        raise ApiError(404, message, "not_found_error", param="model", code="model_not_found")

    @asynccontextmanager
    async def use(self, name: str | None) -> AsyncIterator[tuple[Entry, Model]]:
        """A model, loaded first if it must be; it is not unloaded meanwhile."""
        entry = self.find(name)
        entry.users += 1
        try:
            model = await self.load(entry)
            entry.last_used = time.monotonic()
            yield entry, model
        finally:
            entry.users -= 1
            entry.last_used = time.monotonic()

    async def load(self, entry: Entry) -> Model:
        """The entry's model, ready to be asked. Raises ModelError if it cannot be loaded."""
        async with entry.lock:
            if entry.model is not None:
                if isinstance(entry.model, WorkerModel):
                    await entry.model.wait_ready()
                return entry.model
            entry.status, entry.error = "loading", ""
            try:
                await self._make_room(entry)
                model = WorkerModel(entry.profile.model, entry.profile.load_options(), entry.profile.adapters)
                await model.start(lambda frame: setattr(entry, "progress", frame))
            except Exception as error:
                entry.status, entry.error = "failed", str(error)
                raise
            except BaseException:
                entry.status = "unloaded"
                raise
            entry.model, entry.status, entry.progress = model, "ready", None
            return model

    async def _make_room(self, wanted: Entry) -> None:
        """Unload what was used the longest ago, while as many are loaded as may be."""
        async with self._room:
            while len([e for e in self.entries.values() if e.model is not None]) >= self._config.max_models:
                idle = [e for e in self.entries.values() if e.model is not None and not e.users and e is not wanted]
                if not idle:
                    message = f"{self._config.max_models} models are loaded and in use: ask again later"
                    raise ApiError(503, message, "service_unavailable", headers={"Retry-After": "5"})
                await self.unload(min(idle, key=lambda e: e.last_used))

    async def unload(self, entry: Entry) -> None:
        """End the entry's process; all of its memory is free afterwards."""
        model, entry.model, entry.status = entry.model, None, "unloaded"
        if model is not None:
            await model.close()

    async def remove(self, entry: Entry) -> None:
        """Unload a model and forget it. Raises ApiError if a request uses it."""
        if entry.users:
            raise ApiError(409, f"{entry.users} requests use {entry.id!r}: ask again later", "conflict_error")
        del self.entries[entry.id]
        await self.unload(entry)

    async def close(self) -> None:
        await asyncio.gather(*(self.unload(entry) for entry in self.entries.values()))
