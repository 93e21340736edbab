"""Rotary positions."""

import triton
import triton.language as tl

from llamina.backends.cuda.kernels.early import begin


@triton.jit
def angles(positions, frequencies, axes, axis_row, out, count, pairs, magnitude, BLOCK: tl.constexpr,
           EARLY: tl.constexpr):  # fmt: skip
    """[rows, 2, pairs]: cosines, then sines, of a row's position times each frequency (in float64).

    With `axes`, pair i follows the positions of axis axes[i], which are `axis_row` behind those of the axis before.
    """
    begin(EARLY)
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(count):
        return
    i = tl.arange(0, BLOCK)
    if axes is not None:
        axis = tl.load(axes + i, mask=i < pairs, other=0)
        position = tl.load(positions + axis * axis_row + row)
    else:
        position = tl.load(positions + row)
    turn = position.to(tl.float64) * tl.load(frequencies + i, mask=i < pairs, other=0.0)
    out += row * 2 * pairs + i
    tl.store(out, tl.cos(turn).to(tl.float32) * magnitude, mask=i < pairs)
    tl.store(out + pairs, tl.sin(turn).to(tl.float32) * magnitude, mask=i < pairs)


@triton.jit
def rotate(x, x_row, x_head, out, out_row, out_head, angles, count, outer, inner, pairs, near, far,
           BLOCK: tl.constexpr):  # fmt: skip
    """Pair p of a head is its elements near × p and near × p + far; what is behind the pairs stays as it is."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(count):
        return
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    head, at, inside = i // inner, i % inner, i < outer * inner
    turned = inside & (at < 2 * pairs)
    second = tl.where(near == 2, at % 2 == 1, at >= pairs)
    pair = tl.where(near == 2, at // 2, tl.where(second, at - pairs, at))
    cos = tl.load(angles + row * 2 * pairs + pair, mask=turned, other=1.0)
    sin = tl.load(angles + row * 2 * pairs + pairs + pair, mask=turned, other=0.0)
    x += row * x_row + head * x_head + at
    v = tl.load(x, mask=inside, other=0.0)
    partner = tl.load(x + tl.where(second, -far, far), mask=turned, other=0.0)
    y = tl.where(second, partner * sin + v * cos, v * cos - partner * sin)
    tl.store(out + row * out_row + head * out_head + at, tl.where(turned, y, v), mask=inside)
