"""The models that a server knows: loaded on demand, several at once, the least recently used unloaded for room."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from llamina.server.config import Config, ModelProfile
from llamina.server.errors import ApiError
from llamina.server.memory import estimate, resident
from llamina.server.model import Model, ModelError, WorkerModel
from llamina.server.model.frames import Loading
from llamina.server.prompt_log import log_prompts
from llamina.server.record import current

Status = Literal["unloaded", "loading", "ready", "failed"]
LOOK_AGAIN = 0.1  # seconds until a model whose time is over is looked at: it may have something under way


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
    loading: asyncio.Task[None] | None = None
    reserved: int | None = None  # bytes that it may take while it is loaded
    timer: asyncio.TimerHandle | None = None  # that unloads it
    leaving: bool = False  # to be unloaded as soon as nobody uses it

    @property
    def busy(self) -> bool:
        """Whether somebody uses it. A stream may be under way between a handler's end and the begin of its answer."""
        return self.users > 0 or (self.model is not None and self.model.active > 0)

    @property
    def memory(self) -> int:
        """Bytes that it has, or is about to have."""
        return resident(self.model) if self.model is not None else self.reserved or 0

    @property
    def used_at(self) -> int | None:
        """When it was last asked for, in seconds since 1970; None: never."""
        return int(time.time() - (time.monotonic() - self.last_used)) if self.last_used else None

    @property
    def idle_seconds_left(self) -> float | None:
        """How long it stays loaded if nobody asks for it; None: for ever."""
        keeps = self.profile.keep_alive
        if keeps is None or keeps < 0:
            return None
        idle = time.monotonic() - self.last_used if self.last_used and not self.users else 0.0
        return max(keeps - idle, 0.0)


