"""Rows of every length in wide registers: norms, RoPE and elementwise functions, bit for bit."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from plans import error, float_weight, run, whole

from llamina.ops import (
    Rope,
    Value,
    activate,
    add,
    clamp,
    concat,
    div,
    embed,
    flat,
    gated,
    heads,
    mix,
    mul,
    norm,
    pad,
    pick,
    rope,
    scale,
    softcap,
    split,
    temper,
)
from llamina.ops.rotation import frequencies

Array = npt.NDArray[Any]
EPS = 1e-5
KINDS = ("silu", "gelu", "gelu_quick", "relu", "relu_sqr", "sigmoid", "tanh", "softplus", "exp", "signed_sqrt")
ODD = [0.0, -0.0, 1e-30, -1e-30, 1e-7, 40.0, -40.0, 87.5, -86.9, -87.1, 95.0, -95.0, 1e30, -1e30]


def numbers(rows: int, width: int) -> Array:
    return np.random.default_rng(width).normal(0.3, 2, (rows, width)).astype(np.float32)


def applied(x: Array, function: Callable[[Value], Value], threads: int = 1) -> Array:
    """A function of rows, at positions 0, 1, …"""

    def forward(tokens: Value, positions: Value) -> Value:
        return pick(flat(function(embed(tokens, float_weight("token_embd.weight", x)))))

    return run("cpu", forward, [[whole(list(range(len(x))))]], threads=threads)


def added(x: Array) -> Array:
    """The sums of rows in double precision: element i goes to sum i mod 32, and a tree adds these up."""
    padded = np.zeros((len(x), -(-x.shape[1] // 32) * 32))
    padded[:, : x.shape[1]] = x
    sums = reduce(np.add, np.split(padded, padded.shape[1] // 32, axis=1))
    a, b, c, d = np.split(sums, 4, axis=1)
    lanes = (a + b) + (c + d)
    for n in (4, 2, 1):
        lanes = lanes[:, :n] + lanes[:, n:]
    return lanes


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("first", [1, 11, 21, 31, 41, 51, 61, 380])
def test_norms_of_any_length(kind: Literal["rms", "layer"], first: int) -> None:
    """Near to float64's, and the bits of the order of additions that all instruction sets keep."""
    for n in range(first, first + 10):
        x, (w, b) = numbers(5, n), numbers(2, n + 1)[:, :n]
        weight = replace(float_weight("n.weight", w), bias=float_weight("n.bias", b))
        got = applied(x, lambda v, weight=weight: norm(v, weight, EPS, kind))  # type: ignore[misc]
        exact = x.astype(np.float64)
        mean = added(exact) / n if kind == "layer" else np.zeros((5, 1))
        factor = 1 / np.sqrt(added((exact - mean) ** 2) / n + EPS)
        assert error(got, (exact - mean) * factor * w + b) < 1e-12
        assert np.array_equal(got, (x - np.float32(mean)) * np.float32(factor) * w + b)
        assert np.array_equal(got[3:4], applied(x[3:4], lambda v, weight=weight: norm(v, weight, EPS, kind)))  # type: ignore[misc]


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norms_see_every_element(kind: Literal["rms", "layer"]) -> None:
    """A row is no number if one of its elements is none."""
    x = numbers(43, 43)
    np.fill_diagonal(x, np.nan)
    assert np.isnan(applied(x, lambda v: norm(v, None, EPS, kind))).all()


