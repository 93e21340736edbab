"""Huge pages for a mapped file: weights are read anew for every token, and 4 KB pages cost a page walk for each 4 KB.

Transparent huge pages are for memory without a file, so the data is copied into such memory, which then takes the
file's place at the same addresses. Views of it stay valid, and others who map the file notice nothing.
"""

import ctypes
import mmap
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np

from llamina.gguf.types import Bytes

Progress = Callable[[str, int, int], None]
PAGE = 2 << 20
PIECE = 32 << 20  # bytes that a thread copies at a time
PATIENCE = 0.5  # seconds
ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_MREMAP_MAYMOVE, _MREMAP_FIXED, _MREMAP_DONTUNMAP = 1, 2, 4
_moved: WeakSet[mmap.mmap] = WeakSet()


def supported() -> bool:
    """Whether the system gives huge pages to those who ask for them."""
    try:
        return sys.platform == "linux" and "[never]" not in ENABLED.read_text()
    except OSError:  # a kernel without them
        return False


def move(mapping: mmap.mmap, threads: int, progress: Progress | None = None) -> int:
    """Put a mapping's data into huge pages; returns their bytes, 0 if the system cannot or it was done before.

    Other threads may read the mapping meanwhile: the copy takes its place at once. `progress(what, done, total)` is
    called if it takes longer than PATIENCE, as it does if the file is still to be read; it counts in MiB.
    """
    view = np.frombuffer(mapping, np.uint8)
    start = -view.ctypes.data % PAGE
    nbytes = (len(view) - start) // PAGE * PAGE
    if not supported() or nbytes <= 0 or mapping in _moved:
        return 0
    source = view[start : start + nbytes]
    try:
        room = mmap.mmap(-1, nbytes + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        room.madvise(mmap.MADV_HUGEPAGE)
    except OSError:  # a limit of this process
        return 0
    with room:
        address = _fill(room, source, threads, progress)
        done = _replace(source.ctypes.data, address, nbytes)
    if done:
        _moved.add(mapping)
    return nbytes if done else 0


def _fill(room: mmap.mmap, source: Bytes, threads: int, progress: Progress | None) -> int:
    """Copy to the first huge page of a room, and the following; returns its address."""
    copy = np.frombuffer(room, np.uint8)
    copy = copy[-copy.ctypes.data % PAGE :][: len(source)]

    def fill(at: int) -> None:
        copy[at : at + PIECE] = source[at : at + PIECE]

    begun, told, total = time.monotonic(), False, len(source) >> 20
    with ThreadPoolExecutor(threads) as pool:
        for number, _ in enumerate(pool.map(fill, range(0, len(source), PIECE))):
            if progress and time.monotonic() - begun > PATIENCE:
                progress("reading weights", number * PIECE >> 20, total)
                told = True
    if progress and told:
        progress("", total, total)
    return int(copy.ctypes.data)


def _replace(address: int, by: int, nbytes: int) -> bool:
    """Move the pages at `by` to `address`, in place of those there; whether the kernel (Linux 5.7) could."""
    mremap: Any = ctypes.CDLL(None, use_errno=True).mremap
    mremap.restype = ctypes.c_void_p
    mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    # DONTUNMAP: the addresses at `by` stay taken until their owner gives them back
    flags = _MREMAP_MAYMOVE | _MREMAP_FIXED | _MREMAP_DONTUNMAP
    return bool(mremap(by, nbytes, nbytes, flags, address) == address)
