"""Tokens as matrix registers want them: groups of 16, four bytes of each side by side.

bytes [k/4, 16, 4] | of q256: sums [k/256, 16, 16, 4] | float32[k/256, 16] scales
                   | of q32: float32[k/32, 2, 16] scales, and scales times sums
"""

import numpy as np

from llamina.backends.cpu.kernels.amx.registers import transpose
from llamina.backends.cpu.kernels.device import device, routine
from llamina.backends.cpu.kernels.vector.memory import f32, i32, i64, set_f32


@device
def item_at(order, i, items):
    """The i-th item, past the end the last: of a list, or simply in order."""
    n = min(i, items - 1)
    return i32(order + 4 * n) if order else n


@routine
def gather_256(items, k, group):
    """The q256 vectors at 16 addresses, by fours of bytes."""
    for i in range(0, k, 64):
        transpose(items, i, group + 16 * i)
    sums, scales = group + 16 * k, group + 20 * k
    for b in range(k // 256):
        transpose(items, k + k // 64 + 32 * b, sums + 1024 * b)
        for t in range(16):
            set_f32(scales + 64 * b + 4 * t, f32(i64(items + 8 * t) + k + 4 * b))


@routine
def gather_32(items, k, group):
    """The q32 vectors at 16 addresses, by fours of bytes; what is read past the end meets nothing."""
    for i in range(0, k, 64):
        transpose(items, i, group + 16 * i)
    scales = group + 16 * ((k + 63) & ~63)
    for b in range(k // 32):
        for t in range(16):
            item = i64(items + 8 * t)
            scale, sums = f32(item + k + 4 * b), item + k + k // 8 + 8 * b
            set_f32(scales + 128 * b + 4 * t, scale)
            set_f32(scales + 128 * b + 64 + 4 * t, scale * np.float32(i32(sums) + i32(sums + 4)))
