"""GEMM of float weights: rows are unpacked once into tiles of float32, and every token is multiplied with these.

The arithmetic is that of gemv/: eight sums along a row, by fused multiply-adds in order, which are added at the end in
the same order; then, one by one, the elements past the last whole eight. Hence the same bits.

    tile    float32 [steps, 8 rows, 8]             eight rows; a panel is eight tiles
    group   float32 [steps, TOKENS, 8]             the tokens that meet a tile at a time
    sums    float32 [TOKENS, 8 rows, 8]            of a tile and a group

A step is eight elements. Sums stay in registers along a part of the rows: a register of 512 bits has those of two rows,
and a token's eight elements twice. A group's part stays in the first-level cache while the tiles of a panel, which
stay in the second, pass by.
"""

from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.features import HAS_AVX512
from llamina.backends.cpu.kernels.device import device, routine
from llamina.backends.cpu.kernels.gemm.gemm import item_at
from llamina.backends.cpu.kernels.gemv.blocks import rows_after
from llamina.backends.cpu.kernels.vector.memory import bf16, f16, f32, pointer, prefetch, set_f32
from llamina.backends.cpu.kernels.vector.simd import (
    F32,
    I32,
    I64,
    fma,
    intrinsic_call,
    load_bf16,
    load_f16,
    load_f32,
    op,
    row_sums_f32,
    splat_f32,
    store_f32,
    store_f32_part,
    zero_f32,
)
from llamina.backends.cpu.tiling import FLOAT_TOKENS, PART

ROWS, PANEL = 8, 64  # of a tile, and of a panel
AT_ONCE = 2 if HAS_AVX512 else 1  # rows of a register
REGISTERS = 4  # of weights that are multiplied together
TOKENS = 6 if HAS_AVX512 else 3  # with so many tokens, so that all sums stay in registers
ROW_STEP, STEP, SUMS = 32 * ROWS, 32 * TOKENS, 32 * ROWS * TOKENS  # bytes of a tile's and a group's step, and of sums
WIDE = ir.VectorType(F32, 8 * AT_ONCE)


def _multiply(b: Any, tile: Any, group: Any, steps: Any, sums: Any) -> None:
    """Some rows of a tile times a group, onto their sums; at least one step."""
    start, loop, done = b.block, b.append_basic_block("step"), b.append_basic_block("done")
    at = [[b.add(sums, I64(ROW_STEP * t + 32 * AT_ONCE * j)) for t in range(TOKENS)] for j in range(REGISTERS)]
    before = [[_load(b, address, WIDE) for address in row] for row in at]
    b.branch(loop)
    b.position_at_end(loop)
    step, totals = b.phi(I64), [[b.phi(WIDE) for _ in range(TOKENS)] for _ in range(REGISTERS)]
    step.add_incoming(I64(0), start)
    here, there = b.add(tile, b.mul(step, I64(ROW_STEP))), b.add(group, b.mul(step, I64(STEP)))
    weights = [_load(b, b.add(here, I64(32 * AT_ONCE * j)), WIDE) for j in range(REGISTERS)]
    for t in range(TOKENS):
        x = _load(b, b.add(there, I64(32 * t)), ir.VectorType(F32, 8))
        x = b.shuffle_vector(x, x, ir.Constant(ir.VectorType(I32, 8 * AT_ONCE), [*range(8)] * AT_ONCE))
        for j, w in enumerate(weights):
            total = totals[j][t]
            total.add_incoming(before[j][t], start)
            totals[j][t] = intrinsic_call(b, f"llvm.fma.v{8 * AT_ONCE}f32", WIDE, [w, x, total])
            total.add_incoming(totals[j][t], loop)
    following = b.add(step, I64(1))
    step.add_incoming(following, loop)
    b.cbranch(b.icmp_signed("<", following, steps), loop, done)
    b.position_at_end(done)
    for addresses, values in zip(at, totals, strict=True):
        for address, value in zip(addresses, values, strict=True):
            b.store(value, pointer(b, address, WIDE)).align = 4


def _load(b: Any, address: Any, kind: ir.VectorType) -> Any:
    value = b.load(pointer(b, address, kind))
    value.align = 4
    return value


multiply_rows = op(types.void, (types.intp,) * 4, _multiply)


@device
def multiply(tile, group, steps, sums):
    for half in range(0, ROW_STEP, 32 * AT_ONCE * REGISTERS):
        multiply_rows(tile + half, group, steps, sums + half)


@device
def clear(sums):
    for i in range(0, SUMS, 32):
        store_f32(sums + i, zero_f32())


@device
def token_at(x, x_item, i, items, order, share):
    """A token; past the last one it is that one again."""
    return x + item_at(order, i, items) // share * x_item


