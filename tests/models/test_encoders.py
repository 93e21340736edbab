"""Embeddings and ranks of tiny models drawn at random against llama.cpp's (golden/encoders.npz)."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import llamina
from golden.encoder_models import (
    BERT,
    LAST,
    NONE,
    OUTPUT,
    POOLED,
    RANK,
    RANKERS,
    TINY,
    TOKENS,
    WIDTH,
    Array,
    Tiny,
    save,
)
from llamina import Request
from llamina.errors import RequestError, UnsupportedModel
from llamina.gguf import open_model
from llamina.models.t5encoder import bucket


@pytest.fixture(scope="module")
def facts(golden: Callable[[str], Path]) -> dict[str, Array]:
    return dict(np.load(golden("encoders.npz")))


@pytest.fixture
def make(tmp_path: Path) -> Callable[[Tiny, int], Path]:
    return lambda tiny, pooling: save(tmp_path / f"{pooling}.gguf", tiny, pooling)


def nmse(got: Array, want: Array) -> float:
    return float(np.sum(np.square(got - want)) / np.sum(np.square(want)))


@pytest.mark.parametrize("name", TINY)
def test_hidden_states_are_llama_cpps(name: str, make: Callable[[Tiny, int], Path], facts: dict[str, Array]) -> None:
    path, want = make(TINY[name], NONE), facts[name]
    for backend in ("reference", "cpu"):
        with llamina.load(path, backend=backend, kv_type="f32") as engine:
            assert nmse(engine.hidden(TOKENS), want) < 1e-5, backend  # its GELU is a table of F16


@pytest.mark.parametrize("name", POOLED)
def test_pooling_is_the_files(name: str, make: Callable[[Tiny, int], Path], facts: dict[str, Array]) -> None:
    path = make(*POOLED[name])
    with llamina.load(path, backend="reference", kv_type="f32") as engine:
        assert nmse(engine.embed(TOKENS, normalize=False)[0], facts[name]) < 1e-5
        assert np.allclose(np.linalg.norm(engine.embed(TOKENS)), 1)


@pytest.mark.parametrize("name", RANKERS)
def test_ranks_are_llama_cpps(name: str, make: Callable[[Tiny, int], Path], facts: dict[str, Array]) -> None:
    path = make(RANKERS[name][0], RANK)
    for backend in ("reference", "cpu"):
        with llamina.load(path, backend=backend, kv_type="f32") as engine:
            assert nmse(engine.embed([TOKENS, TOKENS[:9]])[0], facts[f"{name}, ranked"]) < 1e-4, backend


@pytest.mark.parametrize(
    "name",
    [
        "bert",
        "nomic-bert-moe",
        "jina-bert-v2",
        "qwen3",
        "modern-bert",
        "gemma-embedding, dense",
        "llama-embed",
        "t5encoder",
    ],
)
def test_same_bits_alone_and_together(name: str, make: Callable[[Tiny, int], Path]) -> None:
    path = make(TINY[name], NONE)
    texts = [TOKENS, TOKENS[:1], TOKENS[5:40], TOKENS[::-1], TOKENS[3:]]
    with llamina.load(path, threads=2) as engine:
        for pooling in ("mean", "max", "cls", "last"):
            together = engine.embed(texts, pooling=pooling)  # type: ignore[arg-type]
            assert together.shape == (len(texts), WIDTH) and together.dtype == np.float32
            with llamina.load(path, threads=1, step_tokens=16 if engine.runner.model.causal else None) as other:
                alone = [other.embed(text, pooling=pooling)[0] for text in texts]  # type: ignore[arg-type]
            assert np.array_equal(together, alone)


def test_distances_that_share_a_bias() -> None:
    """As `transformers` divides them among T5's 32 biases."""
    first = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]
    for distance in range(300):
        expected = sum(start <= distance for start in first) - 1
        assert bucket(-distance, 16) == expected
        assert not distance or bucket(distance, 16) == 16 + expected


def test_an_encoder_writes_nothing(make: Callable[[Tiny, int], Path]) -> None:
    with llamina.load(make(BERT, NONE), backend="reference") as engine:
        with pytest.raises(RequestError, match="both ways"):
            engine.generate(TOKENS)
        for call in (engine.logits, engine.perplexity):
            with pytest.raises(RequestError):
                call(TOKENS)
        with pytest.raises(UnsupportedModel, match="no classifier"):
            engine.embed(TOKENS, pooling="rank")
        with pytest.raises(RequestError, match="context holds 256"):
            engine.embed([TOKENS, TOKENS * 4])
        assert not engine.core.waiting and not engine.core.running, "the first text is not left behind"
        assert engine.core.pages.free == engine.core.pages.total


def test_a_query_and_a_document_are_one_text(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """[CLS] query [SEP] document, as llama.cpp's server has it."""
    words = {k: v for k, v in open_model(golden("vocab/ggml-vocab-bert-bge.gguf")).metadata.items() if "tokenizer" in k}
    shared = BERT.shared | OUTPUT | {"token_embd.weight": (len(words["tokenizer.ggml.tokens"]), WIDTH)}
    with llamina.load(save(tmp_path / "bert.gguf", replace(BERT, shared=shared), RANK, words)) as engine:
        query, document = (engine.tokenizer.encode(text) for text in ("what eats grass?", "A llama [SEP] does."))
        expected = engine.embed([[101, *query, 102, *document], [101, *query, 102, *query]])
        assert np.array_equal(
            engine.rerank("what eats grass?", ["A llama [SEP] does.", "what eats grass?"]), expected[:, 0]
        )


def test_embeddings_beside_a_generation(make: Callable[[Tiny, int], Path]) -> None:
    """Logits, hidden states and scores in the same steps, from the same pages."""
    tiny, _ = RANKERS["qwen3"]
    with llamina.load(make(tiny, LAST), threads=2, step_tokens=32) as engine:
        alone = {
            "logits": engine.logits(TOKENS),
            "hidden": engine.hidden(TOKENS),
            "rank": engine.embed(TOKENS, pooling="rank"),
        }
        sequences = [
            engine.submit(Request(TOKENS, reads=range(len(TOKENS)), reading=kind))
            for kind in ("logits", "hidden", "rank")
        ]
        while engine.core.running or engine.core.waiting:
            engine.step()
        for sequence in sequences:
            rows, expected = np.concatenate(sequence.rows), alone[sequence.request.reading]
            assert np.array_equal(rows[-len(expected) :], expected)
