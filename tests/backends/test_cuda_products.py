"""Matrix products of the GPU in Triton's interpreter: every format against NumPy, with the same rounding of activations."""

import os
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
pytest.importorskip("triton")

from triton.runtime import interpreter

from llamina.backends.cuda.kernels import activations, dequantize, gemm, gemv, grouping, plain
from llamina.backends.cuda.kernels.formats import FORMS
from llamina.backends.cuda.kernels.layout import Layout
from llamina.backends.cuda.kernels.products import Call, Product, activation_arrays, gather, prepare
from llamina.quant import decode, format_of

FILES = {f.__name__.rpartition(".")[2]: f for f in (activations, dequantize, gemm, gemv, grouping, plain)}
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


def run(product: Product, arrays: Arrays, x: npt.NDArray[np.float32], **others: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
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
    halves = rng.uniform(0.005, 0.02, (2, *data.shape[:2], 1)).astype("<f2") * rng.choice([-1, 1], (2, *data.shape[:2], 1)).astype("<f2")
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
    want = (eight_bits(x) if product.activation == "q8" else x.astype(np.float64)) @ decode(data, kind).astype(np.float64).T
    most = {"q8": 1e-6, "f16": 1e-3, "f32": 1e-6}[product.activation]
    for row, truth in zip(got, want, strict=True):
        assert error(row, truth) < most
