"""Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0. The layouts are drawn in `quant/legacy.py`."""

from typing import Any

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.encode.eights import eight_encoders
from llamina.backends.cpu.kernels.encode.lanes import (
    bounded,
    choose,
    equal,
    greater,
    store_bytes,
    trunc_f32,
)
from llamina.backends.cpu.kernels.encode.search import centred, ranged, ranged_integer
from llamina.backends.cpu.kernels.vector.memory import f32, set_f16, set_i8, set_i32, stack_of, u8
from llamina.backends.cpu.kernels.vector.simd import (
    abs_f32,
    f32x8,
    fill_of,
    i32x8,
    load_f32,
    max_f32,
    min_f32,
    round_f32,
    store_f32,
    to_i32,
    zero_f32,
    zero_i32,
)

levels, lanes = stack_of(256), stack_of(32)
ONE, HALF, MINUS_ONE, MOST_8_BITS = (fill_of(f32x8, x) for x in (1.0, 0.5, -1.0, 127.0))
LEAST = fill_of(f32x8, 2.0**-128)


def nibbles(nbytes: int, at: int, fifth_at: int) -> Any:
    """Levels of eight blocks, a register of bytes for each number, to nibbles at `at` and fifth bits at `fifth_at`."""

    @device
    def put(levels, out):
        for block in range(8):
            target, high = out + nbytes * block, 0
            for i in range(16):
                near, far = u8(levels + 8 * i + block), u8(levels + 8 * (i + 16) + block)
                set_i8(target + at + i, near & 15 | (far & 15) << 4)
                high |= near >> 4 << i | far >> 4 << i + 16
            if fifth_at:
                set_i32(target + fifth_at, high)

    return put


def half_at(nbytes: int) -> Any:
    """A register of floats, one to each of eight blocks, as float16."""

    @device
    def put(values, out):
        kept = lanes()
        store_f32(kept, values)
        for block in range(8):
            set_f16(out + nbytes * block, f32(kept + 4 * block))

    return put


@device
def inverse_of(d):
    """1 / d, or 0 where d is 0 or its inverse is infinite: such a d is 0 as float16, too."""
    return choose(greater(abs_f32(d), LEAST()), ONE() / d, zero_f32())


def around_zero(top: int, nbytes: int, at: int, fifth_at: int) -> tuple[Any, Any]:
    """The `_0` formats: the number of the largest size becomes the lowest level."""
    put, put_half, search = nibbles(nbytes, at, fifth_at), half_at(nbytes), centred(32, top)
    BOTTOM, MIDDLE, MOST = fill_of(f32x8, float(-top)), fill_of(f32x8, top + 0.5), fill_of(i32x8, 2 * top - 1)
    LOW, HIGH, SHIFT = fill_of(f32x8, float(-top)), fill_of(f32x8, float(top - 1)), fill_of(f32x8, float(top))

    @device
    def plain(x, w, out):
        size, value, q = zero_f32(), zero_f32(), levels()
        for i in range(32):
            v = load_f32(x + 32 * i)
            larger = greater(abs_f32(v), size)
            size, value = choose(larger, abs_f32(v), size), choose(larger, v, value)
        d = value / BOTTOM()
        inverse = inverse_of(d)
        for i in range(32):
            level = to_i32(load_f32(x + 32 * i) * inverse + MIDDLE())
            store_bytes(q + 8 * i, bounded(level, zero_i32(), MOST()))
        put_half(d, out)
        put(q, out)

    @device
    def weighted(x, w, out):
        q = levels()
        d, inverse = search(x, w)
        zeros = equal(inverse, zero_f32())
        for i in range(32):
            level = max_f32(LOW(), min_f32(HIGH(), round_f32(inverse * load_f32(x + 32 * i)))) + SHIFT()
            store_bytes(q + 8 * i, to_i32(choose(zeros, zero_f32(), level)))
        put_half(d, out)
        put(q, out)

    return plain, weighted


def from_minimum(top: int, nbytes: int, at: int, fifth_at: int) -> tuple[Any, Any]:
    """The `_1` formats: a block's range in equal steps."""
    put, put_half, search = nibbles(nbytes, at, fifth_at), half_at(nbytes), ranged(32, top, -0.9, 0.05, 36)
    TOP, MOST = fill_of(f32x8, float(top)), fill_of(i32x8, top)

    @device
    def plain(x, w, out):
        lowest = highest = load_f32(x)
        q = levels()
        for i in range(1, 32):
            v = load_f32(x + 32 * i)
            lowest, highest = min_f32(v, lowest), max_f32(v, highest)
        d = (highest - lowest) / TOP()
        inverse = inverse_of(d)
        for i in range(32):
            level = to_i32((load_f32(x + 32 * i) - lowest) * inverse + HALF())
            store_bytes(q + 8 * i, bounded(level, zero_i32(), MOST()))
        put_half(d, out)
        put_half(lowest, out + 2)
        put(q, out)

    @device
    def weighted(x, w, out):
        q = levels()
        d, lowest, inverse, offset = search(x, w)
        for i in range(32):
            store_bytes(q + 8 * i, to_i32(ranged_integer(load_f32(x + 32 * i), inverse, offset, TOP())))
        put_half(d, out)
        put_half(lowest, out + 2)
        put(q, out)

    return plain, weighted


def eight_bits() -> Any:
    """Q8_0. Halves are rounded away from zero, as C's roundf does."""
    put_half = half_at(34)

    @device
    def plain(x, w, out):
        size, q = zero_f32(), levels()
        for i in range(32):
            size = max_f32(abs_f32(load_f32(x + 32 * i)), size)
        d = size / MOST_8_BITS()
        inverse = inverse_of(d)
        for i in range(32):
            v = load_f32(x + 32 * i) * inverse
            whole = trunc_f32(v)
            away = choose(greater(zero_f32(), v), MINUS_ONE(), ONE())
            level = choose(greater(HALF(), abs_f32(v - whole)), whole, whole + away)
            store_bytes(q + 8 * i, to_i32(level))
        put_half(d, out)
        for block in range(8):
            for i in range(32):
                set_i8(out + 34 * block + 2 + i, u8(q + 8 * i + block))

    return plain


KERNELS = {
    **eight_encoders("Q4_0", *around_zero(8, 18, 2, 0)),
    **eight_encoders("Q5_0", *around_zero(16, 22, 6, 2)),
    **eight_encoders("Q4_1", *from_minimum(15, 20, 4, 0)),
    **eight_encoders("Q5_1", *from_minimum(31, 24, 8, 4)),
    **eight_encoders("Q8_0", eight_bits(), None),
}
