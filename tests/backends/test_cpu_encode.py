"""The compiled encoders against bytes that ggml computed, and what they refuse."""

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamina.backends.encode as encode_rows
from llamina.backends.cpu.jit import Kernel
from llamina.backends.encode import ENCODED, IGNORES_IMPORTANCES, NEEDS_IMPORTANCES, Encoder, Job
from llamina.errors import RequestError, UnsupportedModel
from llamina.gguf import tensor_type
from llamina.quant import FORMATS, decode, encode, format_of
from llamina.quant.neighbours import search_tables

Array = np.ndarray[Any, Any]
F32 = tensor_type("F32")


def quantized(values: Array, kind: str, importances: Array | None = None, threads: int = 2) -> Array:
    data = np.ascontiguousarray(values, np.float32).view(np.uint8)
    with Encoder(threads) as encoder:
        return encoder.encode(Job(data, F32, tensor_type(kind), importances))


@pytest.fixture
def facts(golden: Callable[[str], Path]) -> dict[str, Array]:
    with np.load(golden("quant_golden.npz")) as stored:
        return {key.lower(): stored[key] for key in stored}


def test_all_formats_that_ggml_can_write(facts: dict[str, Array]) -> None:
    written = {key.partition(".")[0].upper() for key in facts if ".encoded" in key}
    assert set(ENCODED) == written - {"F16", "BF16"}
    assert {f.name for f in FORMATS.values() if f.encode and f.block > 1} <= set(ENCODED)


@pytest.mark.parametrize("kind", [kind for kind in ENCODED if kind not in NEEDS_IMPORTANCES])
def test_the_bytes_are_those_of_ggml(kind: str, facts: dict[str, Array]) -> None:
    if f"{kind.lower()}.encoded" not in facts:
        assert kind == "IQ1_M"
        return
    np.testing.assert_array_equal(quantized(facts["encode.input"], kind), facts[f"{kind.lower()}.encoded"])


@pytest.mark.parametrize("kind", ENCODED)
def test_with_importances_too(kind: str, facts: dict[str, Array]) -> None:
    found = quantized(facts["encode.input"], kind, facts["encode.imatrix"])
    np.testing.assert_array_equal(found, facts[f"{kind.lower()}.encoded_imatrix"])


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
@pytest.mark.parametrize("width", [32, 96, 256, 288])
def test_blocks_that_do_not_fill_a_register(kind: str, width: int) -> None:
    values = np.random.default_rng(0).standard_normal((5, width)).astype(np.float32)
    values[1] = 0
    np.testing.assert_array_equal(quantized(values, kind), encode(values, kind))


@pytest.mark.parametrize("kind", ENCODED)
def test_zeros_and_small_numbers(kind: str) -> None:
    values = np.zeros((3, 256), np.float32)
    values[1] = 1e-30
    values[2, 100] = 0.5
    found = decode(quantized(values, kind, np.ones(256, np.float32)), kind)
    assert np.isfinite(found).all()
    if kind != "Q1_0":
        assert np.abs(found[:2]).max() < 1e-6
        assert abs(found[2].max() - 0.5) < 0.3


@pytest.mark.parametrize("kind", ["IQ3_S", "IQ2_S", "IQ3_XXS"])
def test_a_sub_block_of_zeros_moves_no_other(kind: str) -> None:
    """ggml leaves out the place of one in IQ3_S, so that what follows is decoded as something else."""
    values = np.random.default_rng(0).standard_normal((4, 256)).astype(np.float32)
    values[:, 32:64] = 0
    found = decode(quantized(values, kind), kind)
    assert np.abs(found[:, 32:64]).max() < 0.1
    assert ((found - values) ** 2).mean() < 0.2


def test_threads_and_parts_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).standard_normal((67, 512)).astype(np.float32)
    expected = quantized(values, "Q4_K", threads=1)
    monkeypatch.setattr("llamina.backends.encode.AT_ONCE", 2048)
    monkeypatch.setattr("llamina.backends.encode.PART", 10000)
    np.testing.assert_array_equal(quantized(values, "Q4_K", threads=3), expected)


@pytest.mark.parametrize("source", ["F16", "BF16", "Q8_0", "F32"])
def test_sources(source: str) -> None:
    values = np.random.default_rng(0).standard_normal((7, 256)).astype(np.float32)
    data = encode(values, source)
    with Encoder(1) as encoder:
        found = encoder.encode(Job(data, tensor_type(source), tensor_type("Q6_K")))
        plain = encoder.encode(Job(data, tensor_type(source), tensor_type("F16")))
    np.testing.assert_array_equal(found, quantized(decode(data, source), "Q6_K"))
    np.testing.assert_array_equal(plain, encode(decode(data, source), "F16"))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -2e9])
def test_refuses_what_blocks_cannot_hold(wrong: float) -> None:
    values = np.ones((2, 256), np.float32)
    values[1, 3] = wrong
    with pytest.raises(RequestError, match="NaN, infinity or a number above 1e\\+09, which Q4_K cannot"):
        quantized(values, "Q4_K")


@pytest.mark.parametrize("kind", ["Q4_K", "Q2_K", "Q6_K", "Q8_0", "TQ1_0"])
def test_refuses_what_a_half_cannot_hold(kind: str) -> None:
    with pytest.raises(RequestError, match=f"too large for {kind}"):
        quantized(np.linspace(-9e8, 9e8, 256, dtype=np.float32)[None], kind)


def test_refusals() -> None:
    values = np.ones((1, 256), np.float32)
    for kind in NEEDS_IMPORTANCES:
        with pytest.raises(RequestError, match=f"{kind} needs importances"):
            quantized(values, kind)
    with pytest.raises(UnsupportedModel, match="Q8_K cannot be written"):
        quantized(values, "Q8_K")
    assert set(NEEDS_IMPORTANCES) | set(IGNORES_IMPORTANCES) <= set(ENCODED)


def test_smaller_error_with_importances() -> None:
    """Where it matters: weighted by the importances themselves."""
    rng = np.random.default_rng(0)
    values, importances = rng.standard_normal((16, 512)).astype(np.float32), rng.random(512).astype(np.float32) ** 4
    for kind in set(ENCODED) - set(IGNORES_IMPORTANCES) - set(NEEDS_IMPORTANCES):
        plain, weighted = (decode(quantized(values, kind, w), format_of(kind)) for w in (None, importances))
        assert (importances * (weighted - values) ** 2).sum() < 1.02 * (importances * (plain - values) ** 2).sum(), kind


def test_tables_are_held_while_a_kernel_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that ask for them at once may each get tables of their own, which nothing else holds."""
    alive: list[bool] = []
    made: list[weakref.ref[Array]] = []

    def own(name: str) -> Array:
        tables = np.array(search_tables(name))
        made.append(weakref.ref(tables))
        return tables

    def call(kernel: Kernel, **args: int) -> None:
        alive.append(made[-1]() is not None)
        compiled(kernel, **args)

    compiled = encode_rows._call
    monkeypatch.setattr(encode_rows, "search_tables", own)
    monkeypatch.setattr(encode_rows, "_call", call)
    quantized(np.zeros((4, 256)), "IQ3_S")
    assert alive == [True]
