"""Many rows of an attention task: a chunk's keys and values are made float32 once, and multiplied in register tiles.

    keys     [blocks of 64 positions, dim, 64]
    values   [positions, dim], rows as long as the f32 layout's

A tile is four rows times up to four registers: of scores along the positions, of outputs along the values' elements. A
block of keys, or a column of values as wide as a tile, stays in the first-level cache while all rows pass by. Each sum
goes through the same fused multiply-adds in the same order as in `rows`, so the bits are the same.
"""

from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.features import HAS_AVX512
from llamina.backends.cpu.kernels.attention.kv_cache import KV_LAYOUTS, RUN, KvLayout
from llamina.backends.cpu.kernels.attention.rows import AT, CELL, ENTRY, KEYS, PARTIAL, QUERY, SCORES, SEEN, VALUES
from llamina.backends.cpu.kernels.device import device, routine
from llamina.backends.cpu.kernels.vector.loads import WIDE, wide
from llamina.backends.cpu.kernels.vector.memory import i64, pointer
from llamina.backends.cpu.kernels.vector.simd import F32, I32, I64, Vec, f32x8, intrinsic_call, op, store_f32, storer
from llamina.ops.batch import PAGE

ROWS = 4  # of a tile
REGISTERS = 4 if HAS_AVX512 else 2
BLOCK = 4  # pages
STEP = 4 * BLOCK * PAGE  # bytes of an element of a block's keys
PLAIN = KV_LAYOUTS["f32"]
put_wide = storer(wide)


def tile(vec: Vec, registers: int) -> Any:
    """An intrinsic (depth, b, b_step, a0 … a3, c0 … c3): each row c becomes Σ a[i] × row i of b. At least one i."""
    lanes = vec.ir.count

    def load(b: Any, address: Any, kind: ir.Type) -> Any:
        value = b.load(pointer(b, address, kind))
        value.align = 4
        return value

    def body(b: Any, depth: Any, matrix: Any, matrix_step: Any, *rows: Any) -> None:
        start, loop, done = b.block, b.append_basic_block("element"), b.append_basic_block("done")
        zero = ir.Constant(vec.ir, [0.0] * lanes)
        b.branch(loop)
        b.position_at_end(loop)
        i, at = b.phi(I64), b.phi(I64)
        sums = [[b.phi(vec.ir) for _ in range(registers)] for _ in range(ROWS)]
        others = [load(b, b.add(at, I64(4 * lanes * j)), vec.ir) for j in range(registers)]
        for r, row in enumerate(sums):
            one = load(b, b.add(rows[r], b.mul(i, I64(4))), F32)
            undef = ir.Constant(vec.ir, ir.Undefined)
            same = ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
            x = b.shuffle_vector(b.insert_element(undef, one, I32(0)), undef, same)
            for j, total in enumerate(row):
                row[j] = intrinsic_call(b, f"llvm.fma.v{lanes}f32", vec.ir, [x, others[j], total])
                total.add_incoming(zero, start)
                total.add_incoming(row[j], loop)
        following = b.add(i, I64(1))
        for phi, first, after in ((i, I64(0), following), (at, matrix, b.add(at, matrix_step))):
            phi.add_incoming(first, start)
            phi.add_incoming(after, loop)
        b.cbranch(b.icmp_signed("<", following, depth), loop, done)
        b.position_at_end(done)
        for r, row in enumerate(sums):
            for j, total in enumerate(row):
                b.store(total, pointer(b, b.add(rows[ROWS + r], I64(4 * lanes * j)), vec.ir)).align = 4

    return op(types.void, (types.intp,) * (3 + 2 * ROWS), body)


large, middle, small, least = tile(wide, REGISTERS), tile(wide, 2), tile(wide, 1), tile(f32x8, 1)


@device
def four(cells, r, rows, field, shift):
    """A field of four rows, and something more; past the last row it is repeated."""
    last = rows - 1
    return (
        i64(cells + r * CELL + field) + shift,
        i64(cells + min(r + 1, last) * CELL + field) + shift,
        i64(cells + min(r + 2, last) * CELL + field) + shift,
        i64(cells + min(r + 3, last) * CELL + field) + shift,
    )


@routine
def score_many(cells, rows, n, keys, dim):
    """All rows' queries times a chunk's keys, of pages that they see."""
    for block in range(0, n, BLOCK):
        for r in range(0, rows, ROWS):
            left = (i64(cells + r * CELL + SEEN) - block) * PAGE
            for at in range(0, min(left, BLOCK * PAGE), WIDE * REGISTERS):
                q, t = four(cells, r, rows, QUERY, 0), four(cells, r, rows, SCORES, 4 * (block * PAGE + at))
                if left - at > 2 * WIDE or REGISTERS == 2:
                    large(dim, keys + 4 * at, STEP, *q, *t)
                elif left - at > WIDE:
                    middle(dim, keys + 4 * at, STEP, *q, *t)
                else:
                    small(dim, keys + 4 * at, STEP, *q, *t)
        keys += STEP * dim


@device
def columns(left):
    """How many elements of the values the next tiles have."""
    if left >= REGISTERS * WIDE:
        return REGISTERS * WIDE
    return 2 * WIDE if left >= 2 * WIDE else WIDE if left >= WIDE else 8


@routine
def weigh_many(cells, rows, pages, values, step, dim, lowest, late):
    """Σ weight × value over a chunk, for all rows."""
    i, low = 0, max(lowest - i64(pages + AT), 0)
    values += low * step
    while i < dim:
        left = dim - i
        for r in range(0, rows, ROWS):
            seen = i64(cells + r * CELL + SEEN)
            if seen == 0:
                continue
            depth = PAGE * (seen - 1) + min(late - i64(pages + ENTRY * (seen - 1) + AT) + 1, PAGE) - low
            w, c = four(cells, r, rows, SCORES, 4 * low), four(cells, r, rows, PARTIAL, 4 * i)
            if left >= REGISTERS * WIDE:
                large(depth, values + 4 * i, step, *w, *c)
            elif left >= 2 * WIDE:
                middle(depth, values + 4 * i, step, *w, *c)
            elif left >= WIDE:
                small(depth, values + 4 * i, step, *w, *c)
            else:
                least(depth, values + 4 * i, step, *w, *c)
        i += columns(left)


def unpack_chunk(layout: KvLayout) -> Any:
    key, scale, scaled, step_bytes = layout.wide.key, layout.wide.scale, layout.scaled, layout.step
    value_wide, value = layout.wide.value, layout.eight.value
    plain_step = PLAIN.step

    @routine
    def run(pages, n, keys, values, key_dim, value_dim):
        """The pages of a chunk as float32."""
        for page in range(n):
            entry = pages + ENTRY * page
            from_keys, from_values = i64(entry + KEYS), i64(entry + VALUES)
            to_keys = keys + page // BLOCK * STEP * key_dim + 4 * PAGE * (page % BLOCK)
            for start in range(0, key_dim, RUN):
                for half in range(0, PAGE, WIDE):
                    s = scale(from_keys, start, half)
                    for i in range(min(RUN, key_dim - start)):
                        k = key(from_keys, start, i, half)
                        put_wide(to_keys + STEP * (start + i) + 4 * half, k * s if scaled else k)
            whole = value_dim & -WIDE
            for j in range(PAGE):
                row, to = from_values + j * step_bytes(value_dim), values + (PAGE * page + j) * plain_step(value_dim)
                for i in range(0, whole, WIDE):
                    put_wide(to + 4 * i, value_wide(row, i, value_dim))
                for i in range(whole, value_dim, 8):
                    store_f32(to + 4 * i, value(row, i, value_dim))

    return run
