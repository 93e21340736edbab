"""Tokens per joule: tasks repeated for some seconds, between two looks at the machine's energy counters."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from llamina.bench.contestant import Contestant, Progress, enter
from llamina.bench.energy import Meter
from llamina.bench.machine import header
from llamina.bench.model import Options, setup_of
from llamina.bench.task import Task
from llamina.gguf import open_model


def measure_efficiency(
    path: Path,
    options: Options,
    meters: Sequence[Meter],
    seconds: float,
    command: str,
    tick: Callable[[str], None],
    progress: Progress,
) -> dict[str, Any]:
    """The record of a measurement. Each task runs for `seconds` at least; before, nothing runs for as long.

    Raises RequestError if there is nothing to measure, and what loading the model raises.
    """
    beginning, file = header("energy", command), open_model(path)
    setup = setup_of(file, path, options)
    with closing(enter(setup, progress)) as engine:
        tick("measuring the power of the idle machine")
        idle = _idle(meters, seconds)
        results = []
        for task in options.tasks:
            tick(task.name)
            results.append(_result(task, engine, meters, seconds, idle))
    return {
        **beginning,
        "file": {"path": str(path), "name": path.name},
        "settings": {
            "backend": "cuda" if options.gpu else "cpu",
            "threads": options.threads,
            "kv_type": options.kv_type,
            "seconds": seconds,
        },
        "meters": [meter.name for meter in meters],
        "idle_watts": idle,
        "results": results,
    }


def _read(meters: Sequence[Meter]) -> dict[str, float]:
    return {meter.name: meter.joules() for meter in meters}


def _idle(meters: Sequence[Meter], seconds: float) -> float:
    before, start = sum(_read(meters).values()), time.perf_counter()
    time.sleep(seconds)
    return (sum(_read(meters).values()) - before) / (time.perf_counter() - start)


def _result(task: Task, engine: Contestant, meters: Sequence[Meter], least: float, idle: float) -> dict[str, Any]:
    engine.seconds(replace(task, tokens=min(task.tokens, 2)) if task.kind == "generate" else task, 0)  # warms up
    runs, before, start = 0, _read(meters), time.perf_counter()
    while (seconds := time.perf_counter() - start) < least or not runs:
        runs += 1
        engine.seconds(task, runs)
    joules = {name: value - before[name] for name, value in _read(meters).items()}
    total = sum(joules.values())
    own = total - idle * seconds  # beyond what the idle machine would have used
    tokens = runs * task.work
    return {
        "name": task.name,
        "engine": "llamina",
        "rate": tokens / seconds,
        "unit": "tokens/s",
        "seconds": seconds,
        "runs": runs,
        "tokens": tokens,
        "joules": joules,
        "watts": total / seconds,
        "tokens_per_joule": tokens / total if total > 0 else None,
        "tokens_per_own_joule": tokens / own if own > 0 else None,
    }
