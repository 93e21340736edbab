"""A thread that owns an engine: it steps while there is work, and does between steps what others ask of it."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from llamina.engine.beam import Search
from llamina.engine.engine import Engine
from llamina.engine.result import Completion
from llamina.errors import RequestError

Result = TypeVar("Result")


class Worker:
    """Kernels run without the GIL, so that other threads, and their event loops, go on while a step is computed."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._searches: dict[Future[Completion], Search] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="llamina-engine", daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., Result], *args: Any) -> "Future[Result]":
        """Let the thread call a function between two steps."""
        if self._closing:
            raise RequestError("the engine is closed: load the model again")
        future: Future[Result] = Future()
        self._jobs.put(lambda: _fulfil(future, function, *args))
        return future

    def search(self, begin: Callable[[], Search]) -> "Future[Completion]":
        """Let the thread begin a search and poll it after each step; it ends early if the future is cancelled."""
        future: Future[Completion] = Future()

        def start() -> None:
            try:
                self._searches[future] = begin()
            except Exception as error:
                _fulfil(future, _fail, error)

        self.call(start)
        return future

    @property
    def closed(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Cancel all requests, and end the thread and the engine."""
        if not self._closing:
            self.call(self.engine.close)
            self._closing = True
            self._jobs.put(lambda: None)  # in case it sleeps
            self._thread.join()

    def _run(self) -> None:
        while not self._closing or not self._jobs.empty():
            self._do_jobs()
            if self.engine.running or self.engine.waiting:
                self._step()
            for future, search in [*self._searches.items()]:
                self._poll(future, search)

    def _do_jobs(self) -> None:
        """All that were asked for; with nothing else to do, wait for one."""
        try:
            self._jobs.get(block=not (self.engine.running or self.engine.waiting))()
            while True:
                self._jobs.get_nowait()()
        except Empty:
            pass

    def _step(self) -> None:
        try:
            self.engine.step()
        except Exception as error:  # whoever waits for an answer gets this one
            for request in [*self.engine.running, *self.engine.waiting]:
                self.engine.fail(request, error)

    def _poll(self, future: "Future[Completion]", search: Search) -> None:
        try:
            if not future.cancelled():
                if (found := search.poll()) is None:
                    return
                _fulfil(future, lambda: found)
        except Exception as error:
            _fulfil(future, _fail, error)
        search.close()
        del self._searches[future]


def _fail(error: Exception) -> Completion:
    raise error


def _fulfil(future: "Future[Result]", function: Callable[..., Result], *args: Any) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)
