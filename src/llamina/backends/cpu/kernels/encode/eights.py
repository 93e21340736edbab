"""Formats of 32 numbers to a block, eight blocks at a time, so that a lane is a block."""

from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.device import device, kernel, routine
from llamina.backends.cpu.kernels.encode.lanes import spread_32, sqrt_f32, sum_squares
from llamina.backends.cpu.kernels.vector.math import first
from llamina.backends.cpu.kernels.vector.memory import set_i8, stack_of, u8
from llamina.backends.cpu.kernels.vector.simd import load_f32, splat_f32, store_f32, zero_f32
from llamina.gguf.types import tensor_type

numbers, weights, found = stack_of(1024), stack_of(1024), stack_of(8 * 36)
padded, padded_importances = stack_of(1024), stack_of(1024)


@device
def pad(source, target, count):
    """`count` blocks of floats, and zeros behind them."""
    for i in range(0, 256, 8):
        store_f32(target + 4 * i, load_f32(source + 4 * i) if i < 32 * count else zero_f32())


@device
def weigh_by_row(x, w, mean):
    """Importances become weights: times the root of the number's square and the mean square of its row."""
    for i in range(32):
        v = load_f32(x + 32 * i)
        store_f32(w + 32 * i, load_f32(w + 32 * i) * sqrt_f32(splat_f32(mean) + v * v))


def eight_encoders(name: str, plain: Any, weighted: Any, weigh: Any = weigh_by_row) -> dict[str, Any]:
    """The kernels of a format: `plain(x, w, out)` and `weighted(x, w, out)` encode registers of eight blocks.

    A format that takes no importances has no kernel for them (`weighted` is None).
    """
    kernels = {f"encode_{name.lower()}": _encoder(name, plain, None)}
    if weighted is not None:
        kernels[f"encode_{name.lower()}.weighted"] = _encoder(name, weighted, weigh)
    return kernels


def _encoder(name: str, eight: Any, weigh: Any) -> Any:
    nbytes, weighted = tensor_type(name).nbytes, weigh is not None
    weigh = weigh or weigh_by_row

    def encode(x, w, mean, out, count):
        xt, wt, target = numbers(), weights(), found()
        source, factors = x, w
        if count < 8:
            source = padded()
            pad(x, source, count)
        spread_32(source, xt)
        if weighted:
            if count < 8:
                factors = padded_importances()
                pad(w, factors, count)
            spread_32(factors, wt)
            weigh(xt, wt, mean)
        eight(xt, wt, target)
        for i in range(nbytes * count):
            set_i8(out + i, u8(target + i))

    blocks = routine(encode)

    @kernel(writes=("out",))
    def run(thread, threads, x, w, out, rows, width):
        across = width // 32
        for row in range(first(rows, thread, threads), first(rows, thread + 1, threads)):
            source, target = x + 4 * width * row, out + nbytes * across * row
            mean = sum_squares(source, width) / np.float32(width) if weighted else np.float32(0)
            for b in range(0, across, 8):
                blocks(source + 128 * b, w + 128 * b, mean, target + nbytes * b, min(8, across - b))

    return run
