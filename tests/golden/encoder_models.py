"""Write tiny encoders and rankers, drawn at random, as GGUF files of F32 weights; the files are the same everywhere.

encoders.npz holds what llama.cpp makes of exactly these files (tools/encoder_facts.py).
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from llamina.gguf import tensor_type, write

Array = npt.NDArray[np.float32]
Shapes = dict[str, tuple[int, ...]]
WIDTH, HIDDEN, VOCAB, CONTEXT, LAYERS = 64, 96, 128, 256, 3
TOKENS = [int(t) for t in np.random.default_rng(1).integers(0, VOCAB, 75)]
RMS = (
    "qwen3",
    "eurobert",
    "neo-bert",
    "gemma-embedding",
    "llama-embed",
    "t5encoder",
)  # all others norm by mean and variance
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
    prefix: str = "blk"  # of the layers


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
MODERN = Tiny(
    "modern-bert",
    {"attn_norm.weight": (WIDTH,), "ffn_norm.weight": (WIDTH,), "attn_output.weight": (WIDTH, WIDTH)}
    | {"attn_qkv.weight": (3 * WIDTH, WIDTH), "ffn_up.weight": (2 * HIDDEN, WIDTH), "ffn_down.weight": (WIDTH, HIDDEN)},
    dict.fromkeys(("token_embd_norm.weight", "output_norm.weight"), (WIDTH,)) | {"token_embd.weight": (VOCAB, WIDTH)},
    {"attention.sliding_window": 16, "rope.freq_base": 160000.0, "rope.scaling.type": "none"},
)
FIRST = {name: shape for name, shape in MODERN.layer.items() if name != "attn_norm.weight"}
GROUPED = {"attention.head_count_kv": 1}  # of 2 heads
LLAMA_LAYER = QWEN_LAYER | {"ffn_down.weight": (WIDTH, HIDDEN), "attn_q.weight": (WIDTH, WIDTH)}
EURO = Tiny("eurobert", LLAMA_LAYER | {f"attn_{x}.weight": (WIDTH // 2, WIDTH) for x in "kv"}, QWEN.shared, GROUPED)
GEMMA = Tiny(
    "gemma-embedding",
    EURO.layer
    | {f"attn_{x}_norm.weight": (32,) for x in "qk"}
    | {f"post_{x}_norm.weight": (WIDTH,) for x in ("attention", "ffw")},
    QWEN.shared,
    GROUPED | {"attention.sliding_window": 16, "attention.sliding_window_pattern": 2, "rope.freq_base": 1000000.0},
)
T5_LAYER = {f"attn_{x}.weight": (WIDTH, WIDTH) for x in "qkvo"} | {
    "attn_norm.weight": (WIDTH,), "ffn_norm.weight": (WIDTH,), "ffn_up.weight": (HIDDEN, WIDTH)
} | {"ffn_down.weight": (WIDTH, HIDDEN)}  # fmt: skip
T5 = Tiny(
    "t5encoder",
    T5_LAYER,
    {"token_embd.weight": (VOCAB, WIDTH), "enc.output_norm.weight": (WIDTH,)},
    {"attention.relative_buckets_count": 16},
    {0: T5_LAYER | {"attn_rel_b.weight": (16, 2)}},
    "enc.blk",
)
HEAD = matrix("cls", WIDTH, WIDTH, False) | {"cls.norm.weight": (WIDTH,)} | OUTPUT
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
    "modern-bert": replace(MODERN, others={0: FIRST}),
    "modern-bert, silu": replace(MODERN, metadata={"hidden_activation": "silu"}),  # and no windows
    "gemma-embedding": GEMMA,
    "gemma-embedding, dense": replace(
        GEMMA,
        shared=GEMMA.shared | {"dense_2.weight": (HIDDEN, WIDTH), "dense_3.weight": (WIDTH, HIDDEN)},
        metadata=GEMMA.metadata
        | {"dense_2_feat_in": WIDTH, "dense_2_feat_out": HIDDEN, "dense_3_feat_in": HIDDEN, "dense_3_feat_out": WIDTH},
    ),
    "eurobert": EURO,
    "neo-bert": Tiny(
        "neo-bert",
        MODERN.layer,
        {"token_embd.weight": (VOCAB, WIDTH), "enc.output_norm.weight": (WIDTH,)},
    ),
    "llama-embed": Tiny("llama-embed", EURO.layer, EURO.shared | {"rope_freqs.weight": (16,)}, GROUPED),
    "t5encoder": T5,
    "t5encoder, gated": replace(
        T5,
        layer=T5_LAYER | GATED,
        others={i: T5_LAYER | GATED | {"attn_rel_b.weight": (16, 2)} for i in (0, 2)},
    ),
    "llama-embed, causal": Tiny("llama-embed", EURO.layer, EURO.shared, GROUPED | {"attention.causal": True}),
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
    "modern-bert": (replace(MODERN, shared=MODERN.shared | HEAD), 1),
    "modern-bert, first token": (
        replace(MODERN, shared=MODERN.shared | HEAD, metadata=MODERN.metadata | {"classifier.pooling_type": CLS}),
        1,
    ),
    "bert, mean of all": (
        replace(BERT, shared=BERT.shared | DENSE | OUTPUT, metadata={"classifier.pooling_type": MEAN}),
        1,
    ),
    "neo-bert": (replace(TINY["neo-bert"], shared=TINY["neo-bert"].shared | DENSE | OUTPUT), 1),
    "qwen3": (
        replace(
            QWEN,
            shared=QWEN.shared | {"cls.output.weight": (2, WIDTH)},
            metadata={"classifier.output_labels": ["yes", "no"]},
        ),
        2,
    ),
}


# What is known of each: the model, its pooling, and how many numbers that gives.
POOLED = {
    f"{name}, {kind}": (TINY[name], pooling)
    for name in ("bert", "qwen3", "modern-bert", "gemma-embedding, dense")
    for kind, pooling in (("mean", MEAN), ("cls", CLS), ("last", LAST))
}
FACTS = (
    {name: (tiny, NONE, WIDTH) for name, tiny in TINY.items()}
    | {name: (tiny, pooling, WIDTH) for name, (tiny, pooling) in POOLED.items()}
    | {f"{name}, ranked": (tiny, RANK, outputs) for name, (tiny, outputs) in RANKERS.items()}
)


def draw(name: str, shape: tuple[int, ...]) -> Array:
    x = np.random.default_rng(crc32(name.encode())).standard_normal(shape, np.float32)
    if "norm" in name and name.endswith("weight"):
        return 1 + 0.1 * x
    if name == "rope_freqs.weight":  # divisors
        return 1 + 0.5 * np.abs(x)
    return 0.1 * x if len(shape) == 1 else x if name == "token_embd.weight" else x * np.float32(1.5 / shape[-1] ** 0.5)


def save(path: Path, tiny: Tiny, pooling: int, vocabulary: dict[str, Any] | None = None) -> Path:
    shapes = dict(tiny.shared)
    for i in range(LAYERS):
        shapes |= {f"{tiny.prefix}.{i}.{name}": shape for name, shape in tiny.others.get(i, tiny.layer).items()}
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
        "attention.layer_norm_rms_epsilon" if tiny.arch in RMS else "attention.layer_norm_epsilon": 1e-5,
    } | tiny.metadata
    metadata = {"general.architecture": tiny.arch, "tokenizer.ggml.model": "none", "tokenizer.ggml.token_type_count": 2}
    if (1, WIDTH) in tiny.shared.values() and "token_types.weight" in tiny.shared:
        metadata["tokenizer.ggml.token_type_count"] = tiny.shared["token_types.weight"][0]
    values = metadata | (vocabulary or {}) | {f"{tiny.arch}.{key}": value for key, value in own.items()}
    tensors = [(name, s, tensor_type("F32"), draw(name, s).view(np.uint8)) for name, s in shapes.items()]
    write(path, values, tensors)
    return path
