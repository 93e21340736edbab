"""Which llama.cpp is here, and with which of its flags it is fastest."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Literal

from llamina.bench.child import Child
from llamina.bench.contestant import Setup
from llamina.bench.machine import package_version
from llamina.bench.task import Kind, Task
from llamina.errors import RequestError

PEERS = ("llama.cpp", "llama-cpp-python", "xllamacpp")  # the first: whichever of the others is here
PROBE_TOKENS = 16

Module = Literal["llama_cpp", "xllamacpp"]
Start = Callable[[Setup], Child]


@dataclass(frozen=True, slots=True)
class Peer:
    """A package with llama.cpp in it."""

    module: Module
    package: str

    @property
    def version(self) -> str | None:
        return package_version(self.package)


KNOWN = (Peer("llama_cpp", "llama-cpp-python"), Peer("xllamacpp", "xllamacpp"))


def find_peer(name: str) -> Peer:
    """The first package that can be imported and is meant."""
    meant = [peer for peer in KNOWN if name in (PEERS[0], peer.package)]
    if not meant:
        raise RequestError(f"{name!r} is not one of {', '.join(PEERS)}", "against")
    for peer in meant:
        if find_spec(peer.module):
            return peer
    packages = " or ".join(f"pip install {peer.package}" for peer in meant)
    raise RequestError(f"there is no {name} here to measure against: {packages}", "against")


def variants(setup: Setup) -> Iterator[Setup]:
    """The flags that change its matrix products: none of them is the faster everywhere."""
    for repack in (True, False):
        for tiled in (True, False):
            yield replace(setup, repack=repack, tiled=tiled)


def best_variants(setup: Setup, tasks: list[Task], start: Start) -> dict[Kind, Setup]:
    """The fastest flags for prompts and for generation, from one run of each."""
    probes = _probes(tasks)
    found: dict[Kind, tuple[float, Setup]] = {}
    for variant in variants(setup):
        child = start(variant)
        for kind, probe in probes.items():
            child.seconds(probe, 0)  # the first run warms up
            seconds = child.seconds(probe, 1)
            if kind not in found or seconds < found[kind][0]:
                found[kind] = seconds, variant
        child.close()
    return {kind: variant for kind, (_, variant) in found.items()}


def _probes(tasks: list[Task]) -> dict[Kind, Task]:
    """The first task of each kind, on an empty cache; a generation is cut short."""
    first: dict[Kind, Task] = {}
    for task in tasks:
        tokens = task.tokens if task.kind == "prompt" else min(task.tokens, PROBE_TOKENS)
        first.setdefault(task.kind, replace(task, tokens=tokens, depth=0))
    return first
