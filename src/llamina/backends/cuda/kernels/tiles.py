"""Tiles of quantized weights inside a kernel: their codes as bytes, and the scales of their runs.

A tile is 8 rows by 128 columns. A lane of a warp stands for one row (g, of 8) and one run of 32 columns (t, of 4); the
codes of its run are in its own registers, so the scale of a run is a scalar of the lane. What is loaded has the shape
[T, 8, 4, words]: T tiles, g, t, and the words of a lane.

A plane of 8, 4, 2 or 1 bits holds the codes of a run in 8, 4, 2 or 1 words: planes of fields over as many words, as the
file's formats have planes over bytes (`quant.bits.fields`). So pass s (0, 1) over the words yields the codes of the first and
of the last 16 columns of a run, one in each byte of 4 words: word c, byte b is column 16 s + 4 c + b.
"""

import os

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


# A form is a constant of kernels, spelt as `formats.Form` does: "low/high/offset/scales/levels".


@triton.constexpr_function
def low_of(form):
    return int(form.split("/")[0])


@triton.constexpr_function
def high_of(form):
    return int(form.split("/")[1])


@triton.constexpr_function
def offset_of(form):
    return int(form.split("/")[2])


@triton.constexpr_function
def scales_of(form):
    return form.split("/")[3]


@triton.constexpr_function
def has_minima(form):
    return "min" in scales_of(form)


@triton.constexpr_function
def by_16(form):
    return scales_of(form).endswith("16") or scales_of(form) == "e4m3"


@triton.constexpr_function
def table_of(form, flip):
    """The levels as words of four bytes, 0, 2 or 4 of them; `flip` is added to each byte without carry."""
    levels = [int(v) for v in form.split("/")[4].split(",") if v]
    levels += [0] * (-len(levels) % 8)
    packed = [((v & 255) ^ flip) << (8 * (i % 4)) for i, v in enumerate(levels)]
    words = [sum(packed[i : i + 4]) for i in range(0, len(packed), 4)]
    return tuple(w - (1 << 32) if w >> 31 else w for w in words)


@triton.jit
def load_words(plane, tile, WIDTH: tl.constexpr, PASS: tl.constexpr):
    """A plane's words of tiles [T] → [T, 8, 4, words]; of 8 bits, those of one pass."""
    T: tl.constexpr = tile.shape[0]
    WORDS: tl.constexpr = 4 if WIDTH == 8 else WIDTH
    SIZE: tl.constexpr = 32 * WIDTH
    if WIDTH == 1:
        v = by_lane(plane, tile[None, :] * 32 + tl.arange(0, 32)[:, None])
    else:
        at = tile[:, None] * SIZE + (PASS * 128 if WIDTH == 8 else 0) + tl.arange(0, 32 * WORDS)[None, :]
        v = tl.load(plane + tl.max_contiguous(at, [1, WORDS]))  # a lane's own words, and no more
    return tl.reshape(v, [T, 8, 4, WORDS])


@triton.jit
def by_lane(base, at):
    """One word a lane, from places [32, T] → [T, 8, 4].

    Triton gives the lanes of a warp to the first axis where none is contiguous; so they are where `load_words` has them.
    """
    v = tl.load(base + tl.max_contiguous(at, [1, 1]))
    return tl.reshape(tl.trans(v), [at.shape[1], 8, 4])


@triton.jit
def bytes_of(words, WIDTH: tl.constexpr, PASS: tl.constexpr):
    """The fields of a pass, one to a byte: [T, 8, 4, words] → [T, 8, 4, 4]."""
    T: tl.constexpr = words.shape[0]
    if WIDTH == 8:
        v = words
    elif WIDTH == 4:
        v = (words >> (4 * PASS)) & 0x0F0F0F0F
    elif WIDTH == 2:
        shift = tl.arange(0, 2)[None, None, None, :, None] * 2 + 4 * PASS
        v = tl.reshape((words[:, :, :, None, :] >> shift) & 0x03030303, [T, 8, 4, 4])
    else:
        v = (words >> (tl.arange(0, 4)[None, None, None, :] + 4 * PASS)) & 0x01010101
    return v


