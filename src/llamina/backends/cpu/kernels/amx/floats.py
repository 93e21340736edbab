"""BF16 and F16 weights on CPUs with matrix registers for them: 32 rows times 32 tokens at a time, or one token.

The registers multiply pairs of 16-bit floats and add up float32. Weights are multiplied as they are. An activation is
one bfloat16 number for BF16 (in plans that decode), or two: the rounded one and what rounding left. Two hold 16 bits of
an activation in bfloat16; in float16 they hold 22, the token being multiplied by a power of two before.

A row's sum is computed in the same order for one token and for many: 32 elements after 32, the rounded activations,
then what was left. Hence the same bits.

    panel    of some rows, a part: for each 32 [steps, 32 rows, 32 elements]
    groups   of 16 tokens: [rounded, left][steps, 16 pairs, 16 tokens, a pair]
    sums     float32 [rows / 32, tokens / 32, 4 registers, 16 rows, 16 tokens]
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.amx.registers import (
    dots_of,
    load_0,
    load_1,
    load_2,
    load_3,
    load_4,
    load_5,
    load_6,
    load_7,
    load_floats,
    release,
    set_up,
    sixteen,
    splat,
    store_0,
    store_1,
    store_2,
    store_3,
    store_floats,
    store_floats_part,
    transpose,
    zero_0,
    zero_1,
    zero_2,
    zero_3,
)
from llamina.backends.cpu.kernels.amx.tokens import item_at
from llamina.backends.cpu.kernels.device import device, routine
from llamina.backends.cpu.kernels.vector.brain import load_pairs, load_pairs_part, store_pairs
from llamina.backends.cpu.kernels.vector.memory import f32, set_i64
from llamina.backends.cpu.tiling import AMX_FLOAT_BYTES, AMX_FLOAT_ROWS, AMX_FLOAT_TOKENS, AMX_STEPS

ROWS, STEP = 32, 2048  # rows that are multiplied together, and bytes of 32 elements of each
GROUP = 1024  # bytes of 32 elements of 16 tokens
SUMS = 4096  # bytes of those of 32 rows and 32 tokens


@dataclass(frozen=True, slots=True)
class Form:
    """What the registers multiply, `bf16` or `fp16`; how many numbers stand for an activation."""

    kind: str
    activations: int

    @property
    def scaled(self) -> bool:
        """Whether tokens are times a power of two, which is behind their numbers."""
        return self.kind == "fp16"


@routine
def unpack(w, w_row, rows, steps, left, panel):
    """Steps of rows [0, rows) as a panel, the last row again up to a multiple of 32; `left` elements are there."""
    whole = min(steps, left // 32)
    for r in range(0, (rows + ROWS - 1) // ROWS * ROWS):
        p, to = w + min(r, rows - 1) * w_row, panel + r // ROWS * STEP * steps + r % ROWS * 64
        for s in range(whole):
            store_pairs(to + STEP * s, load_pairs(p + 64 * s))
        if whole < steps:
            store_pairs(to + STEP * whole, load_pairs_part(p + 64 * whole, left - 32 * whole))


@device
def load_sums(sums, row, first, two):
    if first:
        zero_0()
        zero_1()
        if two:
            zero_2()
            zero_3()
    else:
        load_0(sums, row)
        load_1(sums + 16 * row, row)
        if two:
            load_2(sums + 32 * row, row)
            load_3(sums + 48 * row, row)


@device
def store_sums(sums, row, two):
    store_0(sums, row)
    store_1(sums + 16 * row, row)
    if two:
        store_2(sums + 32 * row, row)
        store_3(sums + 48 * row, row)


@routine
def put_rows(source, scale, target, count):
    """Up to 16 results, times a number."""
    value = load_floats(source) * splat(scale)
    if count >= 16:
        store_floats(target, value)
    elif count > 0:
        store_floats_part(target, value, count)


def gemm_float(form: Form) -> Any:
    """Rows [low, high) of a matrix times `items` tokens; the arguments are those of `gemm.gemm`."""
    both, parts_of_x, scaled = form.activations == 2, form.activations, form.scaled
    dot_046, dot_156, dot_247, dot_357 = dots_of(form.kind)

    @device
    def scale_of(item, steps):
        return f32(item + 64 * parts_of_x * steps) if scaled else np.float32(1)

    @routine
    def multiply(w, w_row, w_half, w_step, x0, x1, x_row, x_step, x_left, steps, sums, sums_row, begin, two):
        """A part of 32 rows, the second half `w_half` further, times one or two groups of tokens.

        What rounding left of the tokens is `x_left` further.
        """
        load_sums(sums, sums_row, begin, two)
        for _ in range(steps):
            load_4(w, w_row)
            load_6(x0, x_row)
            dot_046()
            load_5(w + w_half, w_row)
            dot_156()
            if two:
                load_7(x1, x_row)
                dot_247()
                dot_357()
            if both:
                load_6(x0 + x_left, x_row)
                dot_046()
                dot_156()
                if two:
                    load_7(x1 + x_left, x_row)
                    dot_247()
                    dot_357()
            w, x0, x1 = w + w_step, x0 + x_step, x1 + x_step
        store_sums(sums, sums_row, two)

    @routine
    def lone(w, w_row, low, high, x, out, k, steps, part, panel):
        """One token. It is read where it is, and so are 32 whole rows."""
        sums, scale = panel + STEP * part, scale_of(x, steps)
        set_up(64, 1)
        for r in range(low, high, ROWS):
            rows = min(high - r, ROWS)
            for s in range(0, steps, part):
                n, at, token = min(part, steps - s), w + r * w_row + 64 * s, x + 64 * s
                if rows < ROWS or 32 * (s + n) > k:
                    unpack(at, w_row, rows, n, k - 32 * s, panel)
                    multiply(panel, 64, 1024, STEP, token, 0, 4, 64, 64 * steps, n, sums, 4, s == 0, False)
                else:
                    multiply(at, w_row, 16 * w_row, 64, token, 0, 4, 64, 64 * steps, n, sums, 4, s == 0, False)
            put_rows(sums, scale, out + 4 * r, rows)
            put_rows(sums + 64, scale, out + 4 * r + 64, rows - 16)

    @routine
    def gather(x, x_item, first, n, items, steps, order, share, groups):
        addresses = sixteen()
        for g in range(0, n, 16):
            for t in range(16):
                set_i64(addresses + 8 * t, x + item_at(order, first + g + t, items) // share * x_item)
            for s in range(parts_of_x * steps):
                transpose(addresses, 64 * s, groups)
                groups += GROUP

    @routine
    def put(sums, x, x_item, out, out_item, order, share, first, n, items, steps, rows, pad):
        """The sums of up to 32 rows and n tokens, rows by tokens, to where they belong."""
        addresses = sixteen()
        for g in range(0, n, 16):
            for half in range(0, rows, 16):
                at = sums + (g >> 5) * SUMS + (g >> 4 & 1) * 2048 + (half >> 4) * 1024
                for i in range(16):
                    set_i64(addresses + 8 * i, at + 64 * i)
                transpose(addresses, 0, pad)
                for t in range(min(16, n - g)):
                    item = item_at(order, first + g + t, items)
                    scale = scale_of(x + item // share * x_item, steps)
                    put_rows(pad + 64 * t, scale, out + item * out_item + 4 * half, rows - half)

    @routine
    def many(w, w_row, low, high, x, x_item, first, n, items, out, out_item, k, steps, part, panel, order, share):
        """Tokens [first, first + n): panels of rows, and parts of these, one after the other."""
        sums, width = panel + STEP * part * AMX_FLOAT_ROWS // ROWS, SUMS * ((n + 31) // 32)
        groups, group = sums + width * (AMX_FLOAT_ROWS // ROWS), parts_of_x * GROUP * steps
        most = AMX_FLOAT_ROWS if n > 32 else ROWS
        set_up(64, 16)
        gather(x, x_item, first, n, items, steps, order, share, groups)
        for r in range(low, high, most):
            rows = min(high - r, most)
            for s in range(0, steps, part):
                length = min(part, steps - s)
                unpack(w + r * w_row + 64 * s, w_row, rows, length, k - 32 * s, panel)
                for g in range(0, n, 32):
                    x0, two = groups + g // 16 * group + GROUP * s, g + 16 < n
                    for i in range(0, (rows + ROWS - 1) // ROWS):
                        multiply(
                            panel + i * STEP * length, 64, 1024, STEP, x0, x0 + group, 64, GROUP, GROUP * steps,
                            length, sums + i * width + g // 32 * SUMS, 64, s == 0, two,
                        )  # fmt: skip
            for i in range(0, rows, ROWS):
                put(
                    sums + i // ROWS * width, x, x_item, out + 4 * (r + i), out_item, order, share, first, n, items,
                    steps, min(rows - i, ROWS), panel,
                )  # fmt: skip

    @routine
    def run(w, w_row, low, high, x, x_item, items, out, out_item, k, scratch, order, share):
        steps = (k + 31) // 32
        parts = (steps + AMX_STEPS - 1) // AMX_STEPS
        part = (steps + parts - 1) // parts
        resident = max(32, min(AMX_FLOAT_TOKENS, AMX_FLOAT_BYTES // (64 * parts_of_x * steps)) & ~31)
        for first in range(0, items, resident):
            n = min(resident, items - first)
            if n == 1:
                item = item_at(order, first, items)
                lone(w, w_row, low, high, x + item // share * x_item, out + item * out_item, k, steps, part, scratch)
            else:
                many(
                    w, w_row, low, high, x, x_item, first, n, items, out, out_item, k, steps, part, scratch, order,
                    share,
                )  # fmt: skip
        release()

    return run


BF16, BF16_SPLIT, F16 = (gemm_float(form) for form in (Form("bf16", 1), Form("bf16", 2), Form("fp16", 2)))
