"""Matrices times tokens: GEMV for few tokens, GEMM (in tiles or matrix registers) for many."""

from typing import Any

from llamina.backends.cpu.features import HAS_AMX, HAS_AMX_BF16, HAS_AMX_FP16
from llamina.backends.cpu.kernels.device import device, kernel, routine
from llamina.backends.cpu.kernels.formats.blocks import BLOCKS_32, SUPERBLOCKS, Block32, SuperBlock
from llamina.backends.cpu.kernels.gemm import floats, gemm
from llamina.backends.cpu.kernels.gemm import nvfp4 as gemm_nvfp4
from llamina.backends.cpu.kernels.gemv import blocks, superblocks, words
from llamina.backends.cpu.kernels.gemv import nvfp4 as gemv_nvfp4
from llamina.backends.cpu.kernels.vector.math import first
from llamina.backends.cpu.kernels.vector.memory import i32, i64, set_i32
from llamina.backends.cpu.kernels.vector.simd import store_f32, store_f32_part

FLOATS: dict[str, Any] = {}  # that matrix registers multiply, for one token as for many
if HAS_AMX_BF16:
    from llamina.backends.cpu.kernels.amx import floats as amx_floats

    FLOATS = {"BF16": amx_floats.BF16} | ({"F16": amx_floats.F16} if HAS_AMX_FP16 else {})
GEMM = gemm.GEMM | floats.GEMM | {"NVFP4": gemm_nvfp4.GEMM}
MANY, MANY_ALONE = 5, 3  # tokens from which unpacking pays; sooner where fewer do not share it by fours


@device
def put(target, value, last):
    if last == 7:
        store_f32(target, value)
    else:
        store_f32_part(target, value, last + 1)


def gemv_rows(gemv: Any, four: Any | None = None) -> Any:
    """Rows [low, high) of one matrix times `items` tokens, one by one, or by fours where the format has that."""

    @routine
    def run(w, w_row, low, high, x, x_item, items, out, out_item, k):
        for r in range(low, high, 8):
            last, p = min(high - r, 8) - 1, w + r * w_row
            if four is not None and items > 2:
                for item in range(0, items, 4):
                    i1, i2, i3 = min(item + 1, items - 1), min(item + 2, items - 1), min(item + 3, items - 1)
                    a, b, c, d = four(
                        p, w_row, last, x + item * x_item, x + i1 * x_item, x + i2 * x_item, x + i3 * x_item, k
                    )
                    put(out + item * out_item + 4 * r, a, last)
                    put(out + i1 * out_item + 4 * r, b, last)
                    put(out + i2 * out_item + 4 * r, c, last)
                    put(out + i3 * out_item + 4 * r, d, last)
            else:
                for item in range(items):
                    put(out + item * out_item + 4 * r, gemv(p, w_row, last, x + item * x_item, k), last)

    return run


def amx_from(form: Block32 | SuperBlock) -> int:
    """From how many tokens on matrix registers are faster than tiles, which scale every run of every token."""
    if isinstance(form, SuperBlock) and form.by_32 and not form.signed:
        return 64
    return 24 if form.signed or isinstance(form, SuperBlock) else 32


def tiles_or_amx(tiles: Any, matrices: Any, least: int) -> Any:
    """GEMM in tiles, or in matrix registers from `least` tokens on, where unpacking for them pays."""

    @device
    def run(w, w_row, low, high, x, x_item, items, out, out_item, k, scratch, order, share):
        if items < least:
            tiles(w, w_row, low, high, x, x_item, items, out, out_item, k, scratch, order, share)
        else:
            matrices(w, w_row, low, high, x, x_item, items, out, out_item, k, scratch, order, share)

    return run


def many_of(name: str) -> Any | None:
    """The GEMM of a format; None if it has none."""
    if name in FLOATS:
        return FLOATS[name]
    if not HAS_AMX or name not in BLOCKS_32 | SUPERBLOCKS:
        return GEMM.get(name)
    from llamina.backends.cpu.kernels.amx.gemm import AMX

    return tiles_or_amx(GEMM[name], AMX[name], amx_from((BLOCKS_32 | SUPERBLOCKS)[name]))


def linear_kernel(few: Any, many: Any | None, least: int) -> Any:
    """GEMV for `few` tokens, GEMM from `least` on where the format has one."""

    @kernel(writes=("out",) if many is None else ("out", "scratch"))
    def run(thread, threads, count, x, x_item, outer, w, w_row, out, out_item, rows, k, scratch, scratch_size, worker):
        eights, items = (rows + 7) // 8, i64(count) * outer
        low, high = 8 * first(eights, thread, threads), min(8 * first(eights, thread + 1, threads), rows)
        if many is not None and items >= least:
            many(w, w_row, low, high, x, x_item, items, out, out_item, k, scratch + worker * scratch_size, 0, 1)
        else:
            few(w, w_row, low, high, x, x_item, items, out, out_item, k)

    return run


