"""The inner loops of tiles for AVX2, in its own words: a compiler would reorder them and run out of registers.

Two tiles meet four tokens: 8 sums, and 8 registers for everything else. Elements are the first, unsigned factor of
`vpmaddubsw`, activations the second. A unit of a tile is 32 bytes, what four tokens have for it 16.
"""

from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.kernels.vector.simd import I64, op
from llamina.backends.cpu.tiling import SMALL_SIDE

P, Q, X, SCALE_P, SCALE_Q, COUNT, OUT = (f"${i}" for i in range(7))


def _routine(lines: Iterator[str]) -> Any:
    """An intrinsic (tile, tile, tokens, scales, scales, count, target of 8 sums); it may change its copies of them."""
    text = "\n".join(lines)
    constraints = (
        ["=&r"] * 7 + [str(i) for i in range(7)] + [f"~{{ymm{i}}}" for i in range(16)] + ["~{memory}", "~{flags}"]
    )

    def body(b: Any, *args: Any) -> None:
        kind = ir.FunctionType(ir.LiteralStructType([I64] * 7), [I64] * 7)
        b.asm(kind, text, ",".join(constraints), list(args), True)

    return op(types.void, (types.intp,) * 7, body)


def _clear() -> Iterator[str]:
    for i in range(8):
        yield f"vpxor %ymm{i}, %ymm{i}, %ymm{i}"


def _store() -> Iterator[str]:
    for i in range(8):
        yield f"vmovdqu %ymm{i}, {32 * i}({OUT})"


def _load_units(unit: int, v: int, w: int) -> Iterator[str]:
    yield f"vmovdqu {32 * unit}({P}), %ymm{v}"
    yield f"vmovdqu {32 * unit}({Q}), %ymm{w}"


def _summed(first: int, steps: int) -> Iterator[str]:
    """Registers 0 to 7 = Σ element · activation over some units, in 16 bits."""
    for j in range(first, first + steps):
        yield from _load_units(j, 8, 9)
        for token in range(4):
            yield f"vpbroadcastd {16 * j + 4 * token}({X}), %ymm10"
            if j == first:
                yield f"vpmaddubsw %ymm10, %ymm8, %ymm{token}"
                yield f"vpmaddubsw %ymm10, %ymm9, %ymm{4 + token}"
            else:
                yield "vpmaddubsw %ymm10, %ymm8, %ymm11"
                yield "vpmaddubsw %ymm10, %ymm9, %ymm12"
                yield f"vpaddw %ymm11, %ymm{token}, %ymm{token}"
                yield f"vpaddw %ymm12, %ymm{4 + token}, %ymm{4 + token}"


