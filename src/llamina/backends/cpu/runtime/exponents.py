"""What blocks of float weights are worth as words (`kernels/formats/halves`): a byte for each 32 elements.

A table is made once for a tensor, whichever programs multiply with it.
"""

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from llamina.ops import Weight

if TYPE_CHECKING:
    from llamina.backends.cpu.jit import Library, Progress

PATIENCE = 0.5  # seconds
Function = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)
_tables: "WeakValueDictionary[tuple[int, int, str], ExponentTable]" = WeakValueDictionary()


class ExponentTable:
    """`array` is empty until it is filled. It keeps the weights, whose address it is known by."""

    def __init__(self, w: Weight) -> None:
        rows, width = w.shape
        self.weight, self.filled = w, False
        self.array = np.empty((-(-rows // 8), width // 32, 8), np.uint8)

    @classmethod
    def of(cls, w: Weight) -> "ExponentTable":
        """The table of a tensor."""
        key = w.data.ctypes.data, w.data.nbytes, w.format.name
        table = _tables.get(key)
        if table is None or table.weight.shape != w.shape:
            table = _tables[key] = cls(w)
        return table

    @property
    def kernel(self) -> str:
        return f"exponents.{self.weight.format.name}"

    def fill(self, kernels: "Library", pool: ThreadPoolExecutor, threads: int) -> None:
        (rows, width), data, kernel = self.weight.shape, self.weight.data, kernels[self.kernel]
        places = {
            "w": data.ctypes.data,
            "w_row": data.nbytes // rows,
            "rows": rows,
            "k": width,
            "out": self.array.ctypes.data,
        }
        arguments = np.array([places[name] for name in kernel.params], np.int64)
        run = Function(kernel.address)
        list(pool.map(lambda part: run(arguments.ctypes.data, part, threads, 0), range(threads)))
        self.filled = True


def fill(tables: list[ExponentTable], kernels: "Library", threads: int, progress: "Progress | None") -> None:
    """Find what all blocks are worth, unless that was done.

    `progress(what, done, total)` is called if it takes longer than PATIENCE: if the file is still to be read.
    """
    empty = [table for table in tables if not table.filled]
    begun, told = time.monotonic(), False
    with ThreadPoolExecutor(threads) as pool:
        for number, table in enumerate(empty):
            if progress and time.monotonic() - begun > PATIENCE:
                progress("reading float weights", number, len(empty))
                told = True
            table.fill(kernels, pool, threads)
    if progress and told:
        progress("", len(empty), len(empty))
