"""Measures serving: batches of requests, and the scenarios of scenarios.py."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llamina.bench.contestant import Progress, measured_backend
from llamina.bench.model import Options, measure_model
from llamina.bench.scenarios import scenarios
from llamina.bench.task import Task
from llamina.engine import load

ROOM = 4096  # tokens of context: the text to copy is longest in a vocabulary of single characters


@dataclass(frozen=True, slots=True)
class Load:
    """How many requests, and how long."""

    requests: int = 16
    prompt: int = 32  # tokens of each
    tokens: int = 128  # that each generates
    prefix: int = 2000  # tokens that a second turn shares with the first

    @property
    def tasks(self) -> list[Task]:
        """All requests at a time, for which llama.cpp's flags are chosen, and one alone."""
        one = Task("answer", self.tokens, prompt=self.prompt)
        return [replace(one, batch=self.requests), one]


def measure_serving(
    path: Path, asked: Load, options: Options, command: str, tick: Callable[[str], None], progress: Progress
) -> dict[str, Any]:
    """The record of one measurement. The peer serves the requests; the scenarios are llamina's alone."""
    record = measure_model(path, replace(options, tasks=asked.tasks), command, tick, progress)
    alone = {r["engine"]: r["rate"] for r in record["results"] if r["batch"] == 1}
    for result in record["results"]:
        result["speedup"] = result["rate"] / alone[result["engine"]]  # over one request after the other
    room = max(ROOM, asked.prefix + ROOM // 2)
    with load(
        path,
        backend=measured_backend(),
        threads=options.threads,
        context=room,
        max_sequences=2,
        kv_type=options.kv_type,
        progress=progress,
    ) as engine:
        record["results"] += scenarios(engine, asked.prefix, asked.tokens, options.repeats, tick)
    settings = {**record["settings"], "requests": asked.requests, "prefix": asked.prefix}
    return {**record, "kind": "serving", "settings": settings}
