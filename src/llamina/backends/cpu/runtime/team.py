"""A resident team of threads that walks tables of native steps; the GIL is released while it walks."""

import ctypes
import sys
import threading
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends.cpu.jit import Library
from llamina.backends.cpu.runtime.cores import pinning, places, stay

LINE = 8  # int64 words in a 64-byte cache line
PLANS, RUN, STOP, YIELD, LINES, PARKED = (LINE * i for i in range(6))
Table = npt.NDArray[np.int64]
Function = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)


class Team:
    """`threads` threads, the caller's own among them, which alone is never pinned. One walk at a time."""

    def __init__(self, library: Library, threads: int, most_groups: int) -> None:
        self.threads = threads
        self._walked: dict[int, Table] = {}
        self._context = _lines(PARKED // LINE + threads + most_groups)
        self._context[LINES] = self._context.ctypes.data + 8 * (PARKED + LINE * threads)
        self._slot = np.array([self._context.ctypes.data], np.int64)
        self._argument = self._slot.ctypes.data
        self._context[YIELD] = _yield_address()
        library.prepare(["walk", "post", "serve"])
        self._walk, self._post, serve = (Function(library[name].address) for name in ("walk", "post", "serve"))
        self._parked = [threading.Semaphore(0) for _ in range(threads)]
        cores = places() if pinning() else []
        for thread in range(1, threads):
            # The workers hold the native pieces but not the team, so that a forgotten team can end them.
            keep = self._context, self._slot, self._walked
            place = cores[thread % len(cores)] if cores else None
            args = (place, serve, self._argument, thread, threads, self._parked[thread], keep)
            threading.Thread(target=_work, args=args, name=f"llamina-{thread}", daemon=True).start()
        self._end = weakref.finalize(
            self, _stop, self._post, self._argument, threads, self._parked, (self._context, self._slot)
        )

    def run(self, groups: Table) -> None:
        """Walk groups of chains, rows of (address of the first chain, number of chains), to their end."""
        address = groups.ctypes.data
        self._walked[address] = groups  # a thread that comes late may still look at it
        slot = PLANS + 2 * (int(self._context[RUN]) + 1 & 1)
        self._context[slot : slot + 2] = address, len(groups)
        self._wake(self._post(self._argument, 0, self.threads, 0))
        self._walk(self._argument, 0, self.threads, 0)

    def _wake(self, parked: int) -> None:
        for thread in range(1, self.threads):
            if parked >> thread & 1:
                self._parked[thread].release()

    def close(self) -> None:
        """End the threads; running afterwards is an error."""
        self._end()


def _lines(count: int) -> Table:
    """Zeroed cache lines, aligned."""
    raw = np.zeros(LINE * (count + 1), np.int64)
    skip = -raw.ctypes.data % 64 // 8
    return raw[skip : skip + LINE * count]


def _work(place: int | None, serve: Any, argument: int, thread: int, threads: int, parked: Any, keep: Any) -> None:
    if place is not None:
        stay(place)
    while serve(argument, thread, threads, thread) == 0:
        parked.acquire()


def _stop(post: Any, argument: int, threads: int, parked: list[Any], keep: Any) -> None:
    keep[0][STOP] = 1
    bits = post(argument, 0, threads, 0)
    for thread in range(1, threads):
        if bits >> thread & 1:
            parked[thread].release()


def _yield_address() -> int:
    """The platform's function that gives the rest of a time slice away."""
    if sys.platform == "win32":
        function: Any = ctypes.windll.kernel32.SwitchToThread
    else:
        function = ctypes.CDLL(None).sched_yield
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)
