"""Encoding: rounding, error bounds, odd values, shapes, refusals. ggml's own bytes: test_quant_golden.py."""

import gguf.quants
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from llamina.errors import RequestError, UnsupportedModel
from llamina.quant import FORMATS, Format, decode, encode, format_of

WRITABLE = [f for f in FORMATS.values() if f.encode]
BLOCKS = [f for f in WRITABLE if f.block > 1]

# The step of each format in parts of a block's largest magnitude (`_0`) or of its range (`_1`).
STEPS = {"Q4_0": 1 / 8, "Q5_0": 1 / 16, "Q8_0": 1 / 127, "Q4_1": 1 / 15, "Q5_1": 1 / 31}

finite = st.floats(-1e4, 1e4, width=32)


def test_what_can_be_written() -> None:
    assert {f.name for f in WRITABLE} == {"F32", "F16", "BF16", *STEPS}


@pytest.mark.parametrize("form", BLOCKS, ids=str)
@settings(max_examples=60, deadline=None)
@given(values=arrays.arrays(np.float32, 32, elements=finite))
@example(values=np.full(32, 127 * 1.5 * 2.0**-24, np.float32))  # Q8_0's scale is halfway between two subnormal halves
def test_error_is_within_a_step(form: Format, values: np.ndarray) -> None:
    """Half a step, or a whole one where `_0` has no level at the upper end; and what storing halves costs.

    The error of the stored scale counts as often as the largest level has steps: 127 times for Q8_0.
    """
    lowest, highest = float(values.min()), float(values.max())
    centred = form.name.endswith("_0")
    step = STEPS[form.name] * (max(-lowest, highest) if centred else highest - lowest)
    rounding = (1.0 if form.name in ("Q4_0", "Q5_0") else 0.5) * step
    stored = half_error(step) / STEPS[form.name] + (0 if centred else half_error(lowest))
    error = np.abs(decode(encode(values, form), form).astype(np.float64) - values).max()
    assert error <= rounding + stored + 2.0**-20 * max(-lowest, highest)  # the last: float32 arithmetic


def half_error(x: float) -> float:
    """The most that rounding to half precision changes x: half of the last place, also where halves are subnormal."""
    return max(abs(x) * 2.0**-11, 2.0**-25)


@pytest.mark.parametrize("form", [f for f in WRITABLE if f.name not in ("F32", "F16")], ids=str)
@settings(max_examples=60, deadline=None)
@given(values=arrays.arrays(np.float32, (2, 64), elements=finite))
def test_agrees_with_gguf(form: Format, values: np.ndarray) -> None:
    """By value, not by byte: `gguf` rounds in float64, so the two may part where a value is halfway."""
    with np.errstate(all="ignore"):
        stored = gguf.quants.quantize(values, gguf.GGMLQuantizationType[form.name])
    theirs, ours = decode(stored, form), decode(encode(values, form), form)
    span = values.max() - values.min() + np.abs(values).max()
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=STEPS.get(form.name, 0) * span * 1.01)


@pytest.mark.parametrize("form", WRITABLE, ids=str)
def test_shapes_and_chunks(form: Format) -> None:
    values = np.random.default_rng(0).standard_normal((3, 5, 96))
    whole = encode(values, form)
    assert whole.shape == (3, 5, 96 // form.block * form.nbytes)
    for chunk in (1, 100):
        np.testing.assert_array_equal(encode(values, form, chunk=chunk), whole)
    np.testing.assert_array_equal(encode(values[:, ::2], form), whole[:, ::2])
    assert encode(np.empty((0, 64)), form).shape == (0, 64 // form.block * form.nbytes)


@pytest.mark.parametrize("form", BLOCKS, ids=str)
def test_blocks_without_a_usable_scale(form: Format) -> None:
    """All zero, all alike, and so small that 1 / scale overflows."""
    assert not decode(encode(np.zeros(32), form), form).any()
    alike = decode(encode(np.full(32, -3.0), form), form)
    np.testing.assert_allclose(alike, -3, rtol=1e-3)
    tiny = np.zeros(32)
    tiny[5] = 1e-42
    assert not decode(encode(tiny, form), form).any()


@pytest.mark.parametrize("form", BLOCKS, ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -1e30, 1e300])
def test_blocks_refuse_what_would_spoil_them(form: Format, bad: float) -> None:
    values = np.zeros((4, 64))
    values[2, 40] = bad
    with pytest.raises(RequestError, match="too large for a block: use F32 or BF16"):
        encode(values, form)


def test_halves_away_from_zero() -> None:
    values = np.zeros(32, np.float32)
    values[:6] = [127, 0.5, -0.5, 1.5, np.nextafter(np.float32(0.5), np.float32(0)), -2.5]
    assert encode(values, "Q8_0")[2:8].view(np.int8).tolist() == [127, 1, -1, 2, 0, -3]


def bits(values: list[float] | np.ndarray, name: str) -> list[int]:
    return encode(np.asarray(values, np.float32), name).view("<u2").tolist()


def test_bf16_rounds_ties_to_even_and_quiets_nan() -> None:
    patterns = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x7F800001, 0xFFC12345], "<u4")
    assert bits(patterns.view("<f4"), "BF16") == [0x3F80, 0x3F82, 0x3F81, 0x7F80, 0x7FC0, 0xFFC1]


def test_f16_rounds_ties_to_even_and_quiets_nan() -> None:
    assert bits([1 + 2**-11, 1 + 3 * 2**-11, 2**-25, 65520, -1e9], "F16") == [
        0x3C00,
        0x3C02,
        0,
        0x7C00,
        0xFC00,
    ]
    nan = np.array([0x7F800001, 0xFFC00000], "<u4").view("<f4")
    assert [b & 0x7E00 for b in bits(nan, "F16")] == [0x7E00, 0x7E00]


def test_plain_formats_round_trip() -> None:
    values = np.array([0.0, -0.0, 1.5, -np.inf, 2.0**-24], np.float32)
    for name in ("F32", "F16", "BF16"):
        np.testing.assert_array_equal(decode(encode(values, name), name).view(np.uint32), values.view(np.uint32))


def test_errors_say_what_can_be_done() -> None:
    with pytest.raises(UnsupportedModel, match=r"IQ2_XS can be read but not written.*Q8_0"):
        encode(np.zeros(256), format_of("IQ2_XS"))
    with pytest.raises(RequestError, match="rows of 33 values do not divide into Q4_0 blocks of 32"):
        encode(np.zeros((2, 33)), "Q4_0")
