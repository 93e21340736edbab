"""Tiny models with what stories260K lacks: tokens to fill in the middle, and a classifier to rerank with."""

from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import numpy as np

from llamina.gguf import open_model, tensor_type, write

Golden = Callable[[str], Path]
FIM = {"pre": 500, "suf": 501, "mid": 502}
REPOSITORY = {"rep": 503, "sep": 504}  # tokens by which files are told apart
WIDTH, HIDDEN, LAYERS, CONTEXT = 64, 96, 2, 256


def write_fim(golden: Golden, path: Path, tokens: dict[str, int]) -> Path:
    """stories260K with some of its tokens in the roles of those that fill in the middle."""
    file = open_model(golden("stories260K.gguf"))
    roles = {f"tokenizer.ggml.fim_{name}_token_id": id for name, id in tokens.items()}
    write(path, {**file.metadata, **roles}, [(name, t.shape, t.type, t.data) for name, t in file.tensors.items()])
    return path


def write_ranker(golden: Golden, path: Path) -> Path:
    """A BERT with a classifier, of random numbers."""
    words = {k: v for k, v in open_model(golden("vocab/ggml-vocab-bert-bge.gguf")).metadata.items() if "tokenizer" in k}
    shapes = {"token_embd": (len(words["tokenizer.ggml.tokens"]), WIDTH), "token_types": (2, WIDTH)}
    shapes |= {"position_embd": (CONTEXT, WIDTH), "token_embd_norm": (WIDTH,), "cls.output": (1, WIDTH)}
    for i in range(LAYERS):
        square = {f"blk.{i}.attn_{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
        norms = {f"blk.{i}.{name}_norm": (WIDTH,) for name in ("attn_output", "layer_output")}
        shapes |= square | norms | {f"blk.{i}.ffn_up": (HIDDEN, WIDTH), f"blk.{i}.ffn_down": (WIDTH, HIDDEN)}
    tensors = []
    for name, shape in shapes.items():
        tensors.append(_draw(f"{name}.weight", shape))
        if name not in ("token_embd", "token_types", "position_embd"):
            tensors.append(_draw(f"{name}.bias", shape[:1]))
    own = {
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "block_count": LAYERS,
        "feed_forward_length": HIDDEN,
        "attention.head_count": 2,
        "attention.layer_norm_epsilon": 1e-5,
        "attention.causal": False,
        "pooling_type": 4,
    }
    write(
        path, {"general.architecture": "bert", **{f"bert.{key}": value for key, value in own.items()}, **words}, tensors
    )
    return path


def _draw(name: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...], object, object]:
    numbers = np.random.default_rng(crc32(name.encode())).standard_normal(shape, np.float32)
    numbers = 1 + 0.1 * numbers if name.endswith("norm.weight") else numbers * np.float32(1.5 / shape[-1] ** 0.5)
    return name, shape, tensor_type("F32"), np.ascontiguousarray(numbers, np.float32).view(np.uint8)
