"""Rows of the embedding table, decoded straight from the file's blocks."""

from typing import Any

from numba.core import types

from llamina.backends.cpu.kernels.device import kernel
from llamina.backends.cpu.kernels.formats.dequantize import DEQUANTIZE
from llamina.backends.cpu.kernels.vector.loads import (
    WIDE,
    bf16_loader,
    f16_loader,
    i8_loader,
    load_wide,
    store_wide,
    wide,
)
from llamina.backends.cpu.kernels.vector.math import first
from llamina.backends.cpu.kernels.vector.memory import bf16, f16, f32, i32, i64, set_f32, stack_of
from llamina.backends.cpu.kernels.vector.simd import splat_of

values, scales, mins = stack_of(256), stack_of(64), stack_of(64)
load_i8, splat = i8_loader(wide), splat_of(wide, types.float32)


def block_table(dequantize: Any, block: int, nbytes: int) -> Any:
    @kernel(writes=("out",))
    def run(thread, threads, count, each, ids, w, out, out_row, width):
        q, s, m = values(), scales(), mins()
        for row in range(first(i64(count) * each, thread, threads), first(i64(count) * each, thread + 1, threads)):
            source = w + i32(ids + 4 * row) * (width // block) * nbytes
            target = out + row * out_row
            for b in range(width // block):
                dequantize(source + b * nbytes, q, s, m)
                for i in range(0, block, WIDE):
                    run16 = 4 * (i // 16)
                    value = splat(f32(s + run16)) * load_i8(q + i) - splat(f32(m + run16))
                    store_wide(target + 4 * (b * block + i), value)

    return run


def plain_table(load: Any, read: Any, size: int) -> Any:
    """Numbers of `size` bytes: `load` reads a register of them, `read` one."""

    @kernel(writes=("out",))
    def run(thread, threads, count, each, ids, w, out, out_row, width):
        for row in range(first(i64(count) * each, thread, threads), first(i64(count) * each, thread + 1, threads)):
            source, target = w + i32(ids + 4 * row) * width * size, out + row * out_row
            whole = width & -WIDE
            for i in range(0, whole, WIDE):
                store_wide(target + 4 * i, load(source + i * size))
            for i in range(whole, width):
                set_f32(target + 4 * i, read(source + i * size))

    return run


def _blocks() -> dict[str, tuple[int, int]]:
    from llamina.gguf.types import TENSOR_TYPES

    return {t.name: (t.block, t.nbytes) for t in TENSOR_TYPES.values()}


KERNELS = {f"embed.{name}": block_table(dequantize, *_blocks()[name]) for name, dequantize in DEQUANTIZE.items()}
KERNELS |= {
    "embed.F32": plain_table(load_wide, f32, 4),
    "embed.F16": plain_table(f16_loader(wide), f16, 2),
    "embed.BF16": plain_table(bf16_loader(wide), bf16, 2),
}
