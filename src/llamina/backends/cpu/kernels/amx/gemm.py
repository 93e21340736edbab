"""Several tokens on CPUs with matrix registers (AMX): 16 rows of weights times 32 tokens at a time.

The registers multiply bytes and add up 32-bit integers. In a block of 256 an element is multiplied by the integer that
scales it while it is unpacked; the product, which fits 16 bits, goes in as its lower and its upper byte, and the two
sums are put together afterwards. So integers and fused multiply-adds are those of gemv/ and gemm/, and the bits.

    16 rows of a block of 256 (a cell)   lower bytes [16, 256] | upper bytes [16, 256]
                                         | mins against the sums' lower bytes [16, 64] | against their upper bytes
    16 rows of up to 256, blocks of 32   bytes [16, 256] | float32[8, 16] d | float32[8, 16] m
    16 tokens (a group)                  as tokens.py says
"""

from typing import Any

from llamina.backends.cpu.kernels.amx.registers import (
    fma,
    join,
    load_4,
    load_5,
    load_6,
    load_7,
    load_floats,
    load_ints,
    release,
    scaler,
    set_up,
    sixteen,
    splat,
    ss_046,
    ss_147,
    ss_156,
    ss_357,
    store_0,
    store_1,
    store_2,
    store_3,
    store_floats,
    store_floats_part,
    table_scaler,
    to_f32,
    transpose,
    us_046,
    us_156,
    us_247,
    us_357,
    uu_046,
    uu_247,
    zero_0,
    zero_1,
    zero_2,
    zero_3,
    zeros,
)
from llamina.backends.cpu.kernels.amx.tokens import gather_32, gather_256, item_at
from llamina.backends.cpu.kernels.device import device, routine
from llamina.backends.cpu.kernels.formats.blocks import BLOCKS_32, SUPERBLOCKS, Block32, SuperBlock
from llamina.backends.cpu.kernels.vector.memory import (
    f16,
    f32,
    prefetch,
    set_f32,
    set_i64,
    stack_of,
)
from llamina.backends.cpu.kernels.vector.simd import (
    constant,
    first_f32,
    i8x32,
    i16x16,
    op,
    store_i8x32,
    store_i16x16,
)
from llamina.backends.cpu.tiling import AMX_L2_BYTES, AMX_PAD, AMX_TOKENS, amx_group

ROWS = 16
LOWER, UPPER, MINS, MINS_UPPER = 0, 4096, 8192, 9216  # of a cell of a block of 256
SMALL_D, SMALL_M = 4096, 4608  # of a cell of blocks of 32
CELL, CELL_BYTES = 2 * 8192, 10240  # of a thread's pad, which begins with registers as stored, twice
SCALES = CELL + 2 * CELL_BYTES  # of the last four blocks: float32[16] d | float32[16] dmin
ACC = SCALES + 512
LESS = ACC + 64 * AMX_TOKENS
group_bytes = device(amx_group)
assert AMX_PAD == LESS + 64 * AMX_TOKENS and AMX_TOKENS % 32 == 0


@device
def cell_of(pad, b):
    """Block b's cell: the one after it is unpacked while it is in use."""
    return pad + CELL + CELL_BYTES * (b & 1)


@device
def scales_of(pad, b):
    """Block b's d and dmin, which are wanted longer than its cell."""
    return pad + SCALES + 128 * (b & 3)


# ---- blocks of 256 ------------------------------------------------------------------------------------------

run_scales = stack_of(64)
up_a_byte = op(i16x16, (i16x16,), lambda b, x: b.shl(x, constant(i16x16, [8] * 16)))


