"""A contestant in a process of its own: its memory is counted alone, and its environment is its own."""

import multiprocessing as mp
import os
import signal
from multiprocessing.connection import Connection
from typing import Any

from llamina.bench.contestant import Progress, Setup, enter
from llamina.bench.memory import peak_bytes
from llamina.bench.task import Task
from llamina.errors import CapacityError, LlaminaError


class Child:
    """Starts the process and waits until the model is loaded; between calls it sleeps."""

    def __init__(self, setup: Setup, progress: Progress) -> None:
        self.setup = setup
        self._progress = progress
        spawn = mp.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs, setup), daemon=True)
        self._process.start()
        theirs.close()
        self._baseline: int | None = self._answer()

    def seconds(self, task: Task, seed: int) -> float:
        """How long the task took."""
        return float(self._ask("seconds", task, seed))

    def memory(self) -> int | None:
        """The most bytes that were resident, less those of a Python that had loaded nothing."""
        if self.setup.engine == "llama_server":
            return None  # they are another process's
        peak = self._ask("memory")
        return peak - self._baseline if peak is not None and self._baseline is not None else None

    def close(self) -> None:
        self._pipe.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.terminate()

    def _ask(self, *question: Any) -> Any:
        self._pipe.send(question)
        return self._answer()

    def _answer(self) -> Any:
        try:
            while (message := self._pipe.recv())[0] == "progress":
                self._progress(*message[1])
        except EOFError:
            self._process.join(10)
            code = self._process.exitcode
            raise CapacityError(
                f"the process of {self.setup.engine} ended with {code}: is there memory enough?"
            ) from None
        if message[0] == "error":
            raise message[1]
        return message[1]


def _serve(pipe: Connection, setup: Setup) -> None:
    """The process: answers questions until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it decides when it ends
    os.environ["GGML_CPU_TILED_MM"] = str(int(setup.tiled))
    baseline = peak_bytes()
    try:
        contestant = enter(setup, lambda *step: pipe.send(("progress", step)))
        pipe.send(("answer", baseline))
        while question := pipe.recv():
            answer = peak_bytes() if question[0] == "memory" else contestant.seconds(*question[1:])
            pipe.send(("answer", answer))
    except EOFError:
        contestant.close()
    except LlaminaError as error:
        pipe.send(("error", error))
    except Exception as error:  # any other would not survive the pipe
        pipe.send(("error", LlaminaError(f"{setup.engine}: {type(error).__name__}: {error}")))
