"""Matrix products of the GPU in Triton's interpreter: every format against NumPy, with the same rounding of
activations.
"""

import os
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from skips import import_peer

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
import_peer("triton")

from triton.runtime import interpreter

from llamina.backends.cuda.kernels import activations, dequantize, gemm, gemv, grouping, plain, relay
from llamina.backends.cuda.kernels.calls import Call
from llamina.backends.cuda.kernels.formats import FORMS
from llamina.backends.cuda.kernels.fused import fits, gated, single, together
from llamina.backends.cuda.kernels.layout import Layout
from llamina.backends.cuda.kernels.loading import first_row, table_of
from llamina.backends.cuda.kernels.loading import relay as relay_calls
from llamina.backends.cuda.kernels.products import Product, activation_arrays, gather, prepare
from llamina.errors import UnsupportedModel
from llamina.quant import decode, format_of

FILES = {f.__name__.rpartition(".")[2]: f for f in (activations, dequantize, gemm, gemv, grouping, plain, relay)}
TYPES = {"fp32": np.float32, "fp16": np.float16, "i32": np.int32, "i8": np.int8}
Arrays = dict[str, npt.NDArray[Any]]


class Pointer:
    """An array that looks to the interpreter like a tensor of torch."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array, self.dtype = array, array.dtype.name

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def itself(self, *_: Any, **__: Any) -> "Pointer":
        return self

    untyped_storage = cpu = new_empty = set_ = copy_ = storage_offset = size = stride = itself


@pytest.fixture(scope="module", autouse=True)
def mended() -> None:
    """Triton 3.6 makes bounds of loops of arrays of one element, which NumPy 2.4 no longer turns into numbers."""
    before = interpreter._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        before(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patch


NOTHING = np.zeros(4, np.int32)


def launch(call: Call, arrays: Arrays) -> None:
    file, name = call.kernel.split(".")
    args = {}
    for parameter, value in call.args.items():
        array = NOTHING if value is None else arrays[value] if isinstance(value, str) else None
        args[parameter] = value if array is None else Pointer(array)
    getattr(FILES[file], name)[call.grid](**args, **call.constants)


def run(
    product: Product, arrays: Arrays, x: npt.NDArray[np.float32], **others: npt.NDArray[Any]
) -> npt.NDArray[np.float32]:
    layout = product.layout
    spaces = {**activation_arrays(product.activation, len(x), layout), **product.workspace}
    have = dict(arrays) | {name: np.full(a.shape, 77, TYPES[a.type]) for name, a in spaces.items()} | others
    have["x"], have["out"] = x, np.full((product.tokens, layout.rows), np.nan, np.float32)
    first = prepare(product.activation, len(x), layout, x.shape[1])
    for call in [*([first] if first else []), *product.calls]:
        launch(call, have)
    assert isinstance(have["out"], np.ndarray)
    return have["out"]


def stored(kind: str, rows: int, columns: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Random bytes, with scales that are numbers, and as large in all blocks as to matter."""
    form = format_of(kind)
    rng = np.random.default_rng(seed)
    if form.block == 1:
        values = rng.standard_normal((rows, columns)).astype(np.float32)
        assert form.encode
        return form.encode(values.reshape(-1)).reshape(rows, -1)
    data = rng.integers(0, 256, (rows, columns // form.block, form.nbytes), np.uint8)
    halves = rng.uniform(0.005, 0.02, (2, *data.shape[:2], 1)).astype("<f2") * rng.choice(
        [-1, 1], (2, *data.shape[:2], 1)
    ).astype("<f2")
    for at, half in zip(HALVES.get(kind, (0,)), halves, strict=False):
        data[..., at : at + 2] = half.view(np.uint8)
    if kind == "MXFP4":
        data[..., 0] = rng.integers(118, 124, data.shape[:2])
    elif kind == "NVFP4":
        data[..., :4] = rng.integers(0, 256, data[..., :4].shape)
    elif kind == "IQ1_M":
        bits = halves[0].view("<u2")[..., 0]
        for i in range(4):
            data[..., 49 + 2 * i] = data[..., 49 + 2 * i] & 15 | ((bits >> (4 * i) & 15) << 4).astype(np.uint8)
    return data.reshape(rows, -1)


# Where blocks have float16 numbers, if not at 0.
HALVES = {
    "Q4_1": (0, 2), "Q5_1": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
    "TQ1_0": (52,), "TQ2_0": (64,), "MXFP4": (), "NVFP4": (), "IQ1_M": (),
}  # fmt: skip


def error(got: npt.NDArray[Any], want: npt.NDArray[Any]) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def eight_bits(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Activations as dot products see them."""
    padded = np.zeros((len(x), -(-x.shape[1] // 32) * 32), np.float32)
    padded[:, : x.shape[1]] = x
    cut = padded.reshape(len(x), -1, 32)
    most = np.abs(cut).max(-1, keepdims=True)
    inverse = np.divide(np.float32(127), most, out=np.zeros_like(most), where=most > 0)
    q = np.rint(cut * inverse).astype(np.float64)
    return (q * (most / np.float32(127))).reshape(len(x), -1)[:, : x.shape[1]]


WIDTHS = {1: 320, 32: 416, 64: 192, 128: 384, 256: 768}


@pytest.mark.parametrize("kind", [*FORMS, "F32", "F16", "BF16"])
@pytest.mark.parametrize("tokens", [1, 3, 5])
def test_products(kind: str, tokens: int) -> None:
    rows, columns = 21, WIDTHS[format_of(kind).block]
    data = stored(kind, rows, columns)
    x = np.random.default_rng(1).standard_normal((tokens, columns)).astype(np.float32)
    x[-1] *= 1e6
    layout = Layout.of(kind, rows, columns)
    product = Product(layout, tokens, layout.gain(data))
    got = run(product, layout.pack(data), x)
    want = (eight_bits(x) if product.activation == "q8" else x.astype(np.float64)) @ decode(data, kind).astype(
        np.float64
    ).T
    most = {"q8": 1e-6, "f16": 1e-3, "f32": 1e-6}[product.activation]
    for row, truth in zip(got, want, strict=True):
        assert error(row, truth) < most


@pytest.mark.parametrize("kind", ["Q4_K", "Q8_0", "IQ4_XS", "F16", "F32"])
def test_columns_in_parts_and_dequantized_weights(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That a token's bits are its own only a GPU can tell (`benchmarks/gpu_products.py`): NumPy's depend on shapes."""
    monkeypatch.setattr("llamina.backends.cuda.kernels.products.MANY", 40)
    rows, columns = 20, 2048
    data = stored(kind, rows, columns)
    x = np.random.default_rng(1).standard_normal((50, columns)).astype(np.float32)
    layout = Layout.of(kind, rows, columns)
    arrays, gain = layout.pack(data), layout.gain(data)
    want = x.astype(np.float64) @ decode(data, kind).astype(np.float64).T
    for tokens, exact in ((1, True), (20, False), (50, False), (50, True)):
        product = Product(layout, tokens, gain, exact=exact)
        assert product.split == (1 if kind == "F32" else 2)
        assert product.dequantized == (kind in FORMS and tokens == 50 and not exact)
        assert error(run(product, arrays, x[:tokens]), want[:tokens]) < 1e-3


@pytest.mark.parametrize(("kind", "columns"), [("Q8_0", 17 * 1024 + 32), ("Q4_K", 17 * 1024 + 256)])
def test_rows_that_are_too_long_for_registers(kind: str, columns: int) -> None:
    data = stored(kind, 9, columns)
    x = np.random.default_rng(1).standard_normal((2, columns)).astype(np.float32)
    layout = Layout.of(kind, 9, columns)
    assert not fits(layout, 1)
    want = eight_bits(x[:1]) @ decode(data, kind).astype(np.float64).T
    assert error(run(Product(layout, 1, 1.0), layout.pack(data), x[:1]), want) < 1e-6
    assert Product(layout, 2, 1.0).activation == "f16"


@pytest.mark.parametrize("tokens", [2, 20])
@pytest.mark.parametrize("kind", ["Q6_K", "F16", "F32"])
def test_what_is_added(kind: str, tokens: int) -> None:
    rows, columns = 45, 512
    data = stored(kind, rows, columns)
    rng = np.random.default_rng(1)
    x, add, bias = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((tokens, columns), (tokens, rows), (rows,))
    )
    layout = Layout.of(kind, rows, columns)
    arrays = layout.pack(data)
    gain = layout.gain(data)
    plain = run(Product(layout, tokens, gain), arrays, x)
    got = run(Product(layout, tokens, gain, add=True, bias=True), arrays, x, add=add, bias=bias)
    assert np.allclose(got, plain + bias + add, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", [*FORMS])
def test_rows_are_decoded_exactly(kind: str) -> None:
    columns = WIDTHS[format_of(kind).block]
    data = stored(kind, 19, columns)
    layout = Layout.of(kind, 19, columns)
    ids = np.array([3, 18, 0, 7, 3], np.int32)
    out = np.full((len(ids), columns + 5), np.nan, np.float32)
    launch(gather(layout, len(ids), columns + 5), layout.pack(data) | {"ids": ids, "out": out})
    assert np.array_equal(out[:, :columns], decode(data, kind)[ids])
    assert np.isnan(out[:, columns:]).all()


@pytest.mark.parametrize("kind", ["Q4_K", "MXFP4", "F16", "F32"])
@pytest.mark.parametrize("items", [7, pytest.param(45, marks=pytest.mark.thorough)])
def test_experts(kind: str, items: int) -> None:
    """Items of several experts, one of which nobody asks for; two items read one row."""
    experts, rows, columns = 5, 21, 256
    data = stored(kind, experts * rows, columns)
    rng = np.random.default_rng(1)
    source = np.arange(items, dtype=np.int32) // 2
    expert = rng.choice([0, 1, 2, 4], items).astype(np.int32)
    x = rng.standard_normal((source[-1] + 1, columns)).astype(np.float32)
    layout = Layout.of(kind, rows, columns, experts)
    product = Product(layout, items, layout.gain(data), grouped=True)
    got = run(product, layout.pack(data), x, expert=expert, source=source)
    seen = eight_bits(x) if product.activation == "q8" else x.astype(np.float64)
    weights = decode(data, kind).astype(np.float64).reshape(experts, rows, columns)
    want = np.einsum("ik,irk->ir", seen[source], weights[expert])
    assert error(got, want) < (1e-3 if product.activation == "f16" else 1e-6)


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K", "F16", "F32"])
@pytest.mark.parametrize("spoilt", [np.nan, np.inf])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_no_number_stays_none(kind: str, spoilt: float) -> None:
    data = stored(kind, 9, 256)
    layout = Layout.of(kind, 9, 256)
    arrays = layout.pack(data)
    for tokens in (2, 5):
        x = np.ones((tokens, 256), np.float32)
        x[1, 77] = spoilt
        got = run(Product(layout, tokens, layout.gain(data)), arrays, x)
        assert not np.isfinite(got[1]).any()
        assert np.isfinite(np.delete(got, 1, 0)).all()


@pytest.mark.parametrize("kind", [*FORMS, "F16", "BF16"])
def test_the_gpu_lays_rows_out_as_numpy_does(kind: str) -> None:
    """All bytes of blocks random; experts, and rows in two pieces."""
    experts, rows, columns = 2, 19, {1: 83, 32: 160, 64: 192, 128: 384, 256: 512}[format_of(kind).block]
    width = columns // format_of(kind).block * format_of(kind).nbytes
    data = np.random.default_rng(3).integers(0, 256, (experts, rows, width), np.uint8)
    if kind == "BF16":
        data[..., 1::2] = 0x3F
    layout = Layout.of(kind, rows, columns, experts)
    with np.errstate(all="ignore"):
        want = layout.pack(data)
        got = {name: np.full(array.shape, 77, array.dtype) for name, array in want.items()}
        for expert in range(experts):
            for start, stop in ((0, 16), (16, rows)):
                first = first_row(layout, expert) + start
                names = got | {"raw": data[expert, start:stop].copy(), "table": table_of(kind)}
                for call in relay_calls(layout, stop - start, first, width, layout.gain(data)):
                    launch(call, names)
    for name, array in want.items():
        assert np.array_equal(got[name].view(np.uint8), array.view(np.uint8)), name


def test_small_numbers_keep_their_precision() -> None:
    """Tensor cores multiply float16 numbers, whose reach a matrix and a token may be far below."""
    data = stored("Q6_K", 16, 512).reshape(16, 2, 210)
    data[..., 208:] = np.full((16, 2, 1), 3e-7, "<f2").view(np.uint8)
    data = data.reshape(16, -1)
    x = np.random.default_rng(1).standard_normal((6, 512)).astype(np.float32) * np.float32(1e-8)
    layout = Layout.of("Q6_K", 16, 512)
    got = run(Product(layout, 6, layout.gain(data)), layout.pack(data), x)
    assert error(got, x.astype(np.float64) @ decode(data, "Q6_K").astype(np.float64).T) < 1e-3


def test_layouts_are_about_as_large_as_files() -> None:
    """What the codebook formats and those of few bits grow by is known."""
    grown = {}
    for kind in FORMS:
        form = format_of(kind)
        grown[kind] = round(Layout.of(kind, 64, 2048).nbytes / (64 * 2048 // form.block * form.nbytes), 2)
    larger = {"TQ1_0": 1.48, "TQ2_0": 1.21, "Q1_0": 1.33, "Q2_0": 1.11, "IQ1_S": 2.16, "IQ1_M": 2.07}
    larger |= {
        "IQ2_XXS": 1.64,
        "IQ2_XS": 1.57,
        "IQ2_S": 1.41,
        "IQ3_XXS": 1.43,
        "IQ3_S": 1.27,
        "Q3_K": 1.05,
        "IQ4_XS": 1.03,
    }
    assert {kind: ratio for kind, ratio in grown.items() if ratio > 1.01} == larger


def test_a_format_without_layout_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="Q8_K weights have no layout on the GPU"):
        Layout.of("Q8_K", 8, 256)


def normed(x: npt.NDArray[np.float32], weight: npt.NDArray[np.float32], eps: float) -> npt.NDArray[np.float32]:
    return x / np.sqrt((x * x).mean(-1, keepdims=True, dtype=np.float32) + np.float32(eps)) * weight


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K", "Q8_0", "Q4_0"])
@pytest.mark.parametrize("tokens", [1, 2])
def test_fused_products(kind: str, tokens: int) -> None:
    """Programs that quantize rows themselves, after a norm or not; two matrices and what is between them."""
    rows, columns = 19, 768
    first, second = stored(kind, rows, columns), stored(kind, rows, columns, 1)
    layout = Layout.of(kind, rows, columns)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((tokens, columns + 4)).astype(np.float32)
    weight, add = (rng.standard_normal(shape).astype(np.float32) / 64 for shape in ((columns,), (tokens, rows)))
    names = layout.pack(first) | {f"{name}2": array for name, array in layout.pack(second).items()}
    names |= {"x": x, "norm": weight, "add": add, "out": np.full((tokens, rows), np.nan, np.float32)}
    a, b = (decode(data, kind).astype(np.float64) for data in (first, second))
    assert fits(layout, tokens)
    launch(single(layout, tokens, "f32", columns + 4, add=True), names)
    assert error(names["out"], eight_bits(x[:, :columns]) @ a.T + add) < 1e-6
    seen = eight_bits(normed(x[:, :columns], weight, 1e-5))
    launch(single(layout, tokens, "norm", columns + 4, 1e-5), names)
    assert error(names["out"], seen @ a.T) < 1e-3  # a number at the border of two steps may be either
    launch(gated(layout, tokens, "norm", "silu", columns + 4, 1e-5), names)
    gate = seen @ a.T
    assert error(names["out"], gate / (1 + np.exp(-gate)) * (seen @ b.T)) < 1e-3


def test_matrices_multiplied_together() -> None:
    """Of several formats, and of different heights; two of them as well as three."""
    columns, kinds = 512, ("Q4_K", "Q8_0", "Q6_K")
    layouts = [Layout.of(kind, rows, columns) for kind, rows in zip(kinds, (40, 16, 9), strict=True)]
    x = np.random.default_rng(1).standard_normal((1, columns)).astype(np.float32)
    names: Arrays = {"x": x}
    for layout, end in zip(layouts, ("", "2", "3"), strict=True):
        data = stored(layout.format, layout.rows, columns)
        names |= {f"{name}{end}": array for name, array in layout.pack(data).items()}
        names[f"want{end}"] = eight_bits(x) @ decode(data, layout.format).astype(np.float64).T
    for count in (2, 3):
        for end, layout in zip(("", "2", "3"), layouts, strict=True):
            names[f"out{end}"] = np.full((1, layout.rows), np.nan, np.float32)
        launch(together(layouts[:count], 1, "f32", columns), names)
        for end in ("", "2", "3")[:count]:
            assert error(names[f"out{end}"], names[f"want{end}"]) < 1e-6
