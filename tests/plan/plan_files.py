"""A tiny llama as a GGUF file, with whatever is to be wrong about it."""

from pathlib import Path
from typing import Any

import numpy as np

from llamina.gguf import tensor_type, write

WIDTH, HEADS, KV_HEADS, VOCAB, HIDDEN, LAYERS = 32, 4, 2, 24, 48, 2


class Absent:
    """Stands for an entry that is left out."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = Absent()

METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": LAYERS,
    "llama.context_length": 64,
    "llama.embedding_length": WIDTH,
    "llama.feed_forward_length": HIDDEN,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KV_HEADS,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.dimension_count": WIDTH // HEADS,
    "llama.vocab_size": VOCAB,
}


def shapes() -> dict[str, tuple[int, ...]]:
    """Every tensor, rows first."""
    found: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (VOCAB, WIDTH),
        "output_norm.weight": (WIDTH,),
        "output.weight": (VOCAB, WIDTH),
    }
    kv = WIDTH // HEADS * KV_HEADS
    for layer in range(LAYERS):
        found |= {
            f"blk.{layer}.attn_norm.weight": (WIDTH,),
            f"blk.{layer}.attn_q.weight": (WIDTH, WIDTH),
            f"blk.{layer}.attn_k.weight": (kv, WIDTH),
            f"blk.{layer}.attn_v.weight": (kv, WIDTH),
            f"blk.{layer}.attn_output.weight": (WIDTH, WIDTH),
            f"blk.{layer}.ffn_norm.weight": (WIDTH,),
            f"blk.{layer}.ffn_gate.weight": (HIDDEN, WIDTH),
            f"blk.{layer}.ffn_up.weight": (HIDDEN, WIDTH),
            f"blk.{layer}.ffn_down.weight": (WIDTH, HIDDEN),
        }
    return found


def write_llama(path: Path, metadata: dict[str, Any] | None = None, tensors: dict[str, Any] | None = None) -> Path:
    """The file, with changed entries; ABSENT leaves one out, and a tensor is changed by its shape."""
    pairs = {k: v for k, v in {**METADATA, **(metadata or {})}.items() if v is not ABSENT}
    rng, f32 = np.random.default_rng(1), tensor_type("F32")
    sources = [
        (name, shape, f32, rng.standard_normal(shape, np.float32) / 4)
        for name, shape in {**shapes(), **(tensors or {})}.items()
        if shape is not ABSENT
    ]
    write(path, pairs, sources)
    return path
