"""Finds an installed llama.cpp, and the flags with which it is fastest."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Literal

from llamina.bench.child import Child
from llamina.bench.contestant import Setup
from llamina.bench.llama_server import PROGRAM
from llamina.bench.llama_server import version as server_version
from llamina.bench.machine import package_version
from llamina.bench.task import Kind, Task
from llamina.errors import RequestError

PEERS = ("llama.cpp", "llama-cpp-python", "xllamacpp", "llama-server")  # the first: whichever of the others is here
PROBE_TOKENS = 16

Module = Literal["llama_cpp", "xllamacpp", "llama_server"]
Start = Callable[[Setup], Child]


@dataclass(frozen=True, slots=True)
class Peer:
    """A package with llama.cpp in it, or llama.cpp's server."""

    module: Module
    package: str

    @property
    def version(self) -> str | None:
        return server_version() if self.module == "llama_server" else package_version(self.package)

    @property
    def here(self) -> bool:
        return bool(shutil.which(PROGRAM) if self.module == "llama_server" else find_spec(self.module))

    @property
    def remedy(self) -> str:
        return f"put {PROGRAM} on the PATH" if self.module == "llama_server" else f"pip install {self.package}"


KNOWN = (Peer("llama_cpp", "llama-cpp-python"), Peer("xllamacpp", "xllamacpp"), Peer("llama_server", PROGRAM))


def find_peer(name: str, *, serving: bool = False) -> Peer:
    """The first installed peer that `name` stands for; with `serving`, servers come first.

    Raises RequestError if none is installed.
    """
    meant = [peer for peer in (reversed(KNOWN) if serving else KNOWN) if name in (PEERS[0], peer.package)]
    if not meant:
        raise RequestError(f"{name!r} is not one of {', '.join(PEERS)}", "against")
    for peer in meant:
        if peer.here:
            return peer
    remedies = " or ".join(peer.remedy for peer in meant)
    raise RequestError(f"{name} is not installed: {remedies}", "against")


def variants(setup: Setup) -> Iterator[Setup]:
    """All settings of the flags that change llama.cpp's matrix products; none of them is fastest everywhere."""
    for repack in (True, False):
        for tiled in (True, False):
            yield replace(setup, repack=repack, tiled=tiled)


def best_variants(setup: Setup, tasks: list[Task], start: Start) -> dict[Kind, Setup]:
    """The fastest flags for each kind of task, from one run each."""
    probes = _probes(tasks)
    found: dict[Kind, tuple[float, Setup]] = {}
    for variant in variants(setup):
        with closing(start(variant)) as child:
            for kind, probe in probes.items():
                child.seconds(probe, 0)  # the first run warms up
                seconds = child.seconds(probe, 1)
                if kind not in found or seconds < found[kind][0]:
                    found[kind] = seconds, variant
    return {kind: variant for kind, (_, variant) in found.items()}


def best_at_depth(best: dict[Kind, Setup], tasks: list[Task], start: Start) -> dict[Kind, Setup]:
    """For kinds of tasks that have a depth: these flags with flash attention or without, whichever is faster there."""
    found: dict[Kind, Setup] = {}
    for kind, setup in best.items():
        task = max((task for task in tasks if task.kind == kind), key=lambda task: task.depth)
        if task.depth and setup.engine == "llama_cpp":  # the others have no such flag here
            probe = task if kind == "prompt" else replace(task, tokens=min(task.tokens, PROBE_TOKENS))
            found[kind] = min((setup, replace(setup, flash=False)), key=lambda variant: _once(start(variant), probe))
    return found


def _once(child: Child, task: Task) -> float:
    with closing(child):
        return child.seconds(task, 0)


def _probes(tasks: list[Task]) -> dict[Kind, Task]:
    """The first task of each kind, on an empty KV cache; a generation is cut short."""
    first: dict[Kind, Task] = {}
    for task in tasks:
        tokens = task.tokens if task.kind == "prompt" else min(task.tokens, PROBE_TOKENS)
        first.setdefault(task.kind, replace(task, tokens=tokens, depth=0))
    return first
