"""A model in this process, for tests and notebooks: the same frames, without a socket."""

import asyncio
from contextlib import suppress

from llamina.engine import Engine
from llamina.server.model.client import Model
from llamina.server.model.describe import describe
from llamina.server.model.frames import FromModel, ToModel
from llamina.server.model.service import Service


class LocalModel(Model):
    """An engine that tasks of the running event loop share."""

    def __init__(self, engine: Engine) -> None:
        self._loop = asyncio.get_running_loop()
        self._service = Service(engine, self._post)
        super().__init__(describe(engine), self)

    def send(self, frame: ToModel) -> None:
        self._service.handle(frame)

    def _post(self, frame: FromModel) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self.receive, frame)

    async def close(self) -> None:
        """End the engine."""
        await asyncio.to_thread(self._service.close)
        self.lose("the model was unloaded")
