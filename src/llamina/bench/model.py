"""Measures a model: rates, peak memory, and the share of the machine's memory bandwidth."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llamina.backends import KvType
from llamina.bench.child import Child
from llamina.bench.contestant import Progress, Setup
from llamina.bench.interleave import Runner, Timing, race
from llamina.bench.machine import header
from llamina.bench.memory import read_bandwidth
from llamina.bench.peer import Peer, best_at_depth, best_variants
from llamina.bench.task import Kind, Task
from llamina.bench.traffic import multiplications, weight_bytes
from llamina.engine.runner.load import weights_of
from llamina.errors import RequestError
from llamina.gguf import GGUF, open_model
from llamina.models import build
from llamina.plan import Plan, record

OURS, THEIRS = "llamina", "llama.cpp"
MAX_SEQUENCES = 512  # that a step can advance


@dataclass(frozen=True, slots=True)
class Options:
    """What to measure and how often."""

    tasks: list[Task]
    threads: int
    repeats: int = 5
    kv_type: KvType = "f16"
    peer: Peer | None = None
    warmups: int = 1  # runs before those that count
    gpu: bool = False


def measure_model(
    path: Path, options: Options, command: str, tick: Callable[[str], None], progress: Progress
) -> dict[str, Any]:
    """The record of one measurement. `tick` is told what is being done, `progress` which kernels are compiled.

    Raises RequestError if there is nothing to measure, and what loading the model raises.
    """
    beginning, file = header("model", command), open_model(path)
    setup = setup_of(file, path, options)
    plan = record(build(file.metadata, weights_of(file)).forward)
    tick("measuring memory bandwidth")
    bandwidth = read_bandwidth(options.threads)
    session = _Session(options, tick, progress)
    try:
        timings = race(options.tasks, session.enter(setup), options.repeats, tick, options.warmups)
        memory = session.memory()
    finally:
        session.close()
    return {
        **beginning,
        "file": {"path": str(path), "name": path.name, "bytes": _bytes(file)},
        "settings": {"threads": options.threads, "kv_type": options.kv_type, "repeats": options.repeats},
        "read_bandwidth": bandwidth,
        "weight_bytes_per_token": weight_bytes(plan),
        "memory": memory,
        "peer": session.peer_record(),
        "results": _with_ratios([_result(timing, plan, bandwidth) for timing in timings]),
    }


@dataclass(frozen=True, slots=True)
class _ByDepth:
    """Runs tasks on an empty KV cache with one runner, those at a depth with another."""

    shallow: Runner
    deep: Runner

    def seconds(self, task: Task, seed: int) -> float:
        return (self.deep if task.depth else self.shallow).seconds(task, seed)


class _Session:
    """The processes of a measurement."""

    def __init__(self, options: Options, tick: Callable[[str], None], progress: Progress) -> None:
        self._options, self._tick, self._progress = options, tick, progress
        self._children: dict[Setup, Child] = {}
        self._best: dict[Kind, Setup] = {}
        self._deep: dict[Kind, Setup] = {}

    def enter(self, setup: Setup) -> dict[str, dict[Kind, Runner]]:
        """The runner of each kind of task: llamina's, and the peer's with the flags that are fastest for it."""
        kinds = dict.fromkeys(task.kind for task in self._options.tasks)
        self._tick(f"loading the model into {OURS}")
        entrants: dict[str, dict[Kind, Runner]] = {OURS: dict.fromkeys(kinds, self._start(setup))}
        if peer := self._options.peer:
            self._best = best_variants(replace(setup, engine=peer.module), self._options.tasks, self._probe)
            self._deep = best_at_depth(self._best, self._options.tasks, self._probe)
            entrants[THEIRS] = {
                kind: _ByDepth(self._start(self._best[kind]), self._start(self._deep.get(kind, self._best[kind])))
                for kind in kinds
            }
        return entrants

    def _start(self, setup: Setup) -> Child:
        if setup not in self._children:
            self._children[setup] = Child(setup, self._progress)
        return self._children[setup]

    def _probe(self, setup: Setup) -> Child:
        self._tick(f"trying {THEIRS} with {setup.flags}")
        return Child(setup, self._progress)

    def memory(self) -> dict[str, int | None]:
        """Peak bytes by engine; of the peer's variants, the least."""
        found: dict[str, int | None] = {}
        for setup, child in self._children.items():
            name, nbytes = OURS if setup.engine == "llamina" else THEIRS, child.memory()
            found[name] = min(filter(None, (nbytes, found.get(name))), default=None)
        return found

    def peer_record(self) -> dict[str, Any] | None:
        peer = self._options.peer
        flags: dict[str, str] = {kind: setup.flags for kind, setup in self._best.items()}
        flags |= {f"{kind} at depth": setup.flags for kind, setup in self._deep.items()}
        return {"package": peer.package, "version": peer.version, "flags": flags} if peer else None

    def close(self) -> None:
        for child in self._children.values():
            child.close()


def setup_of(file: GGUF, path: Path, options: Options) -> Setup:
    """llamina with room for all tasks. Raises RequestError if there is nothing to measure, or nothing to do it with."""
    if not options.tasks:
        raise RequestError("there is nothing to measure: -p or -n must be more than 0", "p")
    sequences = max(task.batch for task in options.tasks)
    if sequences > MAX_SEQUENCES:
        raise RequestError(f"-b {sequences} is more than the {MAX_SEQUENCES} sequences that a step can hold", "b")
    context = max(task.reach for task in options.tasks)
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        raise RequestError(
            f"{path.name} has no vocabulary, so there are no tokens to measure with: give another model", "model"
        )
    room = sequences, context, len(tokens)
    return Setup("llamina", str(path), options.threads, options.kv_type, *room, gpu=options.gpu)


def _bytes(file: GGUF) -> int:
    return sum(tensor.nbytes for tensor in file.tensors.values())


def _result(timing: Timing, plan: Plan, bandwidth: float) -> dict[str, Any]:
    task = timing.task
    result: dict[str, Any] = {
        "name": task.name,
        "engine": timing.engine,
        "rate": timing.rate,
        "unit": "tokens/s",
        "spread": timing.spread,
        "kind": task.kind,
        "tokens": task.tokens,
        "batch": task.batch,
        "depth": task.depth,
        "seconds": list(timing.runs),
    }
    if task.kind == "prompt":
        macs = multiplications(plan, task.tokens)
        return {**result, "first_token_seconds": timing.seconds, "macs_per_second": macs / timing.seconds}
    if task.kind == "answer":
        return {**result, "prompt": task.prompt}
    reached = weight_bytes(plan, task.batch) * task.tokens / timing.seconds
    return {**result, "bytes_per_second": reached, "bandwidth_share": reached / bandwidth}


def _with_ratios(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results, those of llamina with the `ratio` of its rate to the peer's if there is one."""
    theirs = {r["name"]: r["rate"] for r in results if r["engine"] == THEIRS}
    known = [r for r in results if r["engine"] == OURS and r["name"] in theirs]
    for result in known:
        result["ratio"] = result["rate"] / theirs[result["name"]]
    return results