@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize(
    ("dims", "dim"), [(2, 2), (10, 10), (14, 20), (32, 37), (34, 34), (40, 80), (64, 64), (98, 99)]
)
def test_rope_of_any_length(dims: int, dim: int, neox: bool) -> None:
    """Two products and a sum, each rounded; what is not rotated stays as it is."""
    params, x = Rope(dims, 1e4, neox, magnitude=1.1), numbers(7, 3 * dim)
    x[2, dim - 1] = np.inf
    want = x.reshape(7, 3, dim).copy()
    firsts = np.arange(dims // 2) if neox else np.arange(0, dims, 2)
    seconds = firsts + (dims // 2 if neox else 1)
    angles = np.arange(7)[:, None, None] * frequencies(params)
    cos, sin = (np.float32(np.vectorize(turn)(angles) * params.magnitude) for turn in (math.cos, math.sin))
    a, b = want[..., firsts], want[..., seconds]
    with np.errstate(invalid="ignore"):
        want[..., firsts], want[..., seconds] = a * cos - b * sin, a * sin + b * cos
    for threads in (1, 3):
        got = applied(x, lambda v: rope(heads(v, 3), params), threads)
        assert np.array_equal(got, want.reshape(7, -1), equal_nan=True)


def every_function(x: Value, y: Value) -> list[Value]:
    unary = [activate(x, kind) for kind in (*KINDS, "gelu_erf")]  # type: ignore[arg-type]
    binary = [gated(x, y, kind) for kind in (*KINDS, "swiglu_oai")]  # type: ignore[arg-type]
    others = [add(x, y), mul(x, y), scale(x, 0.7), softcap(x, 3.0), clamp(x, -1.5, 0.5), temper(x, 2, 0.3)]
    return [*unary, *binary, *others]


WIDTH = 40


@pytest.mark.parametrize("at", [0, *range(1, WIDTH, 3)])
def test_elementwise_bits_are_the_same_anywhere(at: int) -> None:
    """The two parts of a row, wherever it is cut, have the bits that the whole row has: by every function."""
    x = np.concatenate([np.resize(ODD, (2, WIDTH)), numbers(9, WIDTH)]).astype(np.float32)
    y = numbers(11, WIDTH + 1)[:, :WIDTH]

    def rows(cuts: list[int]) -> Array:
        def function(both: Value) -> Value:
            halves = split(both, *cuts, *cuts)
            pairs = zip(halves[: len(cuts)], halves[len(cuts) :], strict=True)
            parts = [every_function(*pair) for pair in pairs]
            return reduce(concat, [reduce(concat, several) for several in zip(*parts, strict=True)])

        return applied(np.concatenate([x, y], axis=1), function).view(np.int32)

    want = rows([WIDTH])
    assert np.array_equal(want, rows([at, WIDTH - at] if at else [*range(1, 9), WIDTH - 36]))
    assert np.isfinite(want.view(np.float32)).mean() > 0.9


@pytest.mark.parametrize("n", [1, 7, 8, 9, 15, 16, 17, 31, 33, 48])
def test_one_number_for_a_row_and_copies(n: int) -> None:
    x = numbers(6, n + 1)
    by = np.float32([1.5]) + np.abs(x[:, -1:])

    def cut(v: Value) -> list[Value]:
        return split(v, n, 1)

    rows = np.concatenate([x[:, :n], by], axis=1)
    for function, want in ((add, x[:, :n] + by), (mul, x[:, :n] * by), (div, x[:, :n] / by)):
        assert np.array_equal(applied(rows, lambda v, function=function: function(*cut(v))), want)  # type: ignore[misc]
    assert np.array_equal(applied(rows, lambda v: cut(v)[0]), x[:, :n])
    want = np.concatenate([np.full((6, n), -3, np.float32), rows[:, :n]], axis=1)
    assert np.array_equal(applied(rows, lambda v: pad(cut(v)[0], n, -3.0)), want)


@pytest.mark.parametrize("width", [1, 5, 16, 21, 40])
def test_mixed_experts(width: int) -> None:
    """Sums in the experts' order, each product and sum rounded."""
    x, weights = numbers(5, 3 * width), numbers(5, 3)
    rows = np.concatenate([x, weights], axis=1)
    want = np.zeros((5, width), np.float32)
    for k in range(3):
        want += x[:, k * width : (k + 1) * width] * weights[:, k : k + 1]

    def function(v: Value) -> Value:
        several, by = split(v, 3 * width, 3)
        return mix(heads(several, 3), by)

    assert np.array_equal(applied(rows, function), want)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("width", [1, 15, 16, 50])
def test_embedded_rows(kind: str, width: int) -> None:
    table = float_weight("token_embd.weight", numbers(9, width), kind)
    tokens = [8, 0, 3, 3, 5]
    got = run("cpu", lambda t, p: pick(embed(t, table)), [[whole(tokens)]])
    assert np.array_equal(got, table.floats()[tokens])
