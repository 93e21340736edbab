"""The machine that this process runs on: how much memory and how many cores it may use."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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


def usable_cores() -> int:
    """The cores that this process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


@contextmanager
def giving_way() -> Iterator[None]:
    """Within it, this thread and those it starts interrupt nobody when they wake up (SCHED_BATCH, on Linux).

    For threads with little to do beside those that compute: one of them that is interrupted keeps all others waiting.
    A process that was given another scheduling policy keeps that.
    """
    give_way(True)
    try:
        yield
    finally:
        give_way(False)


def give_way(yes: bool) -> None:
    """See `giving_way`. A system without such a policy, or that forbids it, is left as it is."""
    if sys.platform == "linux":
        now, wanted = (os.SCHED_OTHER, os.SCHED_BATCH) if yes else (os.SCHED_BATCH, os.SCHED_OTHER)
        with suppress(OSError):
            if os.sched_getscheduler(0) == now:
                os.sched_setscheduler(0, wanted, os.sched_param(0))


def trim_memory() -> None:
    """Give memory that was freed back to the system: glibc keeps it, in a heap for each thread."""
    if sys.platform == "linux":
        with suppress(AttributeError):  # a libc without it
            ctypes.CDLL(None).malloc_trim(0)
