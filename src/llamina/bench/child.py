"""A contestant in a process of its own, with its own memory and environment."""

import multiprocessing as mp
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from llamina.bench.contestant import Progress, Setup, enter
from llamina.bench.memory import peak_bytes
from llamina.bench.task import Task
from llamina.errors import CapacityError, LlaminaError

GRACE = 5.0  # seconds for a process to end when it is told to


class Child:
    """A process that loads a model when it is made, and runs one task at a time.

    Raises what the contestant raises, and CapacityError if the process ends.
    """

    def __init__(self, setup: Setup, progress: Progress) -> None:
        self.setup = setup
        self._progress = progress
        spawn = mp.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs, setup), daemon=True)
        try:
            with _deaf_to_interrupts(), instruction_set(setup.isa):
                self._process.start()
            theirs.close()
            self._baseline: int | None = self._answer()
        except BaseException:
            self.close()
            raise

    def seconds(self, task: Task, seed: int) -> float:
        """Seconds that the task took."""
        return float(self._ask("seconds", task, seed))

    def memory(self) -> int | None:
        """Peak resident bytes beyond those of the process before it loaded the model; None if unknown."""
        if self.setup.engine == "llama_server":
            return None  # the memory is another process's
        peak = self._ask("memory")
        return peak - self._baseline if peak is not None and self._baseline is not None else None

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._pipe.close()
        if self._process.pid is None:  # it was not started
            return
        self._process.terminate()
        self._process.join(GRACE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _ask(self, *question: Any) -> Any:
        self._pipe.send(question)
        return self._answer()

    def _answer(self) -> Any:
        try:
            while (message := self._pipe.recv())[0] == "progress":
                self._progress(*message[1])
        except EOFError:
            self._process.join(GRACE)
            code = self._process.exitcode
            raise CapacityError(
                f"the process of {self.setup.engine} ended with code {code}: is there enough memory?"
            ) from None
        if message[0] == "error":
            raise message[1]
        return message[1]


@contextmanager
def instruction_set(name: str | None) -> Iterator[None]:
    """Processes started in the block have kernels for this instruction set: it is read when a process begins."""
    before = os.environ.get("LLAMINA_ISA")
    if name is not None:
        os.environ["LLAMINA_ISA"] = name
    try:
        yield
    finally:
        if name is not None:
            os.environ.pop("LLAMINA_ISA")
            if before is not None:
                os.environ["LLAMINA_ISA"] = before


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started in the block never get SIGINT, which a terminal sends to all: the parent ends them.

    The signal is blocked, and a process inherits that. One that comes meanwhile is raised after the block: another
    thread may get it, and Python would interrupt this one.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows: the child ignores it once it runs
        yield
        return
    from multiprocessing import resource_tracker

    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        resource_tracker.ensure_running()  # else it is started in the block, and unblocks the signal
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    finally:
        signal.signal(signal.SIGINT, handler)
    if came:
        signal.raise_signal(signal.SIGINT)


def _serve(pipe: Connection, setup: Setup) -> None:
    """The process: answers questions until the other end closes or SIGTERM comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if setup.engine == "llama_server":  # it starts a process, which must not outlive it
        signal.signal(signal.SIGTERM, _leave)
    os.environ["GGML_CPU_TILED_MM"] = str(int(setup.tiled))
    with ExitStack() as stack, suppress(EOFError, BrokenPipeError):  # nobody listens any more
        try:
            _converse(pipe, setup, stack)
        except (EOFError, BrokenPipeError):
            raise
        except LlaminaError as error:
            pipe.send(("error", error))
        except Exception as error:  # any other might not survive the pipe
            pipe.send(("error", LlaminaError(f"{setup.engine}: {type(error).__name__}: {error}")))
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending


def _converse(pipe: Connection, setup: Setup, stack: ExitStack) -> None:
    """Load the model, to be closed by the stack, and answer questions."""
    baseline = peak_bytes()
    contestant = stack.enter_context(closing(enter(setup, lambda *step: pipe.send(("progress", step)))))
    pipe.send(("answer", baseline))
    while question := pipe.recv():
        answer = peak_bytes() if question[0] == "memory" else contestant.seconds(*question[1:])
        pipe.send(("answer", answer))


def _leave(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)
