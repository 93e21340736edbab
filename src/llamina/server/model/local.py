"""A model in this process, for tests and notebooks: the same frames, packed and unpacked, without a socket."""

import asyncio
from contextlib import suppress

from llamina.engine import Engine
from llamina.server.model.client import Model, packed
from llamina.server.model.describe import describe
from llamina.server.model.frames import FromModel, Ready, ToModel, decode_from_model, decode_to_model, encode
from llamina.server.model.service import Service


class LocalModel(Model):
    """An engine that tasks of the running event loop share. What a worker would not understand fails here, too."""

    def __init__(self, engine: Engine) -> None:
        self._loop = asyncio.get_running_loop()
        self._service = Service(engine, self._post)
        ready = decode_from_model(encode(Ready(describe(engine))))
        assert isinstance(ready, Ready)
        super().__init__(ready.info, self)

    def send(self, frame: ToModel) -> None:
        self._service.handle(decode_to_model(packed(frame)))

    def _post(self, frame: FromModel) -> None:
        received = decode_from_model(encode(frame))
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self.receive, received)

    async def close(self) -> None:
        """End the engine."""
        await asyncio.to_thread(self._service.close)
        self.lose("the model was unloaded")
