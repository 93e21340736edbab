"""A whole model measured: rates, memory, and what they are of what the machine can do."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llamina.backends import KvType
from llamina.bench.child import Child
from llamina.bench.contestant import Progress, Setup
from llamina.bench.machine import header
from llamina.bench.memory import read_bandwidth
from llamina.bench.peer import Peer, best_at_depth, best_variants
from llamina.bench.race import Runner, Timing, race
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


def measure_model(
    path: Path, options: Options, command: str, tick: Callable[[str], None], progress: Progress
) -> dict[str, Any]:
    """The record of one run. `tick` hears what is under way, `progress` of kernels that are compiled."""
    beginning, file = header("model", command), open_model(path)
    setup = _setup(file, path, options)
    plan = record(build(file.metadata, weights_of(file)).forward)
    tick("reading memory")
    bandwidth = read_bandwidth(options.threads)
    session = _Session(options, tick, progress)
    try:
        timings = race(options.tasks, session.enter(setup), options.repeats, tick)
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
    """Tasks on an empty cache are one runner's, those at a depth another's."""

    shallow: Runner
    deep: Runner

    def seconds(self, task: Task, seed: int) -> float:
        return (self.deep if task.depth else self.shallow).seconds(task, seed)


class _Session:
    """The processes of one measurement."""

    def __init__(self, options: Options, tick: Callable[[str], None], progress: Progress) -> None:
        self._options, self._tick, self._progress = options, tick, progress
        self._children: dict[Setup, Child] = {}
        self._best: dict[Kind, Setup] = {}
        self._deep: dict[Kind, Setup] = {}

    def enter(self, setup: Setup) -> dict[str, dict[Kind, Runner]]:
        """Who runs which kind of task: llamina, and the peer with its best flags for each."""
        kinds = dict.fromkeys(task.kind for task in self._options.tasks)
        self._tick(f"{OURS} loads the model")
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
        self._tick(f"{THEIRS} tries {setup.flags}")
        return Child(setup, self._progress)

    def memory(self) -> dict[str, int | None]:
        """Of the peer the variant that needs less."""
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


def _setup(file: GGUF, path: Path, options: Options) -> Setup:
    if not options.tasks:
        raise RequestError("there is nothing to measure: give -p or -n more than 0 tokens", "p")
    sequences = max(task.batch for task in options.tasks)
    if sequences > MAX_SEQUENCES:
        raise RequestError(f"a batch of {sequences} is more than the {MAX_SEQUENCES} that a step can hold", "b")
    context = max(task.reach for task in options.tasks)
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        raise RequestError(f"{path.name} has no vocabulary, so there are no tokens to measure with", "model")
    return Setup("llamina", str(path), options.threads, options.kv_type, sequences, context, len(tokens))


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
    """llamina's results with `ratio`: its rate to the peer's, where there is one."""
    theirs = {r["name"]: r["rate"] for r in results if r["engine"] == THEIRS}
    known = [r for r in results if r["engine"] == OURS and r["name"] in theirs]
    for result in known:
        result["ratio"] = result["rate"] / theirs[result["name"]]
    return results
