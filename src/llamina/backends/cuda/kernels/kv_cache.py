"""Keys and values in pages of 16 positions: how they lie there, and how they are read and written.

A line is a head's row of one position: line (page × heads + head) × 16 + position % 16. Lines of floats lie one after
the other. In a quantized cache the 16 lines of a head's page are their integers or 8-bit floats, then their float16
scales: one for each 32 elements, or one for a line of fp8. `states` makes the canonical layout of that.
"""

import triton
import triton.language as tl

from llamina.backends.cuda.kernels.activations import blocks_of
from llamina.backends.cuda.kernels.early import begin

PAGE = tl.constexpr(16)


@triton.jit
def part(rows, row_mask, at, size):
    """A tile of a matrix whose rows begin at `rows`; `at` are its columns, of which there are `size`."""
    return tl.load(rows[:, None] + at[None, :], mask=row_mask[:, None] & (at < size)[None, :], other=0.0)


@triton.jit
def tile(rows, row_mask, at, size: tl.constexpr, END: tl.constexpr, MASKED: tl.constexpr):
    """As `part`, without masks that are not needed: without MASKED all rows are there; columns end at END."""
    if MASKED or size < END:  # noqa: SIM108 - Triton compiles one of the two
        found = part(rows, row_mask, at, size)
    else:
        found = tl.load(rows[:, None] + at[None, :])
    return found


@triton.jit
def scales_of(store, line, row_bytes, runs):
    """Where the scales of lines are, of which each has so many behind the bytes of its page."""
    page = store + (line >> 4) * (PAGE * (row_bytes + 2 * runs)) + PAGE * row_bytes
    return page.to(tl.pointer_type(tl.float16), bitcast=True) + (line & 15) * runs


@triton.jit
def bytes_of(store, line, row_bytes, runs):
    """Where the integers or 8-bit floats of lines are."""
    return store + (line >> 4) * (PAGE * (row_bytes + 2 * runs)) + (line & 15) * row_bytes


