"""Rows of the embedding table, decoded straight from the file's blocks."""

from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.device import kernel
from llamina.backends.cpu.kernels.formats.dequantize import DEQUANTIZE
from llamina.backends.cpu.kernels.vector.math import first
from llamina.backends.cpu.kernels.vector.memory import bf16, f16, f32, i8, i32, i64, set_f32, stack_of

values, scales, mins = stack_of(256), stack_of(64), stack_of(64)


def block_table(dequantize: Any, block: int, nbytes: int) -> Any:
    @kernel(writes=("out",))
    def run(thread, threads, count, each, ids, w, out, out_row, width):
        q, s, m = values(), scales(), mins()
        for row in range(first(i64(count) * each, thread, threads), first(i64(count) * each, thread + 1, threads)):
            source = w + i32(ids + 4 * row) * (width // block) * nbytes
            target = out + row * out_row
            for b in range(width // block):
                dequantize(source + b * nbytes, q, s, m)
                for i in range(block):
                    run16 = 4 * (i // 16)
                    value = f32(s + run16) * np.float32(i8(q + i)) - f32(m + run16)
                    set_f32(target + 4 * (b * block + i), value)

    return run


def plain_table(read: Any, size: int) -> Any:
    @kernel(writes=("out",))
    def run(thread, threads, count, each, ids, w, out, out_row, width):
        for row in range(first(i64(count) * each, thread, threads), first(i64(count) * each, thread + 1, threads)):
            source, target = w + i32(ids + 4 * row) * width * size, out + row * out_row
            for i in range(width):
                set_f32(target + 4 * i, read(source + i * size))

    return run


def _blocks() -> dict[str, tuple[int, int]]:
    from llamina.gguf.types import TENSOR_TYPES

    return {t.name: (t.block, t.nbytes) for t in TENSOR_TYPES.values()}


KERNELS = {f"embed.{name}": block_table(dequantize, *_blocks()[name]) for name, dequantize in DEQUANTIZE.items()}
KERNELS |= {
    "embed.F32": plain_table(f32, 4),
    "embed.F16": plain_table(f16, 2),
    "embed.BF16": plain_table(bf16, 2),
}
