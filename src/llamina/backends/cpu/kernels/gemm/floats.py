"""GEMM of float weights: rows are unpacked once into tiles, and every token is multiplied with these.

The arithmetic is that of gemv/: eight sums along a row (sixteen of pairs of bfloat16), by fused multiply-adds in
order, which are added at the end in the same order; then, one by one, the elements past the last whole eight. Hence the
same bits.

    tile    [steps, 8 rows, line]        eight rows; a panel is up to eight tiles
    sums    [TOKENS, 8 rows, line]       of a tile and TOKENS tokens, between one part of the rows and the next
    totals  [TOKENS, rows of a panel]    these, added

A line is a step of a row or a token: eight float32, or 32 bfloat16. Tokens are read where they are. Sums stay in
registers along a part of the rows: a register of 512 bits has those of two rows, and a token's eight float32 twice. A
panel stays in the second-level cache while all tokens pass by; TOKENS of them come from there, too, but for a panel's
first tile.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.features import HAS_AVX512, HAS_BF16
from llamina.backends.cpu.kernels.device import device, routine
from llamina.backends.cpu.kernels.gemm.gemm import item_at
from llamina.backends.cpu.kernels.gemv.blocks import rows_after
from llamina.backends.cpu.kernels.vector.brain import (
    load_pairs,
    load_pairs_part,
    lower_add_pairs,
    lower_fold,
    pairs,
    store_pairs,
)
from llamina.backends.cpu.kernels.vector.loads import load_bf16, load_f16
from llamina.backends.cpu.kernels.vector.memory import bf16, f16, f32, pointer, prefetch, set_f32
from llamina.backends.cpu.kernels.vector.simd import (
    F32,
    I32,
    I64,
    fma,
    intrinsic_call,
    load_f32,
    op,
    splat_f32,
    store_f32,
    store_f32_part,
    zero_f32,
)
from llamina.backends.cpu.tiling import FLOAT_PART, FLOAT_PART_BYTES, FLOAT_TOKENS, PANEL, PANEL_BYTES

ROWS = 8  # of a tile
REGISTERS = 4  # of weights that are multiplied together
TOKENS = 6 if HAS_AVX512 else 3  # with so many tokens, so that all sums stay in registers
WIDTH = 64 if HAS_AVX512 else 32  # bytes of a register
SUMS = ir.VectorType(F32, WIDTH // 4)
REST = 4 * 7 * ROWS  # bytes of the elements of a tile past the last whole eight


@dataclass(frozen=True, slots=True)
class Form:
    """How weights are unpacked and multiplied."""

    elements: int  # of a line
    size: int  # bytes of an element as it is stored
    line: int  # bytes
    load: Any  # a line as it is stored, as it is in a tile
    load_part: Any  # its first elements, zeros after them; None where those are multiplied one by one
    read: Any  # such an element
    store: Any
    fold: Callable[..., Any]  # a register of sums as eight for each of its rows
    combine: Callable[..., Any]  # of registers of a tile and a token, and sums


def multiplier(form: Form, first: bool, last: bool) -> Any:
    """An intrinsic (tile, steps, sums, totals, *tokens): some rows of a tile times TOKENS tokens, at least a step.

    It begins with `sums` unless this is the first part of the rows; after the last part it adds them to `totals`.
    """
    line, at_once = form.line, WIDTH // form.line
    kind = SUMS if form.elements == 8 else pairs.ir

    def load(b: Any, address: Any, kind: ir.Type) -> Any:
        value = b.load(pointer(b, address, kind))
        value.align = 4
        return value

    def token(b: Any, address: Any) -> Any:
        if at_once == 1:
            return load(b, address, kind)
        x = load(b, address, ir.VectorType(F32, 8))
        return b.shuffle_vector(x, x, ir.Constant(ir.VectorType(I32, 8 * at_once), [*range(8)] * at_once))

    def put_totals(b: Any, values: list[Any], address: Any) -> None:
        """The sum of each row's eight, always in the same order."""
        first, second, *others = [form.fold(b, value) for value in values]
        fours = pair_sums(b, pair_sums(b, first, second), pair_sums(b, *others))
        rows = len(values) * at_once
        near = [8 * (row % at_once) + row // at_once for row in range(rows)]
        low, high = (
            b.shuffle_vector(fours, fours, ir.Constant(ir.VectorType(I32, rows), [n + past for n in near]))
            for past in (0, 4)
        )
        b.store(b.fadd(low, high), pointer(b, address, ir.VectorType(F32, rows))).align = 4

    def body(b: Any, tile: Any, steps: Any, sums: Any, totals: Any, *tokens: Any) -> None:
        start, loop, done = b.block, b.append_basic_block("step"), b.append_basic_block("done")
        at = [[b.add(sums, I64(line * ROWS * t + WIDTH * j)) for t in range(TOKENS)] for j in range(REGISTERS)]
        zeros = ir.Constant(SUMS, [0.0] * (WIDTH // 4))
        before = [[zeros if first else load(b, address, SUMS) for address in row] for row in at]
        b.branch(loop)
        b.position_at_end(loop)
        step, values = b.phi(I64), [[b.phi(SUMS) for _ in range(TOKENS)] for _ in range(REGISTERS)]
        step.add_incoming(I64(0), start)
        there = b.mul(step, I64(line))
        here = b.add(tile, b.mul(there, I64(ROWS)))
        weights = [load(b, b.add(here, I64(WIDTH * j)), kind) for j in range(REGISTERS)]
        for t in range(TOKENS):
            x = token(b, b.add(tokens[t], there))
            for j, w in enumerate(weights):
                value = values[j][t]
                value.add_incoming(before[j][t], start)
                values[j][t] = form.combine(b, w, x, value)
                value.add_incoming(values[j][t], loop)
        following = b.add(step, I64(1))
        step.add_incoming(following, loop)
        b.cbranch(b.icmp_signed("<", following, steps), loop, done)
        b.position_at_end(done)
        for t in range(TOKENS):
            if last:
                put_totals(b, [row[t] for row in values], b.add(totals, I64(4 * PANEL * t)))
            else:
                for j in range(REGISTERS):
                    b.store(values[j][t], pointer(b, at[j][t], SUMS)).align = 4

    return op(types.void, (types.intp,) * (4 + TOKENS), body)


def pair_sums(b: Any, x: Any, y: Any) -> Any:
    """Neighbours added: of every four lanes x's two pairs, then y's."""
    lanes = x.type.count
    even = [start + n for four in range(0, lanes, 4) for start in (four, lanes + four) for n in (0, 2)]
    kind = ir.VectorType(I32, lanes)
    parts = (b.shuffle_vector(x, y, ir.Constant(kind, [n + odd for n in even])) for odd in (0, 1))
    return b.fadd(*parts)


@device
def token_at(x, x_item, i, items, order, share):
    """A token; past the last one it is that one again."""
    return x + item_at(order, i, items) // share * x_item


@device
def three_at(x, x_item, i, items, order, share):
    return (
        token_at(x, x_item, i, items, order, share),
        token_at(x, x_item, i + 1, items, order, share),
        token_at(x, x_item, i + 2, items, order, share),
    )


@device
def six_at(x, x_item, i, items, order, share):
    return three_at(x, x_item, i, items, order, share) + three_at(x, x_item, i + 3, items, order, share)


tokens_at = {3: three_at, 6: six_at}[TOKENS]


def unpacker(form: Form) -> Any:
    """Steps of eight rows as a tile, of which those up to `last` are there; those of the next eight are prefetched."""
    size, line, elements, load, part, store = (
        form.size, form.line, form.elements, form.load, form.load_part, form.store,
    )  # fmt: skip
    step_bytes, per_step = size * elements, size * elements // 8

    @device
    def unpack(p0, w_row, last, steps, tile, left):
        p1, p2, p3, p4, p5, p6, p7 = rows_after(p0, w_row, last)
        ahead = p0 + ROWS * w_row
        for step in range(steps):
            at = step_bytes * step
            for i in range(per_step * step, per_step * step + per_step):
                prefetch(ahead + i % ROWS * w_row + i // ROWS * 64)
            if part is not None and left < elements * (step + 1):
                n = left - elements * step
                store(tile, part(p0 + at, n))
                store(tile + line, part(p1 + at, n))
                store(tile + 2 * line, part(p2 + at, n))
                store(tile + 3 * line, part(p3 + at, n))
                store(tile + 4 * line, part(p4 + at, n))
                store(tile + 5 * line, part(p5 + at, n))
                store(tile + 6 * line, part(p6 + at, n))
                store(tile + 7 * line, part(p7 + at, n))
            else:
                store(tile, load(p0 + at))
                store(tile + line, load(p1 + at))
                store(tile + 2 * line, load(p2 + at))
                store(tile + 3 * line, load(p3 + at))
                store(tile + 4 * line, load(p4 + at))
                store(tile + 5 * line, load(p5 + at))
                store(tile + 6 * line, load(p6 + at))
                store(tile + 7 * line, load(p7 + at))
            tile += ROWS * line

    return unpack


def gemm_float(form: Form) -> Any:
    """Rows [low, high) of a matrix times `items` tokens; `scratch`, `order` and `share` as in `gemm_rows`."""
    elements, size, line, read = form.elements, form.size, form.line, form.read
    unpack, has_rest = unpacker(form), form.load_part is None
    alone, first_of, last_of, one_of = (
        multiplier(form, first, last) for first, last in ((True, True), (True, False), (False, True), (False, False))
    )
    tile_step, sums_size = line * ROWS, line * ROWS * TOKENS
    longest = min(FLOAT_PART // elements, FLOAT_PART_BYTES // line)

    @device
    def multiply(tile, steps, sums, totals, first, last, x):
        """A part of a tile's rows times tokens'."""
        for some in range(0, tile_step, WIDTH * REGISTERS):
            row = totals + some // line * 4
            if first and last:
                alone(tile + some, steps, sums + some, row, *x)
            elif first:
                first_of(tile + some, steps, sums + some, row, *x)
            elif last:
                last_of(tile + some, steps, sums + some, row, *x)
            else:
                one_of(tile + some, steps, sums + some, row, *x)

    @device
    def unpack_rest(p, w_row, last, whole, k, rest):
        for j in range(whole, k):
            for i in range(ROWS):
                set_f32(rest + (j - whole) * 4 * ROWS + 4 * i, read(p + min(i, last) * w_row + size * j))

    @device
    def add_rest(totals, rest, token, rows, n):
        """A token's last `n` elements, which are no whole step."""
        for r in range(0, rows, ROWS):
            total = load_f32(totals + 4 * r)
            for j in range(n):
                total = fma(load_f32(rest + 4 * ROWS * j), splat_f32(f32(token + 4 * j)), total)
            store_f32(totals + 4 * r, total)
            rest += REST

    @device
    def put(totals, out, rows):
        """A token's results to where they belong."""
        whole = rows & ~7
        for r in range(0, whole, 8):
            store_f32(out + 4 * r, load_f32(totals + 4 * r))
        if whole < rows:
            store_f32_part(out + 4 * whole, load_f32(totals + 4 * whole), rows - whole)

    @routine
    def run(w, w_row, low, high, x, x_item, items, out, out_item, k, scratch, order, share):
        steps = k // elements if has_rest else (k + elements - 1) // elements
        parts = max(1, (steps + longest - 1) // longest)
        most = max(1, (steps + parts - 1) // parts)
        whole, tile = steps * elements, tile_step * min(steps, most)
        most_rows = ROWS * max(1, min(PANEL // ROWS, PANEL_BYTES // max(tile, 1)))
        totals, rest = scratch, scratch + 4 * PANEL * TOKENS
        panel = rest + REST * PANEL // ROWS
        sums = panel + most_rows // ROWS * tile
        kept = most_rows // ROWS * sums_size if steps > most else 0  # of TOKENS, if they wait for other parts
        for first in range(0, items, FLOAT_TOKENS):
            end = min(first + FLOAT_TOKENS, items)
            for r in range(low, high, most_rows):
                rows = min(high - r, most_rows)
                for start in range(0, max(steps, 1), most):
                    length, final = min(steps - start, most), start + most >= steps
                    at = w + r * w_row + size * elements * start
                    for i in range(0, rows, ROWS):
                        last, n = min(rows - i, ROWS) - 1, i // ROWS
                        unpack(at + i * w_row, w_row, last, length, panel + n * tile, k - start * elements)
                        if has_rest:
                            unpack_rest(w + (r + i) * w_row, w_row, last, whole, k, rest + n * REST)
                    for token in range(first, end, TOKENS):
                        tokens = tokens_at(x + line * start, x_item, token, items, order, share)
                        here = sums + (token - first) // TOKENS * kept
                        if length == 0:
                            for i in range(0, PANEL * TOKENS, 8):
                                store_f32(totals + 4 * i, zero_f32())
                        else:
                            for n in range((rows + ROWS - 1) // ROWS):
                                total = totals + 4 * ROWS * n
                                multiply(panel + n * tile, length, here, total, start == 0, final, tokens)
                                here += sums_size
                        if final:
                            for i in range(token, min(token + TOKENS, end)):
                                total = totals + 4 * PANEL * (i - token)
                                if whole < k:
                                    source = token_at(x, x_item, i, items, order, share)
                                    add_rest(total, rest, source + 4 * whole, rows, k - whole)
                                put(total, out + item_at(order, i, items) * out_item + 4 * r, rows)

    return run


def by_eights(load: Any, read: Any, size: int) -> Form:
    def combine(b: Any, *args: Any) -> Any:
        return intrinsic_call(b, f"llvm.fma.v{WIDTH // 4}f32", SUMS, list(args))

    return Form(8, size, 32, load, None, read, store_f32, lambda b, sums: sums, combine)


BY_PAIRS = Form(32, 2, 64, load_pairs, load_pairs_part, None, store_pairs, lower_fold, lower_add_pairs)
GEMM = {
    "F32": gemm_float(by_eights(load_f32, f32, 4)),
    "F16": gemm_float(by_eights(load_f16, f16, 2)),
    "BF16": gemm_float(BY_PAIRS if HAS_BF16 else by_eights(load_bf16, bf16, 2)),
}
