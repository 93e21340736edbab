"""Kernels compiled by several processes at once, for numba holds the GIL while it compiles."""

import os
import subprocess
import sys

MOST = 4  # processes; each takes a second to begin and a few hundred megabytes
HEAVY = {"attend": 6, "attend_latent": 6, "linear": 4, "experts": 5, "linear_attend": 3}  # against 1 for the others
PROGRAM = """
import sys
from llamina.backends.cpu.jit import library
for name in sys.argv[1:]:
    library().compile(name)
"""


def share_out(names: list[str], processes: int) -> list[list[str]]:
    """The names that each process compiles, so that all take about as long; processes without a name are left out."""
    shares: list[list[str]] = [[] for _ in range(processes)]
    loads = [0] * processes
    for name in sorted(names, key=_weight, reverse=True):
        lightest = loads.index(min(loads))
        shares[lightest].append(name)
        loads[lightest] += _weight(name)
    return [share for share in shares if share]


def _weight(name: str) -> int:
    return HEAVY.get(name.split(".")[0], 1)


def processes_for(names: list[str]) -> int:
    """As many as there are cores and enough to do for each."""
    usable = getattr(os, "sched_getaffinity", None)
    cores = len(usable(0)) if usable else os.cpu_count() or 1
    return max(1, min(cores, MOST, sum(map(_weight, names)) // 4)) if sys.executable else 1


def start(names: list[str]) -> "subprocess.Popen[bytes]":
    """A process that compiles kernels into the cache."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command, nowhere = [sys.executable, "-c", PROGRAM, *names], subprocess.DEVNULL
    return subprocess.Popen(command, env=environment, stdin=nowhere, stdout=nowhere, stderr=nowhere)
