"""Embeddings and ranks against llama.cpp run beside us, on tiny models drawn at random."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pytest
from live import embedding

import llamina
from llamina import Request
from llamina.errors import RequestError, UnsupportedModel
from llamina.gguf import open_model, tensor_type, write

Array = npt.NDArray[np.float32]
Shapes = dict[str, tuple[int, ...]]
WIDTH, HIDDEN, VOCAB, CONTEXT, LAYERS = 64, 96, 128, 256, 3
TOKENS = [int(t) for t in np.random.default_rng(1).integers(0, VOCAB, 75)]
NONE, MEAN, CLS, LAST, RANK = range(5)  # of pooling_type


def norm(name: str, width: int = WIDTH) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def matrix(name: str, rows: int, columns: int, bias: bool = True) -> Shapes:
    return {f"{name}.weight": (rows, columns)} | ({f"{name}.bias": (rows,)} if bias else {})


ATTENTION = matrix("attn_output", WIDTH, WIDTH) | norm("attn_output_norm") | norm("layer_output_norm")
SEPARATE = matrix("attn_q", WIDTH, WIDTH) | matrix("attn_k", WIDTH, WIDTH) | matrix("attn_v", WIDTH, WIDTH)
PLAIN = matrix("ffn_up", HIDDEN, WIDTH) | matrix("ffn_down", WIDTH, HIDDEN)
GATED = {f"ffn_{name}.weight": shape for name, shape in (("gate", (HIDDEN, WIDTH)), ("up", (HIDDEN, WIDTH)))}
EXPERTS = {
    "ffn_gate_inp.weight": (4, WIDTH),
    "ffn_up_exps.weight": (4, HIDDEN, WIDTH),
    "ffn_down_exps.weight": (4, WIDTH, HIDDEN),
}
EMBEDDINGS = {"token_embd.weight": (VOCAB, WIDTH), "token_types.weight": (2, WIDTH)} | norm("token_embd_norm")
DENSE, OUTPUT = matrix("cls", WIDTH, WIDTH), matrix("cls.output", 1, WIDTH)


@dataclass(frozen=True)
class Tiny:
    """A model to be drawn: its layers, what is outside of them, and what its metadata adds to the usual."""

    arch: str
    layer: Shapes
    shared: Shapes = field(default_factory=lambda: EMBEDDINGS)
    metadata: dict[str, Any] = field(default_factory=dict)
    others: dict[int, Shapes] = field(default_factory=dict)  # layers that are not like the rest


BERT = Tiny("bert", ATTENTION | SEPARATE | PLAIN, EMBEDDINGS | {"position_embd.weight": (CONTEXT, WIDTH)})
NOMIC = Tiny(
    "nomic-bert", ATTENTION | matrix("attn_qkv", 3 * WIDTH, WIDTH, False) | GATED | {"ffn_down.weight": (WIDTH, HIDDEN)}
)
JINA = Tiny("jina-bert-v2", ATTENTION | SEPARATE | GATED | matrix("ffn_down", WIDTH, HIDDEN))
QWEN_LAYER = {"attn_norm.weight": (WIDTH,), "ffn_norm.weight": (WIDTH,), "attn_output.weight": (WIDTH, WIDTH)} | GATED
QWEN = Tiny(
    "qwen3",
    QWEN_LAYER
    | {f"attn_{x}.weight": (WIDTH, WIDTH) for x in "qkv"}
    | {f"attn_{x}_norm.weight": (32,) for x in "qk"}
    | {"ffn_down.weight": (WIDTH, HIDDEN)},
    {"token_embd.weight": (VOCAB, WIDTH), "output_norm.weight": (WIDTH,)},
)
TINY = {
    "bert": BERT,
    "bert, one type": replace(BERT, shared=BERT.shared | {"token_types.weight": (1, WIDTH)}),
    "nomic-bert": NOMIC,
    "nomic-bert-moe": Tiny(
        "nomic-bert-moe",
        ATTENTION | matrix("attn_qkv", 3 * WIDTH, WIDTH) | PLAIN,
        metadata={"moe_every_n_layers": 2, "expert_count": 4, "expert_used_count": 2},
        others={1: ATTENTION | matrix("attn_qkv", 3 * WIDTH, WIDTH) | EXPERTS},
    ),
    "jina-bert-v2": JINA,
    "jina-bert-v2, gate within up": replace(
        JINA, layer=ATTENTION | SEPARATE | matrix("ffn_up", 2 * HIDDEN, WIDTH) | matrix("ffn_down", WIDTH, HIDDEN)
    ),
    "jina-bert-v2, code": replace(
        JINA, layer=ATTENTION | SEPARATE | PLAIN | norm("attn_q_norm") | norm("attn_k_norm") | norm("attn_norm_2")
    ),
    "jina-bert-v3": Tiny("jina-bert-v3", ATTENTION | matrix("attn_qkv", 3 * WIDTH, WIDTH) | PLAIN),
    "qwen3": QWEN,
    "qwen3, both ways": replace(QWEN, metadata={"attention.causal": False}),
}
RANKERS = {
    "bert": (replace(BERT, shared=BERT.shared | OUTPUT), 1),
    "roberta": (replace(BERT, shared=BERT.shared | DENSE | OUTPUT), 1),
    "jina-bert-v2": (replace(JINA, shared=JINA.shared | matrix("cls", 1, WIDTH)), 1),
    "bert, labels": (
        replace(
            BERT,
            shared=BERT.shared | matrix("cls.output", 3, WIDTH),
            metadata={"classifier.output_labels": ["a", "b", "c"]},
        ),
        3,
    ),
    "qwen3": (
        replace(
            QWEN,
            shared=QWEN.shared | {"cls.output.weight": (2, WIDTH)},
            metadata={"classifier.output_labels": ["yes", "no"]},
        ),
        2,
    ),
}


def draw(name: str, shape: tuple[int, ...]) -> Array:
    x = np.random.default_rng(crc32(name.encode())).standard_normal(shape, np.float32)
    if "norm" in name and name.endswith("weight"):
        return 1 + 0.1 * x
    return 0.1 * x if len(shape) == 1 else x if name == "token_embd.weight" else x * np.float32(1.5 / shape[-1] ** 0.5)


def save(path: Path, tiny: Tiny, pooling: int, vocabulary: dict[str, Any] | None = None) -> Path:
    shapes = dict(tiny.shared)
    for i in range(LAYERS):
        shapes |= {f"blk.{i}.{name}": shape for name, shape in tiny.others.get(i, tiny.layer).items()}
    own: dict[str, Any] = {
        "vocab_size": VOCAB,
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "block_count": LAYERS,
        "feed_forward_length": HIDDEN,
        "attention.head_count": 2,
        "attention.head_count_kv": 2,
        "attention.causal": tiny.arch == "qwen3",
        "rope.freq_base": 10000.0,
        "pooling_type": pooling,
        "attention.layer_norm_rms_epsilon" if tiny.arch == "qwen3" else "attention.layer_norm_epsilon": 1e-5,
    } | tiny.metadata
    metadata = {"general.architecture": tiny.arch, "tokenizer.ggml.model": "none", "tokenizer.ggml.token_type_count": 2}
    if (1, WIDTH) in tiny.shared.values() and "token_types.weight" in tiny.shared:
        metadata["tokenizer.ggml.token_type_count"] = tiny.shared["token_types.weight"][0]
    values = metadata | (vocabulary or {}) | {f"{tiny.arch}.{key}": value for key, value in own.items()}
    tensors = [(name, s, tensor_type("F32"), draw(name, s).view(np.uint8)) for name, s in shapes.items()]
    write(path, values, tensors)
    return path


@pytest.fixture
def make(tmp_path: Path) -> Callable[[Tiny, int], Path]:
    return lambda tiny, pooling: save(tmp_path / f"{pooling}.gguf", tiny, pooling)


def nmse(got: Array, want: Array) -> float:
    return float(np.sum(np.square(got - want)) / np.sum(np.square(want)))


@pytest.mark.parametrize("name", TINY)
def test_hidden_states_are_llama_cpps(name: str, make: Callable[[Tiny, int], Path]) -> None:
    path = make(TINY[name], NONE)
    want = embedding(path, TOKENS, CONTEXT, WIDTH)
    for backend in ("reference", "cpu"):
        with llamina.load(path, backend=backend, kv_type="f32") as engine:
            assert nmse(engine.hidden(TOKENS), want) < 1e-5, backend  # its GELU is a table of F16


@pytest.mark.parametrize("name", ["bert", "qwen3"])
@pytest.mark.parametrize("pooling", [MEAN, CLS, LAST])
def test_pooling_is_the_files(name: str, pooling: int, make: Callable[[Tiny, int], Path]) -> None:
    path = make(TINY[name], pooling)
    with llamina.load(path, backend="reference", kv_type="f32") as engine:
        got = engine.embed(TOKENS, normalize=False)
        assert nmse(got[0], embedding(path, TOKENS, CONTEXT, WIDTH)) < 1e-5
        assert np.allclose(np.linalg.norm(engine.embed(TOKENS)), 1)


@pytest.mark.parametrize("name", RANKERS)
def test_ranks_are_llama_cpps(name: str, make: Callable[[Tiny, int], Path]) -> None:
    tiny, outputs = RANKERS[name]
    path = make(tiny, RANK)
    want = embedding(path, TOKENS, CONTEXT, outputs)
    for backend in ("reference", "cpu"):
        with llamina.load(path, backend=backend, kv_type="f32") as engine:
            assert nmse(engine.embed([TOKENS, TOKENS[:9]])[0], want) < 1e-4, backend


@pytest.mark.parametrize("name", ["bert", "nomic-bert-moe", "jina-bert-v2", "qwen3"])
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