def unpack_super(form: SuperBlock) -> Any:
    values, run_scales_of, nbytes, gather = form.nibbles or form.values, form.scales, form.nbytes, form.gather
    mins_of, gather_min, has_min = form.mins or form.scales, form.gather_min or form.gather, form.mins is not None
    scaled = scaler(form.signed, form.offset)
    if form.nibbles:
        scaled = table_scaler(f"llamina_scaled_{form.nbytes}", form.levels, form.signed)

    @device
    def row(p, low, high, cell, d, r):
        s = run_scales()
        v0, v1, v2, v3 = values(p, 0), values(p, 1), values(p, 2), values(p, 3)  # before anything is stored
        v4, v5, v6, v7 = values(p, 4), values(p, 5), values(p, 6), values(p, 7)
        store_i16x16(s, run_scales_of(p))
        scaled(v0, s, low, high)
        scaled(v1, s + 4, low + 32, high + 32)
        scaled(v2, s + 8, low + 64, high + 64)
        scaled(v3, s + 12, low + 96, high + 96)
        scaled(v4, s + 16, low + 128, high + 128)
        scaled(v5, s + 20, low + 160, high + 160)
        scaled(v6, s + 24, low + 192, high + 192)
        scaled(v7, s + 28, low + 224, high + 224)
        set_f32(d + 4 * r, first_f32(gather(p, p, p, p, p, p, p, p)))
        if has_min:  # two sums of 16 bits are four bytes: a min meets the lower or the upper one of its sum
            set_f32(d + 64 + 4 * r, first_f32(gather_min(p, p, p, p, p, p, p, p)))
            m = mins_of(p)
            store_i16x16(cell + MINS + 64 * r, m)
            store_i16x16(cell + MINS_UPPER + 64 * r, up_a_byte(m))

    @routine
    def unpack(w, w_row, last, b, n, cell, d, low, high):
        """Block b of rows [low, high)."""
        for r in range(low, high):
            p = w + min(r, last) * w_row + b * nbytes
            prefetch(p + 2 * nbytes)
            row(p, cell + LOWER + 256 * r, cell + UPPER + 256 * r, cell, d, r)

    return unpack


@device
def store_sums(pad, two):
    store_0(pad, 64)
    store_1(pad + 1024, 64)
    if two:
        store_2(pad + 2048, 64)
        store_3(pad + 3072, 64)


@device
def zero_sums(two):
    zero_0()
    zero_1()
    if two:
        zero_2()
        zero_3()


def multiply_super(form: SuperBlock, unpack: Any) -> Any:
    """A cell times one or two groups of tokens: begun, and later finished onto their results.

    While the matrix registers are busy, the block `ahead` of these rows is unpacked, if there is one.
    """
    has_min = form.mins is not None

    @device
    def element_dots(cell, x0, x1, two, pad, w, w_row, last, ahead, base):
        zero_sums(two)
        for i in range(4):
            load_4(cell + LOWER + 64 * i, 256)
            load_5(cell + UPPER + 64 * i, 256)
            load_6(x0 + 1024 * i, 64)
            us_046()
            ss_156()
            if two:
                load_7(x1 + 1024 * i, 64)
                us_247()
                ss_357()
            if ahead:
                unpack(w, w_row, last, ahead, 8, cell_of(base, ahead), scales_of(base, ahead), 4 * i, 4 * i + 4)
        store_sums(pad, two)

    @device
    def min_dots(cell, x0, x1, two, pad):
        zero_sums(two)
        load_4(cell + MINS, 64)
        load_5(cell + MINS_UPPER, 64)
        load_6(x0, 64)
        uu_046()
        us_156()
        if two:
            load_7(x1, 64)
            uu_247()
            us_357()
        store_sums(pad, two)

    @device
    def finish(scale, d, pad, acc):
        """Sixteen rows' sums of a block onto the results of a group."""
        for r in range(ROWS):
            at, to = pad + 64 * r, acc + 64 * r
            total = to_f32(join(load_ints(at), load_ints(at + 1024)))
            store_floats(to, fma(total, splat(f32(d + 4 * r)) * scale, load_floats(to)))
            if has_min:
                total, less = to_f32(join(load_ints(at + 4096), load_ints(at + 5120))), to + LESS - ACC
                store_floats(less, fma(total, splat(f32(d + 64 + 4 * r)) * scale, load_floats(less)))

    @routine
    def begin(k, b, n, group_0, group_1, two, pad, acc, w, w_row, last, ahead, base):
        cell, at, sums = cell_of(base, b), 4096 * b, 16 * k + 1024 * b
        element_dots(cell, group_0 + at, group_1 + at, two, pad, w, w_row, last, ahead, base)
        if has_min:
            min_dots(cell, group_0 + sums, group_1 + sums, two, pad + 4096)

    @routine
    def end(d, k, b, group_0, group_1, two, pad, acc):
        scales = 20 * k + 64 * b
        finish(load_floats(group_0 + scales), d, pad, acc)
        if two:
            finish(load_floats(group_1 + scales), d, pad + 2048, acc + 1024)

    return begin, end


