"""Instruction sets side by side, each in a process of its own: which one is used is decided when a process begins."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from llamina.backends.survey import ISAS, usable_isas
from llamina.bench.child import Child
from llamina.bench.contestant import Progress
from llamina.bench.interleave import Timing, race
from llamina.bench.kernels import Sizes
from llamina.bench.machine import header
from llamina.bench.model import OURS, Options, setup_of
from llamina.errors import CapacityError, RequestError
from llamina.gguf import open_model


def check_isas(isas: Sequence[str]) -> None:
    """Raise RequestError for an instruction set that is unknown, that this CPU lacks, or that is given twice."""
    able = usable_isas()
    for isa in isas:
        if isa not in ISAS:
            raise RequestError(f"isa is {isa!r}: must be one of {', '.join(ISAS)}", "isa")
        if isa not in able:
            raise RequestError(f"isa is {isa!r}, which this CPU lacks: it has {', '.join(able)}", "isa")
    if len(set(isas)) < len(isas):
        raise RequestError(f"isa is {','.join(isas)}: give each once", "isa")


def measure_isas(
    path: Path,
    isas: Sequence[str],
    options: Options,
    command: str,
    tick: Callable[[str], None],
    progress: Progress,
) -> dict[str, Any]:
    """The record of a model's rates with each instruction set, run by run in turns."""
    check_isas(isas)
    beginning, setup = header("isa", command), setup_of(open_model(path), path, options)
    kinds = dict.fromkeys(task.kind for task in options.tasks)
    with ExitStack() as stack:
        children = {}
        for isa in isas:
            tick(f"loading the model with {isa}")
            children[isa] = stack.enter_context(closing(Child(replace(setup, isa=isa), progress)))
        entrants = {isa: dict.fromkeys(kinds, child) for isa, child in children.items()}
        timings = race(options.tasks, entrants, options.repeats, tick, options.warmups)
    settings = {"threads": options.threads, "kv_type": options.kv_type, "repeats": options.repeats, "isas": list(isas)}
    file = {"path": str(path), "name": path.name}
    return {**beginning, "file": file, "settings": settings, "results": with_isa_ratios([_result(t) for t in timings])}


def _result(timing: Timing) -> dict[str, Any]:
    return {
        "name": f"{timing.task.name} {timing.engine}",
        "engine": OURS,
        "rate": timing.rate,
        "unit": "tokens/s",
        "isa": timing.engine,
        "test": timing.task.name,
        "spread": timing.spread,
        "seconds": list(timing.runs),
    }


def measure_kernel_isas(
    formats: Sequence[str],
    threads: Sequence[int],
    sizes: Sizes,
    isas: Sequence[str],
    command: str,
    tick: Callable[[str], None],
) -> dict[str, Any]:
    """The record of `bench kernels` with each instruction set, one after the other."""
    check_isas(isas)
    beginning, records = header("kernel isa", command), {}
    for isa in isas:
        tick(f"kernels with {isa}")
        records[isa] = _kernels(formats, threads, sizes, isa)
    found = [
        {**result, "name": f"{result['name']} {isa}", "isa": isa, "test": result["name"]}
        for isa, record in records.items()
        for result in record["results"]
    ]
    settings = {**records[isas[0]]["settings"], "isas": list(isas)}
    return {**beginning, "settings": settings, "results": with_isa_ratios(found)}


def _kernels(formats: Sequence[str], threads: Sequence[int], sizes: Sizes, isa: str) -> dict[str, Any]:
    """The record of a process. Raises CapacityError if it fails; it has said why."""
    arguments = ["bench", "kernels", "--json", "-r", str(sizes.repeats), "-p", str(sizes.tokens)]
    arguments += ["--size", str(sizes.nbytes / 1e6), "-t", ",".join(map(str, threads))]
    arguments += [part for name in formats for part in ("--format", name)]
    run = subprocess.run(
        [sys.executable, "-m", "llamina", *arguments], stdout=subprocess.PIPE, env={**os.environ, "LLAMINA_ISA": isa}
    )
    if run.returncode:
        raise CapacityError(
            f"the kernels of {isa} could not be measured: `llamina bench kernels` ended with {run.returncode}"
        )
    record: dict[str, Any] = json.loads(run.stdout)
    return record


def with_isa_ratios(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results, each with the `ratio` of its rate to that of the first instruction set in the same test."""
    first: dict[str, float] = {}
    for result in results:
        result["ratio"] = result["rate"] / first.setdefault(result["test"], result["rate"])
    return results
