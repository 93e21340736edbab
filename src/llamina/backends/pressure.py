"""How scarce the machine's memory is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from llamina.backends import host

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
    limits = [limit for files in host.CGROUPS if (limit := _cgroup_limit(files[0])) is not None]
    total = min([int(psutil.virtual_memory().total), *limits])
    return MemoryPressure(total, host.available_bytes(), _stalled())


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