@triton.jit
def per_row(base, tile, word, WORDS: tl.constexpr, SPREAD: tl.constexpr):
    """One of the words that each row of a tile has: [T] → [T, 8, 4], or [T, 8, 1].

    SPREAD: every lane loads its row's, which costs no exchange between lanes.
    """
    if SPREAD:
        v = by_lane(base, tile[None, :] * (8 * WORDS) + tl.arange(0, 32)[:, None] // 4 * WORDS + word)
    else:
        v = tl.load(base + tile[:, None] * (8 * WORDS) + tl.arange(0, 8)[None, :] * WORDS + word)[:, :, None]
    return v


@triton.jit
def per_lane(base, tile):
    """A word for each lane: [T] → [T, 8, 4]."""
    return by_lane(base, tile[None, :] * 32 + tl.arange(0, 32)[:, None])


@triton.jit
def four_per_row(base, tile, SPREAD: tl.constexpr):
    """Four words of each row of a tile, loaded together: four times [T, 8, 4], or [T, 8, 1]."""
    T: tl.constexpr = tile.shape[0]
    if SPREAD:
        i = tl.arange(0, 128)[None, :]
        v = tl.reshape(tl.load(base + tile[:, None] * 32 + i // 16 * 4 + i % 4), [T, 8, 4, 2, 2])
    else:
        v = tl.reshape(tl.load(base + tile[:, None] * 32 + tl.arange(0, 32)[None, :]), [T, 8, 1, 2, 2])
    even, odd = tl.split(v)
    a, c = tl.split(even)
    b, d = tl.split(odd)
    return a, b, c, d


@triton.jit
def f16_low(word):
    return (word & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def f16_high(word):
    return ((word >> 16) & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def signed_byte(word, shift):
    return ((word >> shift) << 24) >> 24


@triton.jit
def load_scales(scale, top, tile, block, half, KIND: tl.constexpr, SPREAD: tl.constexpr):
    """Scales and minima of a lane's first and last 16 columns: value = scale · level + minimum; [T, 8, 4] each.

    `block` [T]: the places of the tiles' super-blocks of 256 columns; `half`: which of their two tiles it is.
    """
    t = tl.arange(0, 4)[None, None, :]
    if KIND == "f16":  # float16 for 32 columns
        w = tl.where(t < 2, per_row(scale, tile, 0, 2, SPREAD), per_row(scale, tile, 1, 2, SPREAD))
        s0 = f16_low(w >> (16 * (t & 1)))
        s1 = s0
        m0 = s0
        m1 = s0
    elif KIND == "f16 min":  # float16 scale and minimum for 32 columns
        w = per_lane(scale, tile)
        s0 = f16_low(w)
        m0 = f16_high(w)
        s1 = s0
        m1 = m0
    elif KIND == "e8m0":  # the exponent of a power of two for 32 columns; levels are doubled
        e = (per_row(scale, tile, 0, 1, SPREAD) >> (8 * t)) & 255
        s0 = tl.where(e < 2, 0x00200000 << e, (e - 1) << 23).to(tl.float32, bitcast=True)
        s1 = s0
        m0 = s0
        m1 = s0
    elif KIND == "e4m3":  # 8-bit floats for 16 columns, without sign; levels are doubled
        w = tl.where(t < 2, per_row(scale, tile, 0, 2, SPREAD), per_row(scale, tile, 1, 2, SPREAD)) >> (16 * (t & 1))
        s0 = f16_low((w & 255) << 7) * 128.0
        s1 = f16_low(((w >> 8) & 255) << 7) * 128.0
        m0 = s0
        m1 = s0
    elif KIND == "i8 for 16":  # signed bytes for 16 columns, times the super-block's scale
        w = tl.where(t < 2, per_row(scale, tile, 0, 2, SPREAD), per_row(scale, tile, 1, 2, SPREAD)) >> (16 * (t & 1))
        d = per_row(top, block, 0, 1, SPREAD)
        s0 = d * signed_byte(w, 0).to(tl.float32)
        s1 = d * signed_byte(w, 8).to(tl.float32)
        m0 = s0
        m1 = s0
    elif KIND == "i8 for 32":  # signed bytes for 32 columns, times the super-block's scale
        w = per_row(scale, tile, 0, 1, SPREAD)
        s0 = per_row(top, block, 0, 1, SPREAD) * signed_byte(w, 8 * t).to(tl.float32)
        s1 = s0
        m0 = s0
        m1 = s0
    elif KIND == "u4 min for 16":  # Q2_K: nibbles of scale and minimum for 16 columns, times float16 of the super-block
        w = tl.where(t < 2, per_row(scale, tile, 0, 2, SPREAD), per_row(scale, tile, 1, 2, SPREAD)) >> (16 * (t & 1))
        both = per_row(top, block, 0, 1, SPREAD)
        d = f16_low(both)
        m = -f16_high(both)
        s0 = d * (w & 15).to(tl.float32)
        m0 = m * ((w >> 4) & 15).to(tl.float32)
        s1 = d * ((w >> 8) & 15).to(tl.float32)
        m1 = m * ((w >> 12) & 15).to(tl.float32)
    else:  # "u6 min": Q4_K and Q5_K: a block's 16 bytes of header as they are in the file
        both, u0, u1, u2 = four_per_row(scale, block, SPREAD)
        v = u2 >> (8 * t)
        first = half == 0
        sc = tl.where(first, (u0 >> (8 * t)) & 63, (v & 15) | ((u0 >> (8 * t + 2)) & 48))
        mn = tl.where(first, (u1 >> (8 * t)) & 63, ((v >> 4) & 15) | ((u1 >> (8 * t + 2)) & 48))
        s0 = f16_low(both) * sc.to(tl.float32)
        m0 = -f16_high(both) * mn.to(tl.float32)
        s1 = s0
        m1 = m0
    return s0, s1, m0, m1


@triton.jit
def look_up(v, TABLE: tl.constexpr):
    """Codes, one to a byte, as levels: a table of 8 or 16 bytes, given as 2 or 4 words."""
    if INTERPRETED:
        out = tl.zeros_like(v)
        for b in tl.static_range(4):
            code = (v >> (8 * b)) & 255
            for i in tl.static_range(4 * len(TABLE)):
                out |= tl.where(code == i, (TABLE[i // 4] >> (8 * (i % 4))) & 255, 0) << (8 * b)
    elif len(TABLE) == 2:
        # Four bytes of 3 bits become the four nibbles by which `prmt` picks bytes of two words.
        out = tl.inline_asm_elementwise(
            """{ .reg .b32 t; shr.u32 t, $1, 4; or.b32 t, t, $1; prmt.b32 t, t, 0, 0x4420; prmt.b32 $0, $2, $3, t; }""",
            "=r,r,r,r",
            [v, TABLE[0], TABLE[1]],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
    else:
        out = tl.inline_asm_elementwise(
            """{ .reg .b32 t, a, b, c; shr.u32 t, $1, 4; or.b32 t, t, $1; prmt.b32 t, t, 0, 0x4420;
            and.b32 c, t, 0x7777; prmt.b32 a, $2, $3, c; prmt.b32 b, $4, $5, c;
            shr.u32 t, t, 1; and.b32 t, t, 0x4444; or.b32 t, t, 0x3210; prmt.b32 $0, a, b, t; }""",
            "=r,r,r,r,r,r",
            [v, TABLE[0], TABLE[1], TABLE[2], TABLE[3]],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
    return out


@triton.jit
def dot4(a, b, c):
    """c + the products of four signed bytes of a and of b."""
    if INTERPRETED:
        for i in tl.static_range(4):
            c += signed_byte(a, 8 * i) * signed_byte(b, 8 * i)
        return c
    else:
        return tl.inline_asm_elementwise(
            "dp4a.s32.s32 $0, $1, $2, $3;", "=r,r,r,r", [a, b, c], dtype=tl.int32, is_pure=True, pack=1
        )
