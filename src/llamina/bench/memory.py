"""Peak resident memory of this process, and the memory bandwidth of this machine."""

import threading
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

READ_BYTES = 256 << 20  # far beyond any cache
PASSES = 8


def peak_bytes() -> int | None:
    """Peak resident memory since the process began; None where the system does not tell."""
    try:
        # Not getrusage: its peak begins with that of the process that started this one.
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
    except (OSError, StopIteration):
        return _usage_bytes()


def _usage_bytes() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def read_bandwidth(threads: int, nbytes: int = READ_BYTES) -> float:
    """Bytes per second that `threads` threads read from memory, at best of several passes."""
    block = np.ones(nbytes, np.uint8)  # ones: untouched zeros would all be the same page
    parts = np.array_split(block, threads)
    return max(nbytes / _pass(parts) for _ in range(PASSES))


def _pass(parts: list[npt.NDArray[np.uint8]]) -> float:
    readers = [threading.Thread(target=part.max) for part in parts[1:]]
    start = time.perf_counter()
    for reader in readers:
        reader.start()
    parts[0].max()
    for reader in readers:
        reader.join()
    return time.perf_counter() - start
