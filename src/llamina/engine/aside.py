"""Readings from threads that are not the engine's: computed in the same steps as everything else."""

from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np

from llamina.engine.pooling import Array
from llamina.engine.readings import Readings
from llamina.engine.request import Event, Request
from llamina.engine.worker import Worker
from llamina.errors import RequestError
from llamina.tokenizer import Tokenizer


class Aside(Readings):
    """The engine of a worker, for one reading from another thread, which waits for it."""

    def __init__(self, worker: Worker) -> None:
        """Everything is the engine's own; only how it gets to its answers differs."""
        self.__dict__ |= worker.engine.__dict__
        self._worker = worker
        self._requests: Sequence[Request] = ()

    @property
    def tokenizer(self) -> Tokenizer:  # type: ignore[override]
        """Made once, for all."""
        return self._worker.engine.tokenizer

    def _read(self, requests: Sequence[Request]) -> list[Array]:
        self._requests = requests
        done: dict[Request, Future[None]] = {request: Future() for request in requests}

        def tell(event: Event) -> None:
            if event.finish_reason is not None:
                done[event.request].set_result(None)

        for request in requests:
            request.on_event = tell
        try:
            for submitted in [self._worker.call(self._worker.engine.submit, request) for request in requests]:
                submitted.result()
            for end in done.values():
                end.result()
        except BaseException:
            self.drop()
            raise
        for request in requests:
            if request.finish_reason != "stop":
                raise request.error or RequestError(f"the reading was {request.finish_reason}: ask again")
        return [np.concatenate(request.rows) for request in requests]

    def drop(self) -> None:
        """Nothing more is computed for it."""
        for request in self._requests if not self._worker.closed else ():
            self._worker.call(self._worker.engine.cancel, request)