def split_kernel(many: Any) -> Any:
    """GEMM for any number of tokens."""

    @kernel(writes=("out", "scratch"))
    def run(thread, threads, count, x, x_item, outer, w, w_row, out, out_item, rows, k, scratch, scratch_size, worker):
        eights = (rows + 7) // 8
        low, high = 8 * first(eights, thread, threads), min(8 * first(eights, thread + 1, threads), rows)
        pad = scratch + worker * scratch_size
        many(w, w_row, low, high, x, x_item, i64(count) * outer, out, out_item, k, pad, 0, 1)

    return run


def words_kernel(few: Any, many: Any) -> Any:
    """Float weights as words, by the exponents beside them: GEMV for a token or two, GEMM for more."""
    assert MANY_ALONE == 3

    @kernel(writes=("out", "scratch"))
    def run(
        thread, threads, count, x, x_item, outer, w, w_row, exponents, out, out_item, rows, k, scratch, scratch_size,
        worker,
    ):  # fmt: skip
        eights, items = (rows + 7) // 8, i64(count) * outer
        low, high = 8 * first(eights, thread, threads), min(8 * first(eights, thread + 1, threads), rows)
        if items >= MANY_ALONE:
            pad = scratch + worker * scratch_size
            many(w, w_row, low, high, x, x_item, items, out, out_item, k, pad, 0, 1, exponents)
            return
        for r in range(low, high if items else low, 8):
            last, p, here = min(high - r, 8) - 1, w + r * w_row, exponents + r * (k // 32)
            other = x + (items - 1) * x_item
            a, b = few(p, w_row, last, here, x, other, k)
            put(out + 4 * r, a, last)
            if items == 2:
                put(out + out_item + 4 * r, b, last)

    return run


@device
def sort_by_expert(ids, ids_row, items, outer, experts, order, starts):
    """Item numbers by expert, and where each expert's begin (one entry more than experts)."""
    for e in range(experts + 2):
        set_i32(starts + 4 * e, 0)
    for item in range(items):
        cell = starts + 4 * (expert_of(ids, ids_row, item, outer) + 2)
        set_i32(cell, i32(cell) + 1)
    for e in range(experts):
        set_i32(starts + 4 * (e + 2), i32(starts + 4 * (e + 2)) + i32(starts + 4 * (e + 1)))
    for item in range(items):
        cell = starts + 4 * (expert_of(ids, ids_row, item, outer) + 1)
        set_i32(order + 4 * i32(cell), item)
        set_i32(cell, i32(cell) + 1)


@device
def expert_of(ids, ids_row, item, outer):
    return i32(ids + item // outer * ids_row + 4 * (item % outer)) if ids else item % outer


def experts_kernel(few: Any, many: Any | None, least: int) -> Any:
    """Item j of a row goes through matrix ids[j] (or j itself without ids); inputs are shared by `share` items.

    With many tokens the items are sorted by expert, so that each expert's rows are unpacked once.
    """

    @kernel(writes=("out", "scratch"))
    def run(
        thread, threads, count, x, x_item, share, ids, ids_row, outer, w, w_expert, experts, w_row, out, out_item,
        rows, k, scratch, scratch_size, worker,
    ):  # fmt: skip
        eights, items = (rows + 7) // 8, i64(count) * outer
        low, high = 8 * first(eights, thread, threads), min(8 * first(eights, thread + 1, threads), rows)
        if items < least:
            for n in range(items):
                own = w + expert_of(ids, ids_row, n, outer) * w_expert
                few(own, w_row, low, high, x + n // share * x_item, x_item, 1, out + n * out_item, out_item, k)
            return
        pad = scratch + worker * scratch_size
        starts = pad + scratch_size - 4 * (experts + 2 + items)
        order = starts + 4 * (experts + 2)
        sort_by_expert(ids, ids_row, items, outer, experts, order, starts)
        for e in range(experts):
            mine, n_mine = order + 4 * i32(starts + 4 * e), i32(starts + 4 * e + 4) - i32(starts + 4 * e)
            own = w + e * w_expert
            if many is not None and n_mine >= least:
                many(own, w_row, low, high, x, x_item, n_mine, out, out_item, k, pad, mine, share)
            else:
                for i in range(n_mine):
                    n = i32(mine + 4 * i)
                    few(own, w_row, low, high, x + n // share * x_item, x_item, 1, out + n * out_item, out_item, k)

    return run


GEMV = blocks.GEMV | superblocks.GEMV | {"NVFP4": gemv_nvfp4.gemv}
GEMV_4 = superblocks.GEMV_4 | {"NVFP4": gemv_nvfp4.four}
MULTIPLY = {name: gemv_rows(gemv, GEMV_4.get(name)) for name, gemv in GEMV.items()}
LEAST = {name: 1 if name in FLOATS else MANY if name in GEMV_4 else MANY_ALONE for name in MULTIPLY}
KERNELS = {f"linear.{name}": linear_kernel(few, many_of(name), LEAST[name]) for name, few in MULTIPLY.items()}
KERNELS |= {f"experts.{name}": experts_kernel(few, many_of(name), LEAST[name]) for name, few in MULTIPLY.items()}
KERNELS |= {f"linear.{name}.words": words_kernel(words.GEMV[name], many) for name, many in gemm.WORDS.items()}
if HAS_AMX_BF16:
    KERNELS["linear.BF16.split"] = split_kernel(amx_floats.BF16_SPLIT)
