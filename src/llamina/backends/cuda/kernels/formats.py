"""Each block format as the device keeps it: codes in planes of bits, and the scales of runs of them.

A value is scale · level (+ minimum), and a level is code - offset, or what a table has for the code. Codes of 3, 5
and 6 bits are two planes. A format says here where its blocks have codes and scales. Where these go is `layout`'s
matter, and what kernels do with them that of `tiles`. Values come out as `quant.decode` has them, bit for bit in
float32.
"""

from dataclasses import dataclass

import numpy as np

from llamina.backends.cuda.kernels.codebooks import CODEBOOKS, IQ2_LEVELS, IQ3_S_LEVELS, IQ3_XXS_LEVELS
from llamina.quant import format_of, grids
from llamina.quant.bits import U8, fields, half

SCALE_BYTES = {  # how scales are kept, and how many bytes of them 128 columns of a row have
    "f16": 8,  # float16 for 32 columns
    "f16 min": 16,  # float16 scale and minimum for 32 columns
    "e8m0": 4,  # exponent of a power of two for 32 columns, halved
    "e4m3": 8,  # 8-bit float for 16 columns, halved
    "i8 for 16": 8,  # signed byte for 16 columns, times the float32 of 256 columns
    "i8 for 32": 4,  # signed byte for 32 columns, times the float32 of 256 columns
    "u4 min for 16": 8,  # nibbles of scale and minimum for 16 columns, times the two float16 of 256 columns
    "u6 min": 8,  # 16 bytes for 256 columns, Q4_K's header as it is
}
BY_256 = ("i8 for 16", "i8 for 32", "u4 min for 16", "u6 min")  # columns come in blocks of 256


@dataclass(frozen=True, slots=True)
class Parts:
    """Blocks taken apart: [..., block] codes, [..., n] bytes of scales, and the 4 bytes of 256 columns, or none."""

    codes: U8
    scale: U8
    top: U8


@dataclass(frozen=True, slots=True)
class Form:
    """What kernels must know of a format, and where its blocks have what.

    `codes` are the first byte and the group of each plane (see `quant.bits.fields`), or none for `codebooks`.
    `scale` is (byte, count, repetitions) of bytes that are kept as they are, or (byte, group, byte, group) of four and
    two bits of numbers that are 32 too large. `top` is where the float16 of 256 columns is.
    """

    low: int  # bits of the plane with the lower bits of codes
    high: int  # bits of the other plane, or 0
    scales: str  # one of SCALE_BYTES
    codes: tuple[tuple[int, int], ...] = ()
    scale: tuple[int, ...] = ()
    top: int | None = None
    factor: float = 1.0  # of the float16, as a float32
    offset: int = 0
    levels: tuple[int, ...] = ()  # by code, where they are not code - offset

    def __str__(self) -> str:
        """What kernels are compiled for: "low/high/offset/scales/levels"."""
        return f"{self.low}/{self.high}/{self.offset}/{self.scales}/{','.join(map(str, self.levels))}"


