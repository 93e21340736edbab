"""Decoding: blocks made by hand, any shape and chunk, and agreement with the `gguf` package."""

import warnings

import gguf.quants
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamina.errors import RequestError, UnsupportedModel
from llamina.gguf.types import TENSOR_TYPES, TensorType
from llamina.quant import FORMATS, Format, decode, format_of

ALL = list(FORMATS.values())
KNOWN_TO_GGUF = [f for f in ALL if f.name in {t.name for t in gguf.quants._type_traits}]


def random_bytes(form: Format, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*shape[:-1], shape[-1] * form.nbytes), np.uint8)


def test_every_tensor_type_has_a_format() -> None:
    assert set(FORMATS) == set(TENSOR_TYPES)


@pytest.mark.parametrize("form", KNOWN_TO_GGUF, ids=str)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_agrees_with_gguf(form: Format, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 3))
    blocks = data.draw(st.binary(min_size=rows * form.nbytes, max_size=rows * form.nbytes))
    stored = np.frombuffer(blocks, np.uint8).reshape(rows, form.nbytes)
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(stored, gguf.GGMLQuantizationType[form.name])
    np.testing.assert_array_equal(decode(stored, form), expected)


@pytest.mark.parametrize("form", ALL, ids=str)
def test_leading_axes_are_kept(form: Format) -> None:
    flat = random_bytes(form, 30)
    expected = decode(flat, form)
    assert expected.shape == (30 * form.block,)
    for lead in [(1,), (5,), (3, 1, 2)]:
        rows = flat.reshape(*lead, -1)
        values = decode(rows, form)
        assert values.shape == (*lead, expected.size // np.prod(lead))
        np.testing.assert_array_equal(values.reshape(-1), expected)
    single = form.decode(flat.reshape(3, 5, 2, form.nbytes))
    np.testing.assert_array_equal(single.reshape(-1), expected)


@pytest.mark.parametrize("form", ALL, ids=str)
@pytest.mark.parametrize("chunk", [1, 700, 1 << 30])
def test_chunks_do_not_show(form: Format, chunk: int) -> None:
    data = random_bytes(form, 4, 9)
    np.testing.assert_array_equal(decode(data, form, chunk=chunk), decode(data, form))


@pytest.mark.parametrize("form", ALL, ids=str)
def test_odd_bytes_are_silent_and_views_are_fine(form: Format) -> None:
    """Random scales include NaN and infinity; data may be read-only, unaligned or strided."""
    data = random_bytes(form, 64, 2)
    unaligned = np.concatenate([[0], data.reshape(-1)]).astype(np.uint8)[1:]
    unaligned.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = decode(data, form)
        form.decode(data.reshape(-1, form.nbytes))
    np.testing.assert_array_equal(decode(unaligned, form, (64, 2 * form.block)), expected)
    np.testing.assert_array_equal(decode(data[::2], form), expected[::2])


def test_plain_numbers() -> None:
    whole = [0, 1, -1, 100, -128]
    for name, dtype in {
        "I8": "i1",
        "I16": "<i2",
        "I32": "<i4",
        "I64": "<i8",
        "F64": "<f8",
        "F32": "<f4",
    }.items():
        assert decode(np.array(whole, dtype).view(np.uint8), name).tolist() == whole
    assert decode(np.array([1e300, 2**-149, np.nan]).view(np.uint8), "F64").tolist()[:2] == [np.inf, 2**-149]
    assert decode(np.array([0x3F80, 0xFF80, 1], "<u2").view(np.uint8), "BF16").tolist() == [
        1,
        -np.inf,
        2**-133,
    ]
    assert decode(np.array([0x0001, 0x8000, 0x7C00], "<u2").view(np.uint8), "F16").tolist() == [
        2**-24,
        0,
        np.inf,
    ]


def test_formats_of_activations() -> None:
    """Q8_1 and Q8_K never reach a file; they keep sums beside the values, which a decoder does not read."""
    q = np.arange(256).astype(np.int8)
    q8_1 = np.concatenate([np.array([0.5, 99], "<f2").view(np.uint8), q[:32].view(np.uint8)])
    assert decode(q8_1, "Q8_1").tolist() == (q[:32] * 0.5).tolist()
    q8_k = np.concatenate([np.array([0.25], "<f4").view(np.uint8), q.view(np.uint8), np.zeros(32, np.uint8)])
    assert decode(q8_k, "Q8_K").tolist() == (q * 0.25).tolist()


def test_shape() -> None:
    data = random_bytes(format_of("Q4_0"), 6)
    assert decode(data, "Q4_0", (2, 3, 32)).shape == (2, 3, 32)
    assert decode(data[:0], "Q4_0", (0, 32)).shape == (0, 32)
    assert decode(np.empty((0, 18), np.uint8), "Q4_0").shape == (0, 32)


def test_a_format_by_any_key() -> None:
    form = FORMATS[12]
    assert (form.name, form.block, form.nbytes, str(form)) == ("Q4_K", 256, 144, "Q4_K")
    for key in (form, form.type, 12, "Q4_K", "q4_k", "q4_K"):
        assert format_of(key) is form


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(UnsupportedModel, match="Q4_0_4_4"):
        format_of(31)
    with pytest.raises(UnsupportedModel, match="Q9_K"):
        format_of("Q9_K")
    with pytest.raises(UnsupportedModel, match=r"Q9_K tensors cannot be dequantized.*Q4_K"):
        format_of(TensorType(999, "Q9_K", 256, 300))
    with pytest.raises(RequestError, match="19 bytes are not whole Q4_0 blocks of 18"):
        decode(np.zeros(19, np.uint8), "Q4_0")
    with pytest.raises(RequestError, match=r"holds 32 Q4_0 values, but shape \(2, 32\) asks for 64"):
        decode(np.zeros(18, np.uint8), "Q4_0", (2, 32))
    with pytest.raises(RequestError, match="float32, not uint8"):
        decode(np.zeros(18, np.float32), "Q4_0")
