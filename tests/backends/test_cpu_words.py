"""F16 weights, and BF16 weights of plans that see both ways, as blocks of 16-bit integers, where the CPU wants that."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from plans import float_weight, run, whole

from llamina.backends.cpu.tiling import TILE_TOKENS
from llamina.ops import Attention, Value, Weight, attend, embed, heads, linear, pick
from llamina.quant import decode, format_of

Forward = Callable[[Value, Value], Value]
Array = npt.NDArray[np.float32]
KINDS = ["F16", "BF16"]
WORD = 2.7e-4  # of the lengths of two blocks, by which rounding may change their product: √8 / 2**14 + √8 / 32767


def product(x: Array, w: Weight, causal: bool = False) -> Forward:
    """Rows of x times a matrix, in a plan whose tokens see each other both ways, unless it is a decoder's."""

    def forward(tokens: Value, positions: Value) -> Value:
        some = heads(embed(tokens, float_weight("small.weight", np.ones((len(x), 8)))), 1)
        attend(some, some, some, 0, Attention(1.0, causal=causal))
        return pick(linear(embed(tokens, float_weight("token_embd.weight", x)), w))

    return forward


def lengths(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The norms of blocks of 32."""
    return np.linalg.norm(x.reshape(len(x), -1, 32), axis=-1)


def check(x: Array, w: Weight, got: Array) -> None:
    """Every number is as near to the exact product as the sizes of the words promise."""
    exact, rows = x.astype(np.float64), decode(w.data, w.format, w.shape).astype(np.float64)
    most = WORD * lengths(exact) @ lengths(rows).T + 1e-20
    assert (np.abs(got - exact @ rows.T) <= most).all()


@pytest.mark.parametrize(("kind", "causal"), [("F16", False), ("BF16", False), ("F16", True)])
@pytest.mark.parametrize("width", [32, 96, 576, 1056, 2080])
def test_products(kind: str, causal: bool, width: int) -> None:
    rng = np.random.default_rng(width)
    x, values = rng.standard_normal((23, width)).astype(np.float32), rng.standard_normal((45, width)) / 8
    x[1], x[2], x[3, width // 3] = 0, x[2] * 1e-20, 1000
    values[0], values[1], values[2, 5], values[3] = 0, 1e-6, 400, values[3] * 1e4
    w = float_weight("w.weight", values, kind)
    plan, tokens = product(x, w, causal), list(range(23))
    got = run("cpu", plan, [[whole(tokens)]])
    check(x, w, got)
    assert np.array_equal(got, run("cpu", plan, [[whole(tokens)]], threads=3))
    for few in (1, 2, 5):
        assert np.array_equal(got[:few], run("cpu", plan, [[whole(tokens[:few])]]))
    many = (tokens * TILE_TOKENS)[: TILE_TOKENS + 5]  # more than pass by a tile at once
    assert np.array_equal(run("cpu", plan, [[whole(many)]], max_tokens=len(many), pages=64), got[many])


@pytest.mark.parametrize("kind", KINDS)
def test_sums_as_large_as_they_can_be(kind: str) -> None:
    """Blocks that point in one direction, of every size: whatever they are scaled to, their sum fits."""
    sizes = np.linspace(0.5, 2, 97).astype(np.float32)
    shapes = np.stack([np.ones(32), np.where(np.arange(32) % 2, 1, -1), np.arange(32) == 7, np.arange(32) < 2])
    x = (sizes[:, None, None] * shapes).reshape(-1, 32).astype(np.float32)
    w = float_weight("w.weight", x, kind)
    check(x, w, run("cpu", product(x, w), [[whole(list(range(len(x))))]], max_tokens=len(x), pages=64))


@pytest.mark.parametrize("kind", KINDS)
def test_any_bytes(kind: str) -> None:
    """Random bits as weights: products are near, unless an element of a row is infinite or no number."""
    rng = np.random.default_rng(6)
    bits = rng.integers(0, 1 << 16, (64, 96)).astype(np.uint16)
    bits[::2] &= 0xBFFF if kind == "F16" else 0xDFFF  # no infinity nor NaN, and nothing above 2**64
    w = Weight("w.weight", bits.shape, format_of(kind), np.ascontiguousarray(bits).view(np.uint8).reshape(-1))
    x = rng.standard_normal((9, 96)).astype(np.float32)
    got = run("cpu", product(x, w), [[whole(list(range(9)))]])
    sound = np.isfinite(decode(w.data, w.format, w.shape)).all(-1)
    assert sound[::2].all() and not sound.all()
    assert not np.isfinite(got[:, ~sound]).any()
    for few in (1, 2):
        alone = run("cpu", product(x, w), [[whole(list(range(few)))]])
        assert np.array_equal(alone, got[:few], equal_nan=True)
    part = Weight("w", (32, 96), w.format, np.ascontiguousarray(bits[::2]).view(np.uint8).reshape(-1))
    check(x, part, got[:, ::2])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spoilt", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_none(kind: str, spoilt: float) -> None:
    x = np.ones((5, 64), np.float32)
    x[3, 33] = spoilt
    w = float_weight("w.weight", np.random.default_rng(1).standard_normal((37, 64)), kind)
    got = run("cpu", product(x, w), [[whole(list(range(5)))]])
    assert np.array_equal(np.isfinite(got).all(-1), [True, True, True, False, True])
    assert not np.isfinite(got[3]).any()
