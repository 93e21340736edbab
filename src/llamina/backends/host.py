"""The machine that this process runs on: how much memory and how many cores it may use."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

CGROUPS = [  # limit, use, statistics: of versions 2 and 1
    tuple(Path("/sys/fs/cgroup", name) for name in ("memory.max", "memory.current", "memory.stat")),
    tuple(
        Path("/sys/fs/cgroup/memory", name)
        for name in ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
    ),
]


def available_bytes() -> int:
    """Memory that can be had without swapping, also in a container."""
    free = int(psutil.virtual_memory().available)
    limits = [left for files in CGROUPS if (left := _cgroup_left(*files)) is not None]
    return min([free, *limits])


def _cgroup_left(limit: Path, used: Path, statistics: Path) -> int | None:
    """What a container may still use; None if there is no limit."""
    try:
        lines = dict(line.split(maxsplit=1) for line in statistics.read_text().splitlines())
        taken = int(used.read_text()) - int(lines.get("total_inactive_file", lines.get("inactive_file", 0)))
        return max(0, int(limit.read_text()) - taken)
    except (OSError, ValueError):  # "max": no limit
        return None


HIGH, LOW = 0.90, 0.75  # shares of memory in use from which pressure is high, and below which it is low
STALLS = Path("/proc/pressure/memory")


@dataclass(frozen=True, slots=True)
class MemoryPressure:
    """How scarce memory is, also in a container."""

    total: int  # bytes that there are for this process, in use or not
    available: int  # bytes that can be had without swapping
    stalled: float | None  # share of the last 10 s in which something waited for memory; None: the system does not tell

    @property
    def used(self) -> float:
        """The share that is in use, from 0 to 1."""
        return 1 - min(self.available, self.total) / self.total

    @property
    def level(self) -> Literal["low", "medium", "high"]:
        """`high` from 90 % in use on, `low` below 75 %."""
        return "high" if self.used >= HIGH else "low" if self.used < LOW else "medium"


def memory_pressure() -> MemoryPressure:
    """How much memory is in use now, and whether programs wait for it."""
    limits = [limit for files in CGROUPS if (limit := _cgroup_limit(files[0])) is not None]
    total = min([int(psutil.virtual_memory().total), *limits])
    return MemoryPressure(total, available_bytes(), _stalled())


def _cgroup_limit(limit: Path) -> int | None:
    """What a container may use; None if there is no limit."""
    try:
        return max(1, int(limit.read_text()))
    except (OSError, ValueError):  # "max": no limit
        return None


def _stalled() -> float | None:
    """Linux' pressure stall information: the share of time in which at least one task waited for memory."""
    try:
        fields = dict(part.split("=") for part in STALLS.read_text().splitlines()[0].split()[1:])
        return float(fields["avg10"]) / 100
    except (OSError, ValueError, KeyError, IndexError):
        return None


def usable_cores() -> int:
    """The cores that this process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1
