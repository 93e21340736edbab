"""Many threads, one core: one thread at a time makes the steps, the others wait for what these bring.

A thread that waits for something takes the turn if it is free and steps until it has what it waits for; then it passes
the turn on to another that waits. So a program with one thread has no second one. `serve` starts a thread that keeps
the turn: asyncio needs it.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from llamina.engine.core import Core
from llamina.engine.delta import Delta
from llamina.errors import LlaminaError

Result = TypeVar("Result")
Done = Callable[[], bool]


class Stepper:
    """Functions are called, and steps made, by whoever has the turn; nobody else may touch the core."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.after_step: list[Callable[[], None]] = []  # called after each step, by whoever made it
        self._turn = threading.Lock()
        self._owner: int | None = None  # the thread that has the turn
        self._jobs: SimpleQueue[Callable[[], object]] = SimpleQueue()  # may be put into by finalizers, unlike others
        self._waiters: list[tuple[Done, threading.Lock]] = []  # the lock is released to wake the thread
        self._thread: threading.Thread | None = None
        self._closed = False

    def call(self, function: Callable[..., Result], *args: Any) -> Result:
        """Call a function between two steps; returns what it returns, raises what it raises."""
        if self._owner == threading.get_ident():  # from a listener, which is called between two steps
            return function(*args)
        if self._take():
            try:
                return function(*args)
            finally:
                self._pass_on()
        future: Future[Result] = Future()
        self._jobs.put(lambda: _fulfil(future, function, *args))
        self.wait(future.done)
        return future.result()

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Have a function called before the next step, without waiting for it; a finalizer may do so."""
        self._jobs.put(lambda: function(*args))
        if self._take():
            self._pass_on()

    def step(self) -> list[Delta]:
        """Make one step; its deltas. Raises RequestError if the engine is closed."""
        self.core.runner.check_open()
        return self.call(self._advance)

    def wait(self, done: Done) -> None:
        """Return when `done()` is true, making steps meanwhile unless another thread does."""
        while not done():
            if self._take():
                try:
                    while not done():
                        self._advance()
                        if not self.core.busy and self._jobs.empty() and not done():
                            raise LlaminaError("nothing is being computed: what is waited for cannot come")
                finally:
                    self._pass_on()
            else:
                self._sleep(done)

    def _take(self) -> bool:
        """The turn, if it is free."""
        if self._turn.acquire(blocking=False):
            self._owner = threading.get_ident()
            return True
        return False

    def _advance(self) -> list[Delta]:
        """Do what others asked for, and make a step if there is work."""
        self._do_jobs()
        deltas = self.core.step() if self.core.busy else []
        for call in list(self.after_step):
            call()
        for done, wake in list(self._waiters):
            if done():
                _release(wake)
        return deltas

    def _do_jobs(self) -> None:
        with suppress(Empty):
            while True:
                self._jobs.get_nowait()()

    def _sleep(self, done: Done) -> None:
        """Until `done()`, or until the turn is passed on."""
        waiter = done, threading.Lock()
        waiter[1].acquire()
        self._waiters.append(waiter)
        try:
            # Looked at again after entering the list: whoever had the turn may have left before.
            if not done() and self._turn.locked():
                waiter[1].acquire()
        finally:
            self._waiters.remove(waiter)

    def _pass_on(self) -> None:
        """Give the turn up, and wake all who may take it or have what they wait for."""
        while True:
            self._do_jobs()
            self._owner = None
            self._turn.release()
            for _, wake in list(self._waiters):
                _release(wake)
            if self._jobs.empty() or not self._take():  # a job that came too late to be seen
                return

    # ---- a thread that keeps the turn --------------------------------------------------------------------

    def serve(self) -> None:
        """Let a thread of its own make all steps from now on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="llamina-engine", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        self._turn.acquire()
        self._owner = threading.get_ident()
        while not self._closed:
            if not self.core.busy:
                self._jobs.get()()
            try:
                self._advance()
            except Exception as error:  # a mistake of ours: whoever waits for an answer gets it
                for sequence in [*self.core.running, *self.core.waiting]:
                    self.core.fail(sequence, error)
        self._pass_on()

    def close(self) -> None:
        """End all sequences, the thread, and the core."""
        if self._closed:
            return
        self.call(self._close)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._jobs.put(lambda: None)  # in case it sleeps
            self._thread.join()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self.core.close()
            for call in list(self.after_step):
                call()


def _release(lock: threading.Lock) -> None:
    with suppress(RuntimeError):  # released already
        lock.release()


def _fulfil(future: "Future[Result]", function: Callable[..., Result], *args: Any) -> None:
    try:
        future.set_result(function(*args))
    except BaseException as error:
        future.set_exception(error)
