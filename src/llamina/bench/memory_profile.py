"""Memory over time: what the process has resident and how many KV cache pages are in use, sampled during a run."""

import gc
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from llamina.backends import state_bytes
from llamina.bench.contestant import Progress
from llamina.bench.latency import Waiting, open_engine, submit
from llamina.bench.machine import header
from llamina.engine import Engine
from llamina.errors import CapacityError


class Recorder:
    """Samples, taken by a thread as long as it is open, after every step, and at every change of phase."""

    def __init__(self, interval: float) -> None:
        self.samples: list[dict[str, Any]] = []
        self.engine: Engine | None = None
        self._interval, self._phase = interval, "start"
        self._begun, self._process = time.perf_counter(), psutil.Process()
        self._lock, self._end = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._sample_on, daemon=True)

    def __enter__(self) -> Self:
        self.sample()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        self.sample()

    def phase(self, name: str) -> None:
        """What is done from now on."""
        self.sample()
        with self._lock:
            self._phase = name
        self.sample()

    def sample(self) -> None:
        with self._lock:
            engine, used, kept, running = self.engine, 0, 0, 0
            if engine is not None:
                pages = engine.core.pages
                used, kept, running = pages.total - pages.free, pages.kept, len(engine.core.running)
            self.samples.append(
                {
                    "seconds": time.perf_counter() - self._begun,
                    "phase": self._phase,
                    "resident": self._process.memory_info().rss,
                    "pages_used": used,
                    "pages_kept": kept,
                    "sequences": running,
                }
            )

    def _sample_on(self) -> None:
        while not self._end.wait(self._interval):
            self.sample()


def measure_memory(
    path: Path, asked: Waiting, interval: float, command: str, tick: Callable[[str], None], progress: Progress
) -> dict[str, Any]:
    """The record of one run: samples, a result for each phase, and who has how much memory by count.

    Phases: `start`, `load`, `prompt`, `generate`, `idle` (answers are done, their pages kept), `close`.
    """
    beginning, sequences = header("memory", command), max(asked.at_a_time)
    with Recorder(interval) as recorder:
        page, counted = _run(path, asked, recorder, tick, progress)
        gc.collect()
    samples = [{**sample, "kv_bytes": page * sample["pages_used"]} for sample in recorder.samples]
    settings = {"requests": sequences, "interval": interval}
    settings |= {name: getattr(asked, name) for name in ("prompt", "tokens", "threads", "kv_type")}
    return {
        **beginning,
        "file": {"path": str(path), "name": path.name},
        "settings": settings,
        "counted": {**counted, "page": page},
        "results": [_result(name, samples) for name in dict.fromkeys(sample["phase"] for sample in samples)],
        "samples": samples,
    }


def _run(
    path: Path, asked: Waiting, recorder: Recorder, tick: Callable[[str], None], progress: Progress
) -> tuple[int, dict[str, int]]:
    """Load the model, answer all requests at a time, and close it; bytes of a page, and memory by count before."""
    recorder.phase("load")
    tick("loading the model")
    with open_engine(path, max(asked.at_a_time), asked, progress) as engine:
        recorder.engine = engine
        _answer(engine, asked, recorder, tick)
        recorder.phase("idle")
        counted, page = asdict(engine.memory()), state_bytes(engine.runner.plan, asked.kv_type)["page"]
        recorder.engine = None  # nobody may hold it when memory is looked at again
        recorder.phase("close")
    return page, counted


def _answer(engine: Engine, asked: Waiting, recorder: Recorder, tick: Callable[[str], None]) -> None:
    """All requests at a time, whose prefixes are kept when they are done."""
    recorder.phase("prompt")
    tick("prompts")
    running = submit(engine, asked, max(asked.at_a_time), 0, kept=True)
    prompts = True
    while not all(sequence.done for sequence in running):
        if not engine.step():
            raise CapacityError("the engine has no room for the next step: measure fewer requests or tokens")
        recorder.sample()
        if prompts and all(sequence.generated for sequence in running):
            prompts = False
            recorder.phase("generate")
            tick("generating")


def _result(phase: str, samples: list[dict[str, Any]]) -> dict[str, Any]:
    """The most and the last of a phase."""
    own = [sample for sample in samples if sample["phase"] == phase]
    most = {f"most_{name}": max(s[name] for s in own) for name in ("resident", "pages_used", "pages_kept", "kv_bytes")}
    return {"name": phase, "seconds": own[-1]["seconds"] - own[0]["seconds"], "samples": len(own), **most} | {
        "last_resident": own[-1]["resident"]
    }