class Models:
    """`use` gives a loaded model for as long as a request needs it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.entries = {id: Entry(id, profile.over(config.defaults)) for id, profile in config.models.items()}
        self._room = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = ""

    def add(self, id: str, profile: ModelProfile) -> Entry:
        """Make a model known. Raises ApiError if another has that id."""
        if id in self.entries:
            raise ApiError(409, f"there is a model {id!r} already: unload it, or choose another id", "conflict_error")
        self.entries[id] = Entry(id, profile.over(self._config.defaults))
        return self.entries[id]

    def adopt(self, id: str, model: Model) -> None:
        """Serve a model that is loaded already."""
        self.entries[id] = Entry(id, ModelProfile(model=model.info.path), status="ready", model=self._watched(model))

    def _watched(self, model: Model) -> Model:
        """The model, whose prompts are logged if that is asked for."""
        if self._config.log_prompts:
            log_prompts(model)
        return model

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
        if (record := current()) is not None:
            record.model = entry.id
        entry.users += 1
        self._stop_timer(entry)
        try:
            model = await self.load(entry)
            entry.last_used = time.monotonic()
            yield entry, model
        finally:
            entry.users -= 1
            entry.last_used = time.monotonic()
            self._idle(entry)

    # ---- loading -----------------------------------------------------------------------------------------

    async def load(self, entry: Entry) -> Model:
        """The entry's model, ready to be asked; several may wait for it. Raises ModelError if it cannot be loaded."""
        if self._stopped:
            raise ApiError(503, self._stopped, "service_unavailable", code="shutting_down")
        if entry.model is None:
            if entry.loading is None or entry.loading.done():
                entry.loading = self._start(self._load(entry))
            await self._loaded(entry, entry.loading)
        model = entry.model
        assert model is not None
        if isinstance(model, WorkerModel):
            try:
                await model.wait_ready()
            except ModelError as error:  # it was given up: the next request begins anew
                if entry.model is model:
                    await self.unload(entry)
                    entry.status, entry.error = "failed", str(error)
                raise
        return model

    async def _loaded(self, entry: Entry, loading: asyncio.Task[None]) -> None:
        """Wait for a load that goes on without us. Raises ApiError if somebody ends it."""
        try:
            await asyncio.shield(loading)
        except asyncio.CancelledError:
            if not loading.cancelled():
                raise
            if self._stopped:
                raise ApiError(503, self._stopped, "service_unavailable", code="shutting_down") from None
            message = f"{entry.id} was unloaded before it was ready: ask again"
            raise ApiError(503, message, "service_unavailable", code="model_unloaded") from None

    async def _load(self, entry: Entry) -> None:
        entry.status, entry.error, entry.progress = "loading", "", None
        try:
            await self._make_room(entry)
            profile = entry.profile
            model = WorkerModel(profile.model, profile.load_options(), profile.adapters)
            await model.start(lambda frame: setattr(entry, "progress", frame))
            entry.model, entry.status = self._watched(model), "ready"
        except Exception as error:
            entry.status, entry.error = "failed", str(error)
            raise
        except BaseException:
            entry.status = "unloaded"
            raise
        finally:
            entry.progress = entry.reserved = None
        if not entry.users:
            self._idle(entry)  # whoever asked for it has left

    async def _make_room(self, wanted: Entry) -> None:
        """Unload what was used the longest ago, until there is room for one more. Raises ApiError if there is none."""
        most, budget = self._config.max_models, self._config.memory
        need = (await asyncio.to_thread(estimate, wanted.profile)).total if budget else 0
        if need > budget:
            message = f"{wanted.id} needs about {need} bytes and the server's budget of memory is {budget}"
            raise ApiError(503, f"{message}: give it a smaller context or max_sequences", "service_unavailable")
        async with self._room:
            while True:
                others = [e for e in self.entries.values() if e.model is not None or e.reserved is not None]
                if len(others) < most and (not budget or sum(e.memory for e in others) + need <= budget):
                    break
                idle = [e for e in others if e.model is not None and not e.busy]
                if not idle:
                    message = f"there is no room for {wanted.id}: {len(others)} models are loaded and in use"
                    raise ApiError(
                        503, f"{message}; ask again later", "service_unavailable", headers={"Retry-After": "5"}
                    )
                await self.unload(min(idle, key=lambda e: e.last_used))
            wanted.reserved = need

    # ---- unloading ---------------------------------------------------------------------------------------

    async def unload(self, entry: Entry) -> None:
        """End the entry's process, also one that is still loading; all of its memory is free afterwards."""
        self._stop_timer(entry)
        entry.leaving = False
        if entry.loading is not None and not entry.loading.done():
            entry.loading.cancel()
            await asyncio.wait({entry.loading})
        model, entry.model, entry.status = entry.model, None, "unloaded"
        if model is not None:
            await model.close()

    async def keep(self, entry: Entry, seconds: float) -> None:
        """Keep a model so long after its last request: 0 unloads it as soon as nobody uses it, infinity never."""
        if seconds == 0:
            entry.leaving = True
        else:
            kept = None if math.isinf(seconds) else seconds
            entry.profile = msgspec.structs.replace(entry.profile, keep_alive=kept)
        if entry.leaving and not entry.busy:
            await self.unload(entry)
        else:
            self._idle(entry)

    def _idle(self, entry: Entry) -> None:
        """If nobody uses a model: unload it, now or when its time is over."""
        self._stop_timer(entry)
        if entry.users or entry.model is None or self._stopped:
            return
        seconds = 0 if entry.leaving else entry.profile.keep_alive
        if seconds is not None and seconds >= 0:
            soonest = max(seconds, LOOK_AGAIN)  # a stream's answer uses the model again after its handler
            entry.timer = asyncio.get_running_loop().call_later(soonest, self._expire, entry)

    def _expire(self, entry: Entry) -> None:
        """A model's time is over: unload it, or look again if it has something under way."""
        if entry.busy:
            entry.timer = asyncio.get_running_loop().call_later(LOOK_AGAIN, self._expire, entry)
        else:
            entry.timer = None
            self._start(self.unload(entry))

    def _stop_timer(self, entry: Entry) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None

    async def remove(self, entry: Entry) -> None:
        """Unload a model and forget it. Raises ApiError if a request uses it."""
        if entry.busy:
            raise ApiError(409, f"requests use {entry.id!r}: ask again later", "conflict_error")
        del self.entries[entry.id]
        await self.unload(entry)

    # ---- the end -----------------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """End what is under way with an error, which clients are told, and begin nothing more."""
        self._stopped = reason
        for entry in self.entries.values():
            if entry.loading is not None:
                entry.loading.cancel()
            if entry.model is not None:
                entry.model.lose(reason, "ShuttingDown")

    async def close(self) -> None:
        self._stopped = self._stopped or "the server is shutting down"
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(self.unload(entry) for entry in self.entries.values()))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let work run beside the requests; its errors are for those who wait for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task