def _through_memory(steps: int, length: int) -> Iterator[str]:
    """Sums in 32 bits += scale · sums in 16 bits, of a run."""
    for first in range(0, length // 4, steps):
        yield from _summed(first, steps)
        for i in range(8):
            yield f"vpmaddwd ({SCALE_P if i < 4 else SCALE_Q}), %ymm{i}, %ymm{i}"
            yield f"vpaddd {32 * i}({OUT}), %ymm{i}, %ymm{i}"
            yield f"vmovdqu %ymm{i}, {32 * i}({OUT})"


def _in_registers(steps: int, length: int) -> Iterator[str]:
    """The same where no more than two products fit 16 bits."""
    for first in range(0, length // 4, steps):
        for j in range(steps):
            yield from _load_units(first + j, 8 + j, 10 + j)
        for token in range(4):
            for j in range(steps):
                yield f"vpbroadcastd {16 * (first + j) + 4 * token}({X}), %ymm{12 + j}"
            for tile, (elements, scale) in enumerate(((8, SCALE_P), (10, SCALE_Q))):
                total = f"%ymm{4 * tile + token}"
                yield f"vpmaddubsw %ymm12, %ymm{elements}, %ymm14"
                if steps == 2:
                    yield f"vpmaddubsw %ymm13, %ymm{elements + 1}, %ymm15"
                    yield "vpaddw %ymm15, %ymm14, %ymm14"
                yield f"vpmaddwd ({scale}), %ymm14, %ymm14"
                yield f"vpaddd %ymm14, {total}, {total}"


def _summed_words(units: int) -> Iterator[str]:
    """Registers 0 to 7 += Σ element · activation over some units of words."""
    for j in range(units):
        yield from _load_units(j, 8, 9)
        for token in range(4):
            yield f"vpbroadcastd {16 * j + 4 * token}({X}), %ymm10"
            yield "vpmaddwd %ymm10, %ymm8, %ymm11"
            yield "vpmaddwd %ymm10, %ymm9, %ymm12"
            yield f"vpaddd %ymm11, %ymm{token}, %ymm{token}"
            yield f"vpaddd %ymm12, %ymm{4 + token}, %ymm{4 + token}"


def _repeated(body: Iterator[str], steps: dict[str, int]) -> Iterator[str]:
    """`count` times, each so many bytes further on."""
    yield "1:"
    yield from body
    for register, step in steps.items():
        yield f"addq $${step}, {register}"
    yield f"decq {COUNT}"
    yield "jnz 1b"


def _runs_on(units: int) -> dict[str, int]:
    """Where the next units, or runs, of a block of 256 are: a run of 16 takes four units and one of scales."""
    return {P: 32 * units, Q: 32 * units, X: 16 * units, SCALE_P: 8 * units, SCALE_Q: 8 * units}


def scaled_runs(steps: int, length: int) -> Any:
    """`count` runs of elements, each times its scales; `steps` products fit 16 bits."""

    def lines() -> Iterator[str]:
        yield from _clear()
        if steps > 2:
            yield from _store()
            yield from _repeated(_through_memory(steps, length), _runs_on(length // 4))
        else:
            yield from _repeated(_in_registers(steps, length), _runs_on(length // 4))
            yield from _store()

    return _routine(lines())


def words(units: int) -> Any:
    """`count` times so many units of words, scaled already."""

    def lines() -> Iterator[str]:
        yield from _clear()
        yield from _repeated(_summed_words(units), _runs_on(units))
        yield from _store()

    return _routine(lines())


def _finished(side: int, offset: int, has_min: bool, d_at: int = 0) -> Iterator[str]:
    """Sums of a run in registers 0 to 7 onto the results: total · (d · scale), and m · (scale · Σx).

    `offset` says where beside the tokens the offset times their sums is, if elements have one.
    """
    yield f"vmovups {d_at}({SCALE_P}), %ymm13"
    yield f"vmovups {d_at}({SCALE_Q}), %ymm14"
    for token in range(4):
        at = side + 4 * token
        yield f"vbroadcastss {at}({X}), %ymm9"
        if has_min:
            yield f"vbroadcastss {at + 16}({X}), %ymm12"
        if offset:
            yield f"vpbroadcastd {at + offset}({X}), %ymm8"
        for scale, d, i in ((SCALE_P, 13, token), (SCALE_Q, 14, 4 + token)):
            yield f"vmulps %ymm9, %ymm{d}, %ymm{10 + i // 4}"
            if offset:
                yield f"vpaddd %ymm8, %ymm{i}, %ymm{i}"
            yield f"vcvtdq2ps %ymm{i}, %ymm{i}"
            yield f"vfmadd213ps {32 * i}({OUT}), %ymm{10 + i // 4}, %ymm{i}"
            if has_min:
                yield f"vfmadd231ps 32({scale}), %ymm12, %ymm{i}"
            yield f"vmovups %ymm{i}, {32 * i}({OUT})"


def runs_of_32(steps: int, wide: bool, offset: bool, has_min: bool) -> Any:
    """`count` runs of 32, finished onto 8 float results; `steps` products fit 16 bits, or elements are words."""
    units, side = (16, 256) if wide else (8, 128)

    def body() -> Iterator[str]:
        if wide:
            yield from _clear()
            yield from _summed_words(units)
        for first in range(0, 0 if wide else units, steps):
            yield from _summed(first, steps)
            for i in range(8):  # what did not fit 16 bits waits behind the results
                yield f"vpmaddwd %ymm15, %ymm{i}, %ymm{i}"
                if first:
                    yield f"vpaddd {256 + 32 * i}({OUT}), %ymm{i}, %ymm{i}"
                if first + steps < units:
                    yield f"vmovdqu %ymm{i}, {256 + 32 * i}({OUT})"
        yield from _finished(side, 32 if offset else 0, has_min)

    return _routine(_runs_of_32(body(), units, side))


def half_runs() -> Any:
    """`count` runs of 32 whose halves have scales of their own; the products of 16 elements fit 16 bits."""

    def body() -> Iterator[str]:
        for half in (0, 1):
            yield from _summed(4 * half, 4)
            for i in range(8):
                yield f"vpmaddwd %ymm15, %ymm{i}, %ymm{i}"
            yield from _finished(128, 16 + 16 * half, False, 32 * half)

    return _routine(_runs_of_32(body(), 8, 128))


def _runs_of_32(body: Iterator[str], units: int, side: int) -> Iterator[str]:
    """`count` times, with ones in register 15."""
    yield "vpcmpeqw %ymm15, %ymm15, %ymm15"
    yield "vpsrlw $$15, %ymm15, %ymm15"
    yield from _repeated(body, {P: 32 * units, Q: 32 * units, X: side + SMALL_SIDE, SCALE_P: 64, SCALE_Q: 64})