# ---- blocks of 32 (64, 128), up to 8 at a time --------------------------------------------------------------


def minus(offset: int) -> Any:
    return op(i8x32, (i8x32,), lambda b, x: b.sub(x, constant(i8x32, [offset] * 32)))


def unpack_32(form: Block32) -> Any:
    values, nbytes, runs, has_min, gather = form.values, form.nbytes, form.runs, form.has_min, form.gather
    less = minus(form.offset)

    @routine
    def unpack(w, w_row, last, b, n, cell, d, low, high):
        """Runs of 32 from 8 · b on, n of them, of rows [low, high)."""
        for r in range(low, high):
            p0 = w + min(r, last) * w_row
            for j in range(n):
                run = 8 * b + j
                p = p0 + run // runs * nbytes
                store_i8x32(cell + 256 * r + 32 * j, less(values(p, run % runs)))
                set_f32(cell + SMALL_D + 64 * j + 4 * r, first_f32(gather(p, p, p, p, p, p, p, p)))
                if has_min:
                    set_f32(cell + SMALL_M + 64 * j + 4 * r, f16(p + 2))

    return unpack


def multiply_32(form: Block32, unpack: Any) -> Any:
    has_min = form.has_min

    @device
    def finish(scales, cell, j, pad, acc):
        scale, scaled_sum = load_floats(scales), load_floats(scales + 64)
        for r in range(ROWS):
            to, d = acc + 64 * r, splat(f32(cell + SMALL_D + 64 * j + 4 * r))
            result = fma(to_f32(load_ints(pad + 64 * r)), d * scale, load_floats(to))
            if has_min:
                result = fma(splat(f32(cell + SMALL_M + 64 * j + 4 * r)), scaled_sum, result)
            store_floats(to, result)

    @routine
    def begin(k, b, n, group_0, group_1, two, pad, acc, w, w_row, last, ahead, base):
        """Sums of 32 are done with at once."""
        if ahead:
            unpack(w, w_row, last, ahead, min(8, k // 32 - 8 * ahead), cell_of(base, ahead), 0, 0, ROWS)
        cell = cell_of(base, b)
        for j in range(n):
            run = 8 * b + j
            at, scales, to = 512 * run, 16 * ((k + 63) & ~63) + 128 * run, pad + 2048 * (j & 3)
            zero_0()
            zero_1()
            load_4(cell + 32 * j, 256)
            load_6(group_0 + at, 64)
            ss_046()
            store_0(to, 64)
            if two:
                load_7(group_1 + at, 64)
                ss_147()
                store_1(to + 1024, 64)
            finish(group_0 + scales, cell, j, to, acc)
            if two:
                finish(group_1 + scales, cell, j, to + 1024, acc + 1024)

    @device
    def end(d, k, b, group_0, group_1, two, pad, acc):
        """Nothing is left to do."""

    return begin, end


# ---- the product --------------------------------------------------------------------------------------------


def gemm_rows(unpack: Any, begin_and_end: Any, gather: Any, depth: int) -> Any:
    """Rows [low, high) of a matrix times `items` tokens; the arguments are those of `gemm.gemm`.

    Tokens are taken as many at a time as stay in the second-level cache; rows sixteen by sixteen. Each block of rows is
    unpacked while the one before it is multiplied; a product is finished while the next one is under way.
    """
    begin, end = begin_and_end

    @routine
    def gather_tokens(x, x_item, first, n, items, k, order, share, groups):
        addresses = sixteen()
        for g in range(0, n, 16):
            for t in range(16):
                set_i64(addresses + 8 * t, x + item_at(order, first + g + t, items) // share * x_item)
            gather(addresses, k, groups + g // 16 * group_bytes(k))

    @routine
    def put(out, out_item, order, first, n, items, r, last, pad):
        """Results, rows by tokens, to where they belong."""
        addresses, transposed = sixteen(), pad
        for g in range(0, n, 16):
            acc = pad + ACC + 64 * g
            for i in range(ROWS):
                set_i64(addresses + 8 * i, acc + 64 * i)
                at = acc + 64 * i
                store_floats(at, load_floats(at) - load_floats(at + LESS - ACC))
            transpose(addresses, 0, transposed)
            for t in range(min(16, n - g)):
                target = out + item_at(order, first + g + t, items) * out_item + 4 * r
                if last == ROWS - 1:
                    store_floats(target, load_floats(transposed + 64 * t))
                else:
                    store_floats_part(target, load_floats(transposed + 64 * t), last + 1)

    @routine
    def sixteen_rows(w, w_row, last, k, n, groups, pad):
        """Sixteen rows times n tokens."""
        size = group_bytes(k)
        for i in range(0, 64 * ((n + 15) & ~15), 64):
            store_floats(pad + ACC + i, zeros())
            store_floats(pad + LESS + i, zeros())
        blocks, turn, before, b_0, at_0, two_0, g_0 = (k + 255) // 256, 0, pad, 0, 0, False, 0
        unpack(w, w_row, last, 0, min(8, k // 32), cell_of(pad, 0), scales_of(pad, 0), 0, ROWS)
        for b in range(blocks):
            ahead = b + 1 if b + 1 < blocks else 0
            for g in range(0, n, 32):
                at, two, sums, acc = groups + g // 16 * size, g + 16 < n, pad + 8192 * (turn & 1), pad + ACC + 64 * g
                runs = min(8, k // 32 - 8 * b)
                begin(k, b, runs, at, at + size, two, sums, acc, w, w_row, last, ahead if g == 0 else 0, pad)
                if turn:
                    end(scales_of(pad, b_0), k, b_0, at_0, at_0 + size, two_0, before, pad + ACC + 64 * g_0)
                turn, before, b_0, at_0, two_0, g_0 = turn + 1, sums, b, at, two, g
        end(scales_of(pad, b_0), k, b_0, at_0, at_0 + size, two_0, before, pad + ACC + 64 * g_0)

    @routine
    def run(w, w_row, low, high, x, x_item, items, out, out_item, k, scratch, order, share):
        groups, size = scratch + AMX_PAD, group_bytes(k)
        resident = 16 * max(2, min(AMX_TOKENS // 16, AMX_L2_BYTES // size & ~1))
        set_up(depth, 16)
        for i in range(MINS, CELL_BYTES, 8):
            set_i64(scratch + CELL + i, 0)
            set_i64(scratch + CELL + CELL_BYTES + i, 0)
        for first in range(0, items, resident):
            n = min(resident, items - first)
            gather_tokens(x, x_item, first, n, items, k, order, share, groups)
            for r in range(low, high, ROWS):
                last = min(high - r, ROWS) - 1
                sixteen_rows(w + r * w_row, w_row, last, k, n, groups, scratch)
                put(out, out_item, order, first, n, items, r, last, scratch)
        release()

    return run


def kernel_of(unpack: Any, multiply: Any, form: Any, gather: Any, depth: int) -> Any:
    unpack_rows = unpack(form)
    return gemm_rows(unpack_rows, multiply(form, unpack_rows), gather, depth)


AMX = {name: kernel_of(unpack_32, multiply_32, form, gather_32, 32) for name, form in BLOCKS_32.items()}
AMX |= {name: kernel_of(unpack_super, multiply_super, form, gather_256, 64) for name, form in SUPERBLOCKS.items()}