@triton.jit
def load_lines(store, line, mask, DIM: tl.constexpr, SIZE: tl.constexpr, START: tl.constexpr, WIDE: tl.constexpr,
               MASKED: tl.constexpr, KIND: tl.constexpr):  # fmt: skip
    """Elements [START, START + WIDE) of lines of DIM elements, zeros from SIZE on: floats as they are, or float16.

    Every element has its scale loaded: with fewer of them, lines would be needed in two layouts, and then Triton 3.6
    now and then reads from wrong addresses.
    """
    at = START + tl.arange(0, WIDE)
    if KIND == "q8_0":
        RUNS: tl.constexpr = (DIM + 31) // 32
        x = tile(bytes_of(store, line, 32 * RUNS, RUNS), mask, at, SIZE, START + WIDE, MASKED).to(tl.float16)
        found = x * tile(
            scales_of(store, line, 32 * RUNS, RUNS), mask, at // 32, RUNS, START // 32 + WIDE // 32, MASKED
        )
    elif KIND == "q4_0":
        RUNS: tl.constexpr = (DIM + 31) // 32
        rows, byte = bytes_of(store, line, 16 * RUNS, RUNS), at // 32 * 16 + at % 16
        x = tile(rows, mask, byte, 16 * RUNS, START // 2 + WIDE // 2, MASKED) >> (at % 32 // 16 * 4)[None, :]
        scale = tile(scales_of(store, line, 16 * RUNS, RUNS), mask, at // 32, RUNS, START // 32 + WIDE // 32, MASKED)
        found = ((x & 15).to(tl.float16) - 8.0) * scale
    elif KIND == "fp8":
        x = tile(bytes_of(store, line, DIM, 1), mask, at, SIZE, START + WIDE, MASKED)
        scale = tile(scales_of(store, line, DIM, 1), mask, at * 0, SIZE, START + WIDE, MASKED)
        found = x.to(tl.float8e4nv, bitcast=True).to(tl.float16) * scale
    else:
        found = tile(store + line * DIM, mask, at, SIZE, START + WIDE, MASKED)
    return found


@triton.jit
def nibbles_of(v):
    """Blocks v [B, 32] f32 as 4-bit numbers, two to a byte, i32 [B, 16], and their scales [B], as ggml chooses them."""
    B: tl.constexpr = v.shape[0]
    low, high = tl.min(v, 1), tl.max(v, 1)
    scale = tl.where(-low >= high, low, high) / -8.0
    inverse = 1.0 / tl.where(scale == 0.0, 1.0, scale)
    # Adding 1.5 · 2²³ rounds to the nearest whole number, which is then in the lower bits.
    q = (v * inverse[:, None] + 12582912.0).to(tl.int32, bitcast=True) - 0x4B400000
    q = tl.minimum(tl.maximum(q, -8), 7) + 8
    first, second = tl.split(tl.permute(tl.reshape(q, [B, 2, 16]), (0, 2, 1)))
    return first | (second << 4), scale + tl.sum(v * 0.0, 1)


@triton.jit
def store_lines(store, line, x, mask, dim, KIND: tl.constexpr):
    """Lines x [R, BLOCK] f32 of `dim` elements; in blocks, BLOCK is 32 at the least.

    A block or a line of fp8 that holds NaN or infinity has NaN as its scale.
    """
    R: tl.constexpr = x.shape[0]
    BLOCK: tl.constexpr = x.shape[1]
    i = tl.arange(0, BLOCK)
    inside = mask[:, None] & (i < dim)[None, :]
    if KIND == "q8_0":
        runs = (dim + 31) // 32
        run = tl.arange(0, BLOCK // 32)
        there = mask[:, None] & (i < 32 * runs)[None, :]
        q, scale = blocks_of(tl.reshape(tl.where(inside, x, 0.0), [R * (BLOCK // 32), 32]))
        rows = bytes_of(store, line, 32 * runs, runs)
        tl.store(rows[:, None] + i[None, :], tl.reshape(q.to(tl.int8), [R, BLOCK]), mask=there)
        rows = scales_of(store, line, 32 * runs, runs)
        scale = tl.reshape(scale.to(tl.float16), [R, BLOCK // 32])
        tl.store(rows[:, None] + run[None, :], scale, mask=mask[:, None] & (run < runs)[None, :])
    elif KIND == "q4_0":
        runs = (dim + 31) // 32
        run, half = tl.arange(0, BLOCK // 32), tl.arange(0, BLOCK // 2)
        q, scale = nibbles_of(tl.reshape(tl.where(inside, x, 0.0), [R * (BLOCK // 32), 32]))
        rows = bytes_of(store, line, 16 * runs, runs)
        there = mask[:, None] & (half < 16 * runs)[None, :]
        tl.store(rows[:, None] + half[None, :], tl.reshape(q.to(tl.uint8), [R, BLOCK // 2]), mask=there)
        rows = scales_of(store, line, 16 * runs, runs)
        scale = tl.reshape(scale.to(tl.float16), [R, BLOCK // 32])
        tl.store(rows[:, None] + run[None, :], scale, mask=mask[:, None] & (run < runs)[None, :])
    elif KIND == "fp8":
        x = tl.where(inside, x, 0.0)
        # The largest is at most 448 = 1.75 · 2⁸ times the scale: its exponent, one more if its fraction is above 1.75.
        bits = (tl.max(tl.abs(x), 1).to(tl.int32, bitcast=True) + 0x1FFFFF) & 0x7F800000
        bits = tl.maximum(bits - (8 << 23), 103 << 23)
        scale = bits.to(tl.float32, bitcast=True) + tl.sum(x * 0.0, 1)
        x *= ((254 << 23) - bits).to(tl.float32, bitcast=True)[:, None]
        rows = bytes_of(store, line, dim, 1)
        tl.store(rows[:, None] + i[None, :], x.to(tl.float8e4nv).to(tl.uint8, bitcast=True), mask=inside)
        tl.store(scales_of(store, line, dim, 1), scale.to(tl.float16), mask=mask)
    else:
        tl.store((store + line * dim)[:, None] + i[None, :], x.to(store.dtype.element_ty), mask=inside)


@triton.jit
def hadamard(v, SIZE: tl.constexpr):
    """Every SIZE elements of v [N] times the orthonormal Hadamard matrix: log2 SIZE rounds of sums and differences.

    Each round takes neighbours, and puts all sums before all differences.
    """
    N: tl.constexpr = v.shape[0]
    x = tl.reshape(v, [N // SIZE, SIZE])
    for stage in tl.static_range(6):
        if (2 << stage) <= SIZE:
            a, b = tl.split(tl.reshape(x, [N // SIZE, SIZE // 2, 2]))
            x = tl.reshape(tl.permute(tl.join(a + b, a - b), (0, 2, 1)), [N // SIZE, SIZE])
    return tl.reshape(x, [N]) * SIZE**-0.5


@triton.jit
def rotate(x, x_row, x_head, out, out_row, out_head, count, outer, inner, SIZE: tl.constexpr, BLOCK: tl.constexpr,
           EARLY: tl.constexpr):  # fmt: skip
    """The Hadamard rotation of a cache of four bits: of every SIZE elements, of which a head has a whole number."""
    begin(EARLY)
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(count):
        return
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    head, at, inside = i // inner, i % inner, i < outer * inner
    v = tl.load(x + row * x_row + head * x_head + at, mask=inside, other=0.0)
    tl.store(out + row * out_row + head * out_head + at, hadamard(v, SIZE), mask=inside)


@triton.jit
def keep(x, x_row, x_head, pages, tables, tables_row, positions, sequences, count, heads, dim, KIND: tl.constexpr,
         BLOCK: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """A head of each token into its sequence's page."""
    begin(EARLY)
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1) + tl.arange(0, 1)
    if row >= tl.load(count):
        return
    position = tl.load(positions + row)
    page = tl.load(tables + tl.load(sequences + row) * tables_row + position // PAGE).to(tl.int64)
    v = part(x + row * x_row + head * x_head, head < heads, tl.arange(0, BLOCK), dim)
    store_lines(pages, (page * heads + head) * PAGE + position % PAGE, v, head < heads, dim, KIND)


@triton.jit
def unpack(store, out, tables, tables_row, positions, starts, spans, behind, pages, HEADS: tl.constexpr,
           DIM: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr,
           EARLY: tl.constexpr):  # fmt: skip
    """A page of a quantized cache as float16, if attention reads it: page p of sequence s is s × `pages` + p of `out`.

    `behind` is the window, or None: attention begins with the block of BLOCK keys that the window begins in. What is
    no position yet is unpacked, too, and not read.
    """
    begin(EARLY)
    number, sequence, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if sequence >= tl.load(spans):
        return
    if number * PAGE > tl.load(positions + tl.load(starts + sequence + 1) - 1):
        return
    if behind is not None:
        low = tl.maximum(tl.load(positions + tl.load(starts + sequence)) - behind + 1, 0)
        if number * PAGE < low // BLOCK * BLOCK:
            return
    page = tl.load(tables + sequence * tables_row + number).to(tl.int64)
    i, d = tl.arange(0, PAGE), tl.arange(0, WIDE)
    x = load_lines(store, (page * HEADS + head) * PAGE + i, i >= 0, DIM, DIM, 0, WIDE, False, KIND)
    to = ((sequence * pages + number).to(tl.int64) * HEADS + head) * PAGE
    tl.store(out + ((to + i) * DIM)[:, None] + d[None, :], x, mask=(i >= 0)[:, None] & (d < DIM)[None, :])