def split(kind: str, blocks: U8) -> Parts:
    """Blocks of a format, uint8 [..., nbytes], taken apart."""
    form = FORMS[kind]
    if not form.codes:
        return Parts(*CODEBOOKS[kind](blocks))
    size = format_of(kind).block
    codes = np.zeros((*blocks.shape[:-1], size), np.uint8)
    for (at, group), width, shift in zip(form.codes, (form.low, form.high), (0, form.low), strict=False):
        codes |= fields(blocks[..., at : at + size * width // 8], width, group) << np.uint8(shift)
    return Parts(codes, _scale(form, blocks), _top(form, blocks))


def _scale(form: Form, blocks: U8) -> U8:
    if len(form.scale) == 4:
        count = 256 // (16 if form.scales == "i8 for 16" else 32)
        at, group, more, among = form.scale
        four, two = (
            fields(blocks[..., at : at + count // 2], 4, group),
            fields(blocks[..., more : more + count // 4], 2, among),
        )
        return (four | two << np.uint8(4)) - np.uint8(32)
    at, count, times = form.scale
    scale = np.tile(blocks[..., at : at + count], times)
    if form.scales == "e4m3":  # ggml ignores the sign, but reads 0x7f as zero only without it
        return np.where(scale == 127, np.uint8(0), scale & np.uint8(127))
    return scale


def _top(form: Form, blocks: U8) -> U8:
    if form.top is None:
        return blocks[..., :0]
    if form.scales == "u4 min for 16":
        return blocks[..., form.top : form.top + 4]
    return (half(blocks, form.top) * np.float32(form.factor)).view(np.uint8)


def bound(kind: str, blocks: U8) -> float:
    """A bound of the scales of blocks, uint8 [n, nbytes], without their signs; damaged ones are left out."""
    form = FORMS[kind]
    if form.scales == "e8m0":
        return float(np.ldexp(1.0, int(blocks[:, 0].max(initial=0)) - 128))
    if form.scales == "e4m3":
        return 224.0
    if kind == "IQ1_M":  # the upper nibbles of four half words are d, the highest last
        return float(np.ldexp(1.0, int((blocks[:, 55] >> 4 & 7).max(initial=0)) * 4 - 11)) * 15 * form.factor
    at = form.top if form.top is not None else 52 if kind == "TQ1_0" else form.scale[0]
    most = {"i8 for 16": 128, "i8 for 32": 128, "u4 min for 16": 15, "u6 min": 63}.get(form.scales, 1)
    return _biggest_half(blocks, at) * most * form.factor


def _biggest_half(blocks: U8, at: int) -> float:
    """The largest of the float16 numbers at a byte of each block that are finite, without its sign."""
    bits = blocks[:, at].astype(np.uint16) | (blocks[:, at + 1] & np.uint8(127)).astype(np.uint16) << 8
    return float(np.where(bits < 0x7C00, bits, 0).max(initial=0).astype(np.uint16).view(np.float16))


_IQ4 = tuple(int(v) for v in grids.IQ4_LEVELS)
_FP4 = tuple(int(v) for v in grids.FP4_DOUBLED)
_IQ1 = (-7, 1, 9, 0, -9, -1, 7, 0)  # eight times -1, 0 or 1, and 1 up or down
_IQ2 = (*IQ2_LEVELS, 0, *(-v for v in IQ2_LEVELS), 0)
_IQ3_XXS = (*IQ3_XXS_LEVELS, *(-v for v in IQ3_XXS_LEVELS))
_IQ3_S = (*IQ3_S_LEVELS, *(-v for v in IQ3_S_LEVELS))

FORMS: dict[str, Form] = {
    "Q4_0": Form(4, 0, "f16", ((2, 16),), (0, 2, 1), offset=8),
    "Q4_1": Form(4, 0, "f16 min", ((4, 16),), (0, 4, 1)),
    "Q5_0": Form(4, 1, "f16", ((6, 16), (2, 1)), (0, 2, 1), offset=16),
    "Q5_1": Form(4, 1, "f16 min", ((8, 16), (4, 1)), (0, 4, 1)),
    "Q8_0": Form(8, 0, "f16", ((2, 1),), (0, 2, 1)),
    "MXFP4": Form(4, 0, "e8m0", ((1, 16),), (0, 1, 1), levels=_FP4),
    "NVFP4": Form(4, 0, "e4m3", ((4, 8),), (0, 4, 1), levels=_FP4),
    "Q1_0": Form(1, 0, "f16", ((2, 1),), (0, 2, 4), levels=(-1, 1)),
    "Q2_0": Form(2, 0, "f16", ((2, 1),), (0, 2, 2), offset=1),
    "TQ1_0": Form(2, 0, "f16", offset=1),
    "TQ2_0": Form(2, 0, "f16", ((0, 32),), (64, 2, 8), offset=1),
    "Q2_K": Form(2, 0, "u4 min for 16", ((16, 32),), (0, 16, 1), 80),
    "Q3_K": Form(2, 1, "i8 for 16", ((32, 32), (0, 32)), (96, 8, 104, 4), 108, offset=4),
    "Q4_K": Form(4, 0, "u6 min", ((16, 32),), (0, 16, 1)),
    "Q5_K": Form(4, 1, "u6 min", ((48, 32), (16, 32)), (0, 16, 1)),
    "Q6_K": Form(4, 2, "i8 for 16", ((0, 64), (128, 32)), (192, 16, 1), 208, offset=32),
    "IQ4_NL": Form(4, 0, "f16", ((2, 16),), (0, 2, 1), levels=_IQ4),
    "IQ4_XS": Form(4, 0, "i8 for 32", ((8, 16),), (4, 1, 2, 1), 0, levels=_IQ4),
    "IQ3_XXS": Form(4, 0, "i8 for 32", top=0, factor=0.25, levels=_IQ3_XXS),
    "IQ3_S": Form(4, 0, "i8 for 32", top=0, levels=_IQ3_S),
    "IQ2_XXS": Form(2, 1, "i8 for 32", top=0, factor=0.125, levels=_IQ2),
    "IQ2_XS": Form(2, 1, "i8 for 16", top=0, factor=0.125, levels=_IQ2),
    "IQ2_S": Form(2, 1, "i8 for 16", top=0, factor=0.125, levels=_IQ2),
    "IQ1_S": Form(2, 1, "i8 for 32", top=0, factor=0.125, levels=_IQ1),
    "IQ1_M": Form(2, 1, "i8 for 16", factor=0.125, levels=_IQ1),
}
PLAIN = ("F32", "F16", "BF16")