@routine
def gather_tokens(x, x_item, first, n, items, steps, order, share, groups):
    """Tokens as groups."""
    for i in range(-(-n // TOKENS) * TOKENS):
        token = token_at(x, x_item, first + i, items, order, share)
        target = groups + i // TOKENS * steps * STEP + i % TOKENS * 32
        for step in range(steps):
            store_f32(target + step * STEP, load_f32(token + 32 * step))


@device
def put_tile(sums, rest, x, x_item, at, end, items, order, share, whole, k, out, out_item, last):
    """A group's results with a tile to where they belong."""
    for i in range(at, min(at + TOKENS, end)):
        s, token = sums + (i - at) * ROW_STEP, token_at(x, x_item, i, items, order, share)
        total = row_sums_f32(
            load_f32(s), load_f32(s + 32), load_f32(s + 64), load_f32(s + 96),
            load_f32(s + 128), load_f32(s + 160), load_f32(s + 192), load_f32(s + 224),
        )  # fmt: skip
        for j in range(whole, k):
            total = fma(load_f32(rest + (j - whole) * 4 * ROWS), splat_f32(f32(token + 4 * j)), total)
        target = out + item_at(order, i, items) * out_item
        if last == ROWS - 1:
            store_f32(target, total)
        else:
            store_f32_part(target, total, last + 1)


def unpack_float(load: Any, size: int) -> Any:
    """Steps of eight rows as a tile, of which those up to `last` are there; those of the next eight are prefetched."""

    @device
    def unpack(p0, w_row, last, steps, tile):
        p1, p2, p3, p4, p5, p6, p7 = rows_after(p0, w_row, last)
        ahead = p0 + ROWS * w_row
        for step in range(steps):
            at = 8 * size * step
            for line in range(size * step, size * step + size):
                prefetch(ahead + line % ROWS * w_row + line // ROWS * 64)
            store_f32(tile, load(p0 + at))
            store_f32(tile + 32, load(p1 + at))
            store_f32(tile + 64, load(p2 + at))
            store_f32(tile + 96, load(p3 + at))
            store_f32(tile + 128, load(p4 + at))
            store_f32(tile + 160, load(p5 + at))
            store_f32(tile + 192, load(p6 + at))
            store_f32(tile + 224, load(p7 + at))
            tile += ROW_STEP

    return unpack


def gemm_float(load: Any, read: Any, size: int) -> Any:
    """Rows [low, high) of a matrix times `items` tokens; `scratch`, `order` and `share` as in `gemm_rows`."""
    unpack = unpack_float(load, size)

    @device
    def unpack_rest(p, w_row, last, whole, k, rest):
        for j in range(whole, k):
            for i in range(ROWS):
                set_f32(rest + (j - whole) * 4 * ROWS + 4 * i, read(p + min(i, last) * w_row + size * j))

    @routine
    def run(w, w_row, low, high, x, x_item, items, out, out_item, k, scratch, order, share):
        steps, whole, most = k // 8, k & ~7, PART // 8
        rest, panel = scratch, scratch + 28 * PANEL
        sums = panel + 4 * PANEL * min(whole, PART)
        kept = PANEL // ROWS * SUMS if steps > most else 0  # a group's sums, if they wait for another part of the rows
        groups = sums + max(kept * (FLOAT_TOKENS // TOKENS), PANEL // ROWS * SUMS)
        for first in range(0, items, FLOAT_TOKENS):
            end = min(first + FLOAT_TOKENS, items)
            gather_tokens(x, x_item, first, end - first, items, steps, order, share, groups)
            for r in range(low, high, PANEL):
                rows = min(high - r, PANEL)
                for start in range(0, max(steps, 1), most):
                    length, at = min(steps - start, most), w + r * w_row + 8 * size * start
                    for i in range(0, rows, ROWS):
                        last = min(rows - i, ROWS) - 1
                        unpack(at + i * w_row, w_row, last, length, panel + i // ROWS * ROW_STEP * length)
                        unpack_rest(w + (r + i) * w_row, w_row, last, whole, k, rest + 28 * i)
                    for token in range(first, end, TOKENS):
                        number = (token - first) // TOKENS
                        group = groups + (number * steps + start) * STEP
                        for i in range(0, rows, ROWS):
                            s = sums + number * kept + i // ROWS * SUMS
                            if start == 0:
                                clear(s)
                            if length:
                                multiply(panel + i // ROWS * ROW_STEP * length, group, length, s)
                            if start + most >= steps:
                                put_tile(
                                    s, rest + 28 * i, x, x_item, token, end, items, order, share, whole, k,
                                    out + 4 * (r + i), out_item, min(rows - i, ROWS) - 1,
                                )  # fmt: skip

    return run


GEMM = {
    "F32": gemm_float(load_f32, f32, 4),
    "F16": gemm_float(load_f16, f16, 2),
    "BF16": gemm_float(load_bf16, bf16, 2),
}
