"""Tiles of quantized weights inside a kernel: their codes as bytes, and the scales of their runs.

A tile is 8 rows by 128 columns. A lane of a warp stands for one row (g, of 8) and one run of 32 columns (t, of 4);
the codes of its run are in its own registers, so the scale of a run is a scalar of the lane. What is loaded has the
shape [T, 8, 4, words]: T tiles, g, t, and the words of a lane. Kernels go by units: a tile, or the two tiles of a
super-block of 256 columns, whose scales are then loaded once (`halves_in`).

A plane of 8, 4, 2 or 1 bits holds the codes of a run in 8, 4, 2 or 1 words: planes of fields over as many words, as
the file's formats have planes over bytes (`quant.bits.fields`). So pass s (0, 1) over the words yields the codes of
the first and of the last 16 columns of a run, one in each byte of 4 words: word c, byte b is column 16 s + 4 c + b.
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
def halves_in(form):
    """Tiles to a unit."""
    return 2 if scales_of(form) in ("i8 for 16", "i8 for 32", "u4 min for 16", "u6 min") else 1


@triton.constexpr_function
def has_minima(form):
    return "min" in scales_of(form)


@triton.constexpr_function
def by_16(form):
    return scales_of(form).endswith("16") or scales_of(form) == "e4m3"


@triton.constexpr_function
def nibbles_only(form):
    """Codes are nibbles, and levels are codes."""
    return form.startswith("4/0/") and form.endswith("/")


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
    at = tile[:, None] * (32 * WIDTH) + (PASS * 128 if WIDTH == 8 else 0) + tl.arange(0, 32 * WORDS)[None, :]
    return tl.reshape(tl.load(plane + at), [T, 8, 4, WORDS])


@triton.jit
def load_planes(low, high, tile, FORM: tl.constexpr):
    """What `levels_of` reads: the lower plane, once for each pass, and the other; what there is not is the lower."""
    LOW: tl.constexpr = low_of(FORM)
    first = load_words(low, tile, LOW, 0)
    last = first
    other = first
    if LOW == 8:
        last = load_words(low, tile, 8, 1)
    if high_of(FORM) > 0:
        other = load_words(high, tile, high_of(FORM), 0)
    return first, last, other


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
def levels_of(planes, FORM: tl.constexpr, FLIP: tl.constexpr):
    """The levels of both passes as bytes, [T, 8, 4, 4] each, before the format's offset.

    They are signed; with FLIP = 128, those that can be negative are 128 larger, and unsigned.
    """
    LOW: tl.constexpr = low_of(FORM)
    HIGH: tl.constexpr = high_of(FORM)
    TABLE: tl.constexpr = table_of(FORM, FLIP)
    if len(TABLE) == 4:
        tl.static_assert(LOW == 4 and HIGH == 0)
        v0, v1 = look_up_nibbles(planes[0], TABLE)
    else:
        v0 = bytes_of(planes[0], LOW, 0)
        v1 = bytes_of(planes[1], LOW, 1)
        if HIGH > 0:
            v0 |= bytes_of(planes[2], HIGH, 0) << LOW
            v1 |= bytes_of(planes[2], HIGH, 1) << LOW
        if len(TABLE) > 0:
            v0 = look_up(v0, TABLE)
            v1 = look_up(v1, TABLE)
        elif LOW == 8 and FLIP:
            v0 ^= -0x7F7F7F80  # 0x80808080
            v1 ^= -0x7F7F7F80
    return v0, v1


@triton.jit
def per_row(base, tile, WORDS: tl.constexpr):
    """The words that each row of tiles has: [T] → [T, 8, 1, words]."""
    T: tl.constexpr = tile.shape[0]
    return tl.reshape(tl.load(base + tile[:, None] * (8 * WORDS) + tl.arange(0, 8 * WORDS)[None, :]), [T, 8, 1, WORDS])


@triton.jit
def one_per_row(base, tile):
    """A word of each row of tiles: [T] → [T, 8, 1]."""
    return tl.load(base + tile[:, None] * 8 + tl.arange(0, 8)[None, :])[:, :, None]


@triton.jit
def half_word(base, tile):
    """The 16 bits of each run, where rows of a tile have four: [T] → [T, 8, 4]."""
    a, b = tl.split(per_row(base, tile, 2))
    t = tl.arange(0, 4)[None, None, :]
    return (tl.where(t < 2, a, b) >> (16 * (t & 1))) & 0xFFFF


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
def load_tops(scale, top, unit, KIND: tl.constexpr):
    """What the two tiles of a unit of 256 columns share, for `load_scales`: four times [T, 8, 1]."""
    if KIND == "u6 min":  # Q4_K and Q5_K: a block's 16 bytes of header as they are in the file
        T: tl.constexpr = unit.shape[0]
        even, odd = tl.split(tl.reshape(per_row(scale, unit, 4), [T, 8, 1, 2, 2]))
        a, c = tl.split(even)
        b, d = tl.split(odd)
    elif KIND == "i8 for 16" or KIND == "i8 for 32" or KIND == "u4 min for 16":
        a = one_per_row(top, unit)
        b = a
        c = a
        d = a
    else:
        a = 0
        b = 0
        c = 0
        d = 0
    return a, b, c, d


@triton.jit
def load_scales(tops, scale, tile, half, KIND: tl.constexpr):
    """Scales and minima of a lane's first and last 16 columns: value = scale · level + minimum; [T, 8, 4] each.

    `half`: whether the tiles are the first (0) or the last of their units.
    """
    t = tl.arange(0, 4)[None, None, :]
    if KIND == "f16":  # float16 for 32 columns
        s0 = f16_low(half_word(scale, tile))
        s1 = s0
        m0 = s0
        m1 = s0
    elif KIND == "f16 min":  # float16 scale and minimum for 32 columns
        T: tl.constexpr = tile.shape[0]
        w = tl.reshape(tl.load(scale + tile[:, None] * 32 + tl.arange(0, 32)[None, :]), [T, 8, 4])
        s0 = f16_low(w)
        m0 = f16_high(w)
        s1 = s0
        m1 = m0
    elif KIND == "e8m0":  # the exponent of a power of two for 32 columns; levels are doubled
        e = (one_per_row(scale, tile) >> (8 * t)) & 255
        s0 = tl.where(e < 2, 0x00200000 << e, (e - 1) << 23).to(tl.float32, bitcast=True)
        s1 = s0
        m0 = s0
        m1 = s0
    elif KIND == "e4m3":  # 8-bit floats for 16 columns, without sign; levels are doubled
        w = half_word(scale, tile)
        s0 = f16_low((w & 255) << 7) * 128.0
        s1 = f16_low((w >> 8) << 7) * 128.0
        m0 = s0
        m1 = s0
    elif KIND == "i8 for 16":  # signed bytes for 16 columns, times the super-block's scale
        w = half_word(scale, tile)
        s0 = tops[0] * signed_byte(w, 0).to(tl.float32)
        s1 = tops[0] * signed_byte(w, 8).to(tl.float32)
        m0 = s0
        m1 = s0
    elif KIND == "i8 for 32":  # signed bytes for 32 columns, times the super-block's scale
        s0 = tops[0] * signed_byte(one_per_row(scale, tile), 8 * t).to(tl.float32)
        s1 = s0
        m0 = s0
        m1 = s0
    elif KIND == "u4 min for 16":  # Q2_K: nibbles of scale and minimum for 16 columns, times float16 of the super-block
        w = half_word(scale, tile)
        d = f16_low(tops[0])
        m = -f16_high(tops[0])
        s0 = d * (w & 15).to(tl.float32)
        m0 = m * ((w >> 4) & 15).to(tl.float32)
        s1 = d * ((w >> 8) & 15).to(tl.float32)
        m1 = m * (w >> 12).to(tl.float32)
    else:  # "u6 min"
        both, u0, u1, u2 = tops
        v = u2 >> (8 * t)
        sc = tl.where(half == 0, (u0 >> (8 * t)) & 63, (v & 15) | ((u0 >> (8 * t + 2)) & 48))
        mn = tl.where(half == 0, (u1 >> (8 * t)) & 63, ((v >> 4) & 15) | ((u1 >> (8 * t + 2)) & 48))
        s0 = f16_low(both) * sc.to(tl.float32)
        m0 = -f16_high(both) * mn.to(tl.float32)
        s1 = s0
        m1 = m0
    return s0, s1, m0, m1


@triton.jit
def look_up(v, TABLE: tl.constexpr):
    """Codes below 8, one to a byte, as levels; the table is two words."""
    if INTERPRETED:
        out = tl.zeros_like(v)
        for b in tl.static_range(4):
            out |= entry((v >> (8 * b)) & 255, TABLE) << (8 * b)
        return out
    else:
        # Four bytes of 3 bits become the four nibbles by which `prmt` picks bytes of two words.
        return tl.inline_asm_elementwise(
            "{ .reg .b32 t; shr.u32 t, $1, 4; or.b32 t, t, $1; prmt.b32 t, t, 0, 0x4420; prmt.b32 $0, $2, $3, t; }",
            "=r,r,r,r",
            [v, TABLE[0], TABLE[1]],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )


@triton.jit
def look_up_nibbles(v, TABLE: tl.constexpr):
    """The lower and the upper nibbles of four bytes as levels; the table is four words."""
    if INTERPRETED:
        low = tl.zeros_like(v)
        high = tl.zeros_like(v)
        for b in tl.static_range(4):
            low |= entry((v >> (8 * b)) & 15, TABLE) << (8 * b)
            high |= entry((v >> (8 * b + 4)) & 15, TABLE) << (8 * b)
        return low, high
    else:
        # By three bits of each nibble from either half of the table, then by the fourth from these; four nibbles at a
        # time. What comes of the lower and of the upper nibbles is sorted out at the end.
        return tl.inline_asm_elementwise(
            """{ .reg .b32 c, t, a, b, x, y; and.b32 c, $2, 0x77777777;
            shr.u32 t, $2, 1; and.b32 t, t, 0x44444444; or.b32 t, t, 0x32103210;
            prmt.b32 a, $3, $4, c; prmt.b32 b, $5, $6, c; prmt.b32 x, a, b, t; shr.u32 c, c, 16; shr.u32 t, t, 16;
            prmt.b32 a, $3, $4, c; prmt.b32 b, $5, $6, c; prmt.b32 y, a, b, t;
            prmt.b32 $0, x, y, 0x6420; prmt.b32 $1, x, y, 0x7531; }""",
            "=r,=r,r,r,r,r,r",
            [v, TABLE[0], TABLE[1], TABLE[2], TABLE[3]],
            dtype=(tl.int32, tl.int32),
            is_pure=True,
            pack=1,
        )


@triton.jit
def entry(code, TABLE: tl.constexpr):
    """A byte of a table of words, where there is no `prmt`."""
    out = tl.zeros_like(code)
    for i in tl.static_range(4 * len(TABLE)):
        out |= tl.where(code == i, (TABLE[i // 4] >> (8 * (i % 4))) & 255, 0)
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


@triton.jit
def dot4_unsigned(a, b, c):
    """c + the products of four unsigned bytes of a and of four signed ones of b."""
    if INTERPRETED:
        for i in tl.static_range(4):
            c += ((a >> (8 * i)) & 255) * signed_byte(b, 8 * i)
        return c
    else:
        return tl.inline_asm_elementwise(
            "dp4a.u32.s32 $0, $1, $2, $3;", "=r,r,r,r", [a, b, c], dtype=tl.int32, is_pure=True, pack=1
        )


@triton.jit
def fetch_ahead(plane, tile, TILES: tl.constexpr, WIDTH: tl.constexpr):
    """Ask for TILES tiles of a plane to be in the cache soon."""
    if not INTERPRETED:
        LINES: tl.constexpr = triton.next_power_of_2(TILES * WIDTH)  # of 128 bytes
        line = tl.arange(0, LINES)
        at = (plane + tile * (32 * WIDTH) + tl.minimum(line, TILES * WIDTH - 1) * 32).to(tl.int64)
        tl.inline_asm_elementwise("prefetch.global.L2 [$1]; // $0", "=r,l", [at], dtype=tl.int32, is_pure=False, pack=1)
