"""Real tensors encoded here and by ggml, in xllamacpp: the same bytes, with importances and without."""

from ctypes import c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

import numpy as np
import pytest

from llama_library import library
from llamina.backends.encode import Encoder, Job
from llamina.gguf import TensorType, open_model, tensor_type
from llamina.quant import decode

F32 = tensor_type("F32")
ROWS = 6  # of each tensor
LAYERS = (0, 14, 29)


@pytest.fixture(scope="module")
def rows(smollm2: Path) -> np.ndarray:
    """Of matrices whose rows divide into blocks of 256."""
    with open_model(smollm2) as file:
        found = []
        for layer in LAYERS:
            tensor = file.tensors[f"blk.{layer}.ffn_down.weight"]
            found.append(decode(tensor.data, tensor.type, tensor.shape)[::7][:ROWS])
    return np.ascontiguousarray(np.concatenate(found), np.float32)


def encoded_by_ggml(rows: np.ndarray, kind: TensorType, importances: np.ndarray | None) -> np.ndarray:
    quantize = library().ggml_quantize_chunk
    quantize.argtypes = (c_int, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p)
    quantize.restype = c_size_t
    out = np.zeros((len(rows), kind.size(rows.shape[1:])), np.uint8)
    weights = None if importances is None else importances.ctypes.data
    assert quantize(kind.id, rows.ctypes.data, out.ctypes.data, 0, *rows.shape, weights) == out.nbytes
    return out


@pytest.mark.parametrize(
    ("name", "weighed"),
    [(name, weighed) for name in ("Q4_K", "Q2_K", "IQ3_S") for weighed in (False, True)] + [("IQ2_XS", True)],
)
def test_the_bytes_of_a_real_model(rows: np.ndarray, name: str, weighed: bool) -> None:
    kind = tensor_type(name)
    importances = np.random.default_rng(2).gamma(0.5, size=rows.shape[1]).astype(np.float32) if weighed else None
    with Encoder(2) as encoder:
        ours = encoder.encode(Job(rows.view(np.uint8), F32, kind, importances))
    np.testing.assert_array_equal(ours.reshape(len(rows), -1), encoded_by_ggml(rows, kind, importances))
