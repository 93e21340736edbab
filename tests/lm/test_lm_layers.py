"""Layers alone, against what their docstrings say in NumPy."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from llamina import lm
from llamina.errors import RequestError
from llamina.lm import Layer, Linear
from llamina.ops import Rope, constant

F = npt.NDArray[Any]
RNG = np.random.default_rng(3)
X = RNG.standard_normal((5, 8)).astype(np.float32)
backends = pytest.mark.parametrize("backend", ["reference", "cpu"])


def drawn(*shape: int) -> npt.NDArray[np.float32]:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def gpt() -> lm.Gpt2Model:
    config = lm.GptConfig.tiny()
    return lm.Gpt2Model(config, lm.ModelWeights({name: drawn(*shape) for name, shape in config.shapes().items()}))


@pytest.fixture(scope="module")
def llama() -> lm.LlamaModel:
    config = lm.LlamaConfig.tiny()
    return lm.LlamaModel(config, lm.ModelWeights({name: drawn(*shape) for name, shape in config.shapes().items()}))


def close(got: F, want: F) -> bool:
    return np.allclose(got, want, rtol=1e-4, atol=1e-5)


def test_embeddings(gpt: lm.Gpt2Model) -> None:
    w = gpt.weights
    assert np.array_equal(gpt.wte.forward([3, 1, 3]), w["transformer.wte.weight"][[3, 1, 3]])
    runner = gpt.wpe.runner(backend="reference", context=32)
    with runner.new_cache() as past:
        assert np.array_equal(runner.forward([0, 0], past), w["transformer.wpe.weight"][:2])
        assert np.array_equal(runner.forward([0], past), w["transformer.wpe.weight"][2:3])


@backends
def test_norms(backend: str) -> None:
    weight = drawn(8)
    rms = lm.RmsNorm(constant("norm.weight", weight), 1e-5)
    assert close(rms.forward(X, backend), X / np.sqrt(np.mean(X**2, 1, keepdims=True) + 1e-5) * weight)
    layer = lm.LayerNorm(constant("norm.weight", weight), 1e-5)
    centred = X - X.mean(1, keepdims=True)
    assert close(layer.forward(X, backend), centred / np.sqrt(X.var(1, keepdims=True) + 1e-5) * weight)


@backends
def test_linear_and_mlps(backend: str, gpt: lm.Gpt2Model, llama: lm.LlamaModel) -> None:
    matrix = drawn(3, 8)
    assert close(Linear(constant("m.weight", matrix)).forward(X, backend), X @ matrix.T)
    w = gpt.weights
    up = X @ w["transformer.h.0.mlp.c_fc.weight"] + w["transformer.h.0.mlp.c_fc.bias"]
    gelu = 0.5 * up * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)))
    down = gelu @ w["transformer.h.0.mlp.c_proj.weight"] + w["transformer.h.0.mlp.c_proj.bias"]
    assert close(gpt.h[0].mlp.forward(X, backend), down)
    g, u, d = (llama.weights[f"model.layers.1.mlp.{part}_proj.weight"] for part in ("gate", "up", "down"))
    gate = X @ g.T
    assert close(llama.layers[1].mlp.forward(X, backend), (gate / (1 + np.exp(-gate)) * (X @ u.T)) @ d.T)


@backends
def test_rope_turns_pairs(backend: str) -> None:
    x = drawn(4, 6)
    got = lm.RotaryEmbedding(Rope(6, 100.0)).forward(x, backend)
    angles = np.arange(4)[:, None] * 100.0 ** (-np.arange(3) / 3)
    turned = (x[:, ::2] + 1j * x[:, 1::2]) * np.exp(1j * angles)
    assert close(got[:, ::2], turned.real) and close(got[:, 1::2], turned.imag)


def attention(w: Any, x: F) -> F:
    """GPT-2's attention of layer 0, with a causal mask."""
    q, k, v = np.split(x @ w["transformer.h.0.attn.c_attn.weight"] + w["transformer.h.0.attn.c_attn.bias"], 3, axis=1)
    q, k, v = (y.reshape(len(x), 2, 4).swapaxes(0, 1) for y in (q, k, v))
    scores = q @ k.swapaxes(1, 2) / 2
    scores[:, ~np.tri(len(x), dtype=bool)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out = (weights @ v).swapaxes(0, 1).reshape(len(x), 8)
    return out @ w["transformer.h.0.attn.c_proj.weight"] + w["transformer.h.0.attn.c_proj.bias"]


@backends
def test_attention_with_a_cache(backend: str, gpt: lm.Gpt2Model) -> None:
    want = attention(gpt.weights, X)
    assert close(gpt.h[0].attn.forward(X, backend), want)
    runner = gpt.h[0].attn.runner(backend=backend)
    with runner.new_cache() as past:
        steps = [runner.forward(X[:2], past), runner.forward(X[2:3], past), runner.forward(X[3:], past)]
        assert close(np.concatenate(steps), want)
        k = X @ gpt.weights["transformer.h.0.attn.c_attn.weight"][:, 8:16]
        k += gpt.weights["transformer.h.0.attn.c_attn.bias"][8:16]
        assert close(past.layer(0).keys, k.reshape(5, 2, 4).swapaxes(0, 1))
    runner.close()


def test_blocks_are_their_parts(gpt: lm.Gpt2Model) -> None:
    block = gpt.h[0]
    x = X + attention(gpt.weights, block.ln_1.forward(X))
    assert close(block.forward(X), x + block.mlp.forward(block.ln_2.forward(x)))


def test_rows_must_have_the_width() -> None:
    norm: Layer = lm.RmsNorm(constant("norm.weight", np.ones(8)), 1e-5)
    with pytest.raises(RequestError, match=r"inputs are \[5, 7\]: must be \[rows, 8\]"):
        norm.forward(np.ones((5, 7)))
