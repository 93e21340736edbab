"""Weights laid out by the GPU itself, at load: rows of a file's blocks become what `layout` describes.

The same as `Layout.pack` in NumPy, byte for byte, at the speed of the bus. `raw` are rows of blocks as they are in
the file, `stride` bytes apart; they become row groups from `first` on. A program makes the words of one tile, or of
one super-block's rows.
"""

import triton
import triton.language as tl


@triton.jit
def byte_at(p, mask):
    return tl.load(p, mask=mask, other=0).to(tl.int32)


@triton.jit
def word_at(p, mask):
    """Four bytes at any address."""
    return byte_at(p, mask) | byte_at(p + 1, mask) << 8 | byte_at(p + 2, mask) << 16 | byte_at(p + 3, mask) << 24


@triton.jit
def field_at(p, e, AT: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, mask):
    """Field e of blocks p: see `quant.bits.fields`."""
    PLANES: tl.constexpr = 8 // WIDTH
    byte = byte_at(p + AT + e // (GROUP * PLANES) * GROUP + e % GROUP, mask)
    return (byte >> (e // GROUP % PLANES * WIDTH)) & ((1 << WIDTH) - 1)


@triton.jit
def even_sign(seven, i):
    """Bit i of seven bits, and of an eighth that makes the number of ones even."""
    parity = seven ^ (seven >> 4)
    parity ^= parity >> 2
    parity ^= parity >> 1
    return tl.where(i < 7, seven >> i, parity) & 1


@triton.jit
def entry_code(p, e, table, KIND: tl.constexpr, mask):
    """The code of element e of a codebook format's blocks p (see `codebooks`)."""
    if KIND == "TQ1_0":
        byte = tl.where(e < 160, e % 32, tl.where(e < 240, 32 + (e - 160) % 16, 48 + (e - 240) % 4))
        trit = tl.where(e < 160, e // 32, tl.where(e < 240, (e - 160) // 16, (e - 240) // 4))
        power = tl.where(trit == 0, 1, tl.where(trit == 1, 3, tl.where(trit == 2, 9, tl.where(trit == 3, 27, 81))))
        code = (((byte_at(p + byte, mask) * power) & 255) * 3) >> 8
    else:
        WIDTH: tl.constexpr = 4 if KIND == "IQ3_XXS" or KIND == "IQ3_S" else 8
        if KIND == "IQ2_XXS":
            part = p + 2 + e // 32 * 8
            index = byte_at(part + e % 32 // 8, mask)
            more = even_sign((word_at(part + 4, mask) >> (e % 32 // 8 * 7)) & 127, e % 8) << 2
        elif KIND == "IQ2_XS":
            pair = byte_at(p + 2 + e // 8 * 2, mask) | byte_at(p + 3 + e // 8 * 2, mask) << 8
            index = pair & 511
            more = even_sign(pair >> 9, e % 8) << 2
        elif KIND == "IQ2_S":
            index = byte_at(p + 2 + e // 8, mask) | field_at(p, e // 8, 66, 1, 2, mask) << 8
            more = field_at(p, e, 34, 1, 1, mask) << 2
        elif KIND == "IQ3_XXS":
            index = byte_at(p + 2 + e // 4, mask)
            more = even_sign((word_at(p + 66 + e // 32 * 4, mask) >> (e % 32 // 8 * 7)) & 127, e % 8) << 3
        elif KIND == "IQ3_S":
            index = byte_at(p + 2 + e // 4, mask) | field_at(p, e // 4, 66, 1, 1, mask) << 8
            more = field_at(p, e, 74, 1, 1, mask) << 3
        elif KIND == "IQ1_S":
            pair = byte_at(p + 34 + e // 32 * 2, mask) | byte_at(p + 35 + e // 32 * 2, mask) << 8
            index = byte_at(p + 2 + e // 8, mask) | ((pair >> (e // 8 % 4 * 3)) & 7) << 8
            more = (pair >> 15) << 2
        else:
            tl.static_assert(KIND == "IQ1_M")
            high = field_at(p, e // 8, 32, 1, 4, mask)
            index = byte_at(p + e // 8, mask) | (high & 7) << 8
            more = (high >> 3) << 2
        code = byte_at(table + index * WIDTH + e % WIDTH, mask) | more
    return code


@triton.jit
def plane(
    raw, out, table, rows, stride, first,
    KIND: tl.constexpr, BLOCK: tl.constexpr, NBYTES: tl.constexpr, COLUMNS: tl.constexpr, TILES: tl.constexpr,
    AT: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """A plane of WIDTH bits of codes, of which it has those from bit SHIFT on; grid (row groups, tiles)."""
    group = tl.program_id(0)
    tile = tl.program_id(1)
    WORDS: tl.constexpr = 32 * WIDTH
    word = tl.arange(0, WORDS)[:, None]
    byte = tl.arange(0, 32 // WIDTH)[None, :] % 4
    field = tl.arange(0, 32 // WIDTH)[None, :] // 4
    if WIDTH == 8:  # pass g t c
        g = word // 16 % 8
        column = word // 4 % 4 * 32 + word // 128 * 16 + word % 4 * 4 + byte
    else:  # g t c
        g = word // (4 * WIDTH)
        column = word // WIDTH % 4 * 32 + field * (4 * WIDTH) + word % WIDTH * 4 + byte
    column += tile * 128
    row = group * 8 + g
    mask = (row < rows) & (column < COLUMNS)
    p = raw + row.to(tl.int64) * stride + column // BLOCK * NBYTES
    e = column % BLOCK
    if GROUP > 0:
        code = field_at(p, e, AT, GROUP, WIDTH, mask)
    else:
        code = (entry_code(p, e, table, KIND, mask) >> SHIFT) & ((1 << WIDTH) - 1)
    v = tl.sum(tl.where(mask, code, 0) << (8 * byte + field * WIDTH), 1)
    at = ((first + group).to(tl.int64) * TILES + tile) * WORDS
    tl.store(out + at + tl.arange(0, WORDS), v)


@triton.jit
def entry_scale(p, r, KIND: tl.constexpr, mask):
    """The whole number that scales run r of blocks of a codebook format."""
    if KIND == "IQ2_XXS":
        v = byte_at(p + 9 + r * 8, mask) >> 4
    elif KIND == "IQ2_XS":
        v = field_at(p, r, 66, 1, 4, mask)
    elif KIND == "IQ2_S":
        v = field_at(p, r, 74, 1, 4, mask)
    elif KIND == "IQ3_XXS":
        v = byte_at(p + 69 + r * 4, mask) >> 4
    elif KIND == "IQ3_S":
        v = field_at(p, r, 106, 1, 4, mask)
    elif KIND == "IQ1_S":
        v = (byte_at(p + 35 + r * 2, mask) >> 4) & 7
    else:
        tl.static_assert(KIND == "IQ1_M")
        pair = byte_at(p + 48 + r // 4 * 2, mask) | byte_at(p + 49 + r // 4 * 2, mask) << 8
        v = (pair >> (r % 4 * 3)) & 7
    return 2 * v + 1


@triton.jit
def scales(
    raw, out, rows, stride, first,
    KIND: tl.constexpr, BLOCK: tl.constexpr, NBYTES: tl.constexpr, COLUMNS: tl.constexpr, UNITS: tl.constexpr,
    SIZE: tl.constexpr, AT: tl.constexpr, COUNT: tl.constexpr, TIMES: tl.constexpr, MORE: tl.constexpr,
    AMONG: tl.constexpr,
):  # fmt: skip
    """Bytes of scales, SIZE of them for each row of a unit; grid (row groups, units).

    COUNT > 0: bytes as they are. AMONG > 0: four bits at AT in groups of TIMES, and two at MORE in groups of AMONG.
    """
    group = tl.program_id(0)
    unit = tl.program_id(1)
    word = tl.arange(0, 2 * SIZE)[:, None]
    byte = tl.arange(0, 4)[None, :]
    row = group * 8 + word // (SIZE // 4)
    j = unit * SIZE + word % (SIZE // 4) * 4 + byte  # of a row's bytes of scales
    if COUNT > 0:
        block = j // (COUNT * TIMES)
        r = j % (COUNT * TIMES) % COUNT
    else:
        block = j // ((2 * SIZE) * BLOCK // 256)
        r = j % ((2 * SIZE) * BLOCK // 256)
    mask = (row < rows) & (block < COLUMNS // BLOCK)
    p = raw + row.to(tl.int64) * stride + block * NBYTES
    if COUNT > 0:
        v = byte_at(p + AT + r, mask)
        if KIND == "NVFP4":
            v = tl.where(v == 127, 0, v & 127)
    elif AMONG > 0:
        v = (field_at(p, r, AT, TIMES, 4, mask) | field_at(p, r, MORE, AMONG, 2, mask) << 4) - 32
    else:
        v = entry_scale(p, r, KIND, mask)
    v = tl.sum((tl.where(mask, v, 0) & 255) << (8 * byte), 1)
    at = ((first + group).to(tl.int64) * UNITS + unit) * (2 * SIZE)
    tl.store(out + at + tl.arange(0, 2 * SIZE), v)


@triton.jit
def tops(
    raw, out, rows, stride, first, factor,
    KIND: tl.constexpr, NBYTES: tl.constexpr, UNITS: tl.constexpr, AT: tl.constexpr,
):  # fmt: skip
    """What super-blocks have one of, for each row; grid (row groups, units)."""
    group = tl.program_id(0)
    unit = tl.program_id(1)
    g = tl.arange(0, 8)
    row = group * 8 + g
    p = raw + row.to(tl.int64) * stride + unit * NBYTES
    if KIND == "Q2_K":
        v = word_at(p + AT, row < rows)
    else:
        if KIND == "IQ1_M":
            bits = g * 0
            for i in tl.static_range(4):
                bits |= (byte_at(p + 49 + 2 * i, row < rows) >> 4) << (4 * i)
        else:
            bits = byte_at(p + AT, row < rows) | byte_at(p + AT + 1, row < rows) << 8
        v = bits.to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32) * factor
    tl.store(out + ((first + group).to(tl.int64) * UNITS + unit) * 8 + g, v)


@triton.jit
def halves(
    raw,
    out,
    rows,
    stride,
    first,
    gain,
    COLUMNS: tl.constexpr,
    PADDED: tl.constexpr,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rows of F16 or BF16 as float16 in fragment order, from row `first` on; grid (rows, padded / BLOCK)."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    k = (at & -128) + ((at >> 1) & 3) * 32 + ((at >> 4) & 7) * 4 + (at & 1) * 2 + ((at >> 3) & 1)
    p = raw + row * stride + 2 * k
    bits = byte_at(p, k < COLUMNS) | byte_at(p + 1, k < COLUMNS) << 8
    if KIND == "BF16":
        v = ((bits << 16).to(tl.float32, bitcast=True) * gain).to(tl.float16)
    else:
        v = bits.to(tl.uint16).to(tl.float16, bitcast=True)
    tl.store(out + (first + row) * PADDED + at, v, mask=at < PADDED)
