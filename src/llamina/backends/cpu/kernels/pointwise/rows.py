"""Functions along rows of float32, in the widest registers; the last one may be filled in part."""

from typing import Any

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.vector.loads import (
    WIDE,
    load_wide,
    load_wide_part,
    store_wide,
    store_wide_part,
    wide,
)
from llamina.backends.cpu.kernels.vector.simd import fill_of

load_whole, store_whole = device(lambda at, n: load_wide(at)), device(lambda at, x, n: store_wide(at, x))
REGISTERS = (load_whole, store_whole), (load_wide_part, store_wide_part)
"""(address, n) and (address, register, n) of a whole register, whatever n is, and of its first n lanes."""


def along(function: Any) -> Any:
    """(source, target, n, c): target ← function(source, c), of n numbers."""

    @device
    def run(source, target, n, c):
        whole = n & -WIDE
        for i in range(0, 4 * whole, 4 * WIDE):
            store_wide(target + i, function(load_wide(source + i), c))
        if whole < n:
            i, left = 4 * whole, n - whole
            store_wide_part(target + i, function(load_wide_part(source + i, left), c), left)

    return run


def along_two(function: Any) -> Any:
    """(x, y, target, n): target ← function(x, y), of n numbers."""

    @device
    def run(x, y, target, n):
        whole = n & -WIDE
        for i in range(0, 4 * whole, 4 * WIDE):
            store_wide(target + i, function(load_wide(x + i), load_wide(y + i)))
        if whole < n:
            i, left = 4 * whole, n - whole
            value = function(load_wide_part(x + i, left), load_wide_part(y + i, left))
            store_wide_part(target + i, value, left)

    return run


@device
def same(x, c):
    return x


@device
def add(x, y):
    return x + y


copied, add_row, nothing = along(same), along_two(add), fill_of(wide, 0.0)


@device
def copy_row(source, target, n):
    copied(source, target, n, nothing())
