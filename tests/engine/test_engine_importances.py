"""Importance matrices measured: llama-imatrix's own figures, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import llamina
from llamina.errors import RequestError
from llamina.gguf import open_model, tensor_type, write
from llamina.quantization import Imatrix
from tales import TALE


def relative(found: Imatrix, expected: Imatrix, name: str) -> float:
    """How far importances are from others, measured by the largest."""
    mine, theirs = found.importances(name), expected.importances(name)
    assert mine is not None and theirs is not None and mine.shape == theirs.shape, name
    return float(np.abs(mine - theirs).max() / theirs.max())


@pytest.fixture(scope="module")
def experts(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model that tells stories with four experts, which are its feed-forward with rows moved."""
    file, path = open_model(stories), tmp_path_factory.mktemp("experts") / "experts.gguf"
    kind, rng, tensors = tensor_type("F32"), np.random.default_rng(7), []
    for tensor in file.tensors.values():
        if ".ffn_norm" in tensor.name or ".ffn_" not in tensor.name:
            tensors.append(tensor)
            continue
        values = tensor.data.view("<f4").reshape(tensor.shape)
        several = np.stack([np.roll(values, expert, 0) for expert in range(4)])
        tensors.append((tensor.name.replace(".weight", "_exps.weight"), several.shape, kind, several))
        if ".ffn_gate." in tensor.name:
            router = rng.standard_normal((4, tensor.shape[1])).astype(np.float32)
            router[3] = 0
            tensors.append((tensor.name.replace("ffn_gate", "ffn_gate_inp"), router.shape, kind, router))
    metadata = {**file.metadata, "llama.expert_count": 4, "llama.expert_used_count": 2}
    write(path, metadata, tensors, metadata_types=file.metadata_types)
    return path


def test_llama_cpp_s_figures(stories: Path, golden: Callable[[str], Path]) -> None:
    expected, told = Imatrix.read(golden("stories260K_imatrix.gguf")), []
    with llamina.load(stories, context=64, backend="cpu") as engine:
        found = llamina.imatrix(
            engine, TALE, chunk_size=64, output=True, dataset="tale.txt", progress=lambda *done: told.append(done)
        )
    assert found.sums.keys() == expected.sums.keys() and "output.weight" in found.sums
    assert (found.chunks, found.chunk_size, found.datasets) == (26, 64, ["tale.txt"])
    assert (expected.chunks, expected.chunk_size, expected.datasets) == (26, 64, ["tale.txt"])
    for name in expected.sums:
        assert (found.counts[name] == expected.counts[name]).all()
        assert relative(found, expected, name) < 1e-3, name
    assert told == [(done, 26) for done in range(27)]


def test_experts_are_measured_each(experts: Path, golden: Callable[[str], Path]) -> None:
    """Where the router's choice is close, a token or two go to another expert than in llama.cpp."""
    expected = Imatrix.read(golden("experts_imatrix.gguf"))
    with llamina.load(experts, context=64, backend="cpu") as engine:
        found = llamina.imatrix(engine, TALE, chunk_size=64)
    assert found.sums.keys() == expected.sums.keys()
    for name in expected.sums:
        assert np.abs(found.counts[name] - expected.counts[name]).max() <= 2, name
        assert found.counts[name].sum() == expected.counts[name].sum()
        assert relative(found, expected, name) < 3e-2, name
    assert found.sums["blk.0.ffn_up_exps.weight"].shape[0] == 4


def test_chunks_of_several_steps_are_the_same(stories: Path) -> None:
    with llamina.load(stories, context=64, backend="cpu", step_tokens=24) as engine:
        parts = llamina.imatrix(engine, TALE, chunk_size=64, chunks=2, skip=1)
    with llamina.load(stories, context=64, backend="cpu") as engine:
        whole = llamina.imatrix(engine, TALE, chunk_size=64, chunks=2, skip=1)
        others = llamina.imatrix(engine, TALE, chunk_size=64, chunks=2)
        assert engine.runner.pages.free == engine.runner.pages.total
    for name in whole.sums:
        assert np.allclose(parts.sums[name], whole.sums[name], rtol=1e-6)
    assert not np.allclose(others.sums["blk.0.attn_q.weight"], whole.sums["blk.0.attn_q.weight"])


def test_refusals(stories: Path) -> None:
    with llamina.load(stories, context=64, backend="cpu") as engine:
        with pytest.raises(RequestError, match="the text has 3 tokens, and chunks of 64 from number 1 on"):
            llamina.imatrix(engine, "a b", chunk_size=64)
        with pytest.raises(RequestError, match="chunk_size is 512: the context has 64 tokens"):
            llamina.imatrix(engine, TALE)
        with pytest.raises(RequestError, match="chunks is 0: it must be at least 1"):
            llamina.imatrix(engine, TALE, chunk_size=64, chunks=0)
    with (
        llamina.load(stories, context=64, backend="reference") as engine,
        pytest.raises(RequestError, match="cannot be traced: use backend='cpu'"),
    ):
        llamina.imatrix(engine, TALE, chunk_size=64)
