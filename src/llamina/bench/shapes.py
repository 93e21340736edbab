"""Shapes of real models by name: their metadata, and the tensors they are made of. No weights."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

from llamina.errors import RequestError
from llamina.gguf import TensorType, tensor_type
from llamina.quantization.types import FILE_TYPES, Facts, file_type, tensor_types

Tensors = dict[str, tuple[int, ...]]  # shapes by name, rows first
NORMED_HEADS = ("qwen3", "qwen3moe", "gemma3")
BIASED = ("qwen2", "gpt-oss")


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides how much a model computes."""

    architecture: str
    layers: int
    width: int
    ffn: int  # of an expert, where there are some
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    rope_base: float
    tied: bool = False  # the embedding is the output matrix, too
    experts: int = 0
    experts_used: int = 0
    context: int = 8192
    more: dict[str, Any] = field(default_factory=dict)  # further metadata of the architecture

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata of a GGUF file, without the vocabulary."""
        known: dict[str, Any] = {
            "block_count": self.layers,
            "context_length": self.context,
            "embedding_length": self.width,
            "feed_forward_length": self.ffn,
            "vocab_size": self.vocab,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.dimension_count": self.head_dim,
            "rope.freq_base": self.rope_base,
            **self.more,
        }
        if self.experts:
            known |= {"expert_count": self.experts, "expert_used_count": self.experts_used}
            known |= {"expert_feed_forward_length": self.ffn}
        named = {f"{self.architecture}.{key}": value for key, value in known.items()}
        return {"general.architecture": self.architecture, **named}

    @property
    def tensors(self) -> Tensors:
        found: Tensors = {"token_embd.weight": (self.vocab, self.width), "output_norm.weight": (self.width,)}
        if not self.tied:
            found["output.weight"] = (self.vocab, self.width)
        for layer in range(self.layers):
            found |= {f"blk.{layer}.{name}": shape for name, shape in self._layer()}
        return found

    def _layer(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        width, queries, keys = self.width, self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield "attn_norm.weight", (width,)
        if self.architecture == "phi3":
            yield "attn_qkv.weight", (queries + 2 * keys, width)
        else:
            yield from _matrix("attn_q", queries, width, self.architecture in BIASED)
            yield from _matrix("attn_k", keys, width, self.architecture in BIASED)
            yield from _matrix("attn_v", keys, width, self.architecture in BIASED)
        yield from _matrix("attn_output", width, queries, self.architecture == "gpt-oss")
        if self.architecture in NORMED_HEADS:
            yield "attn_q_norm.weight", (self.head_dim,)
            yield "attn_k_norm.weight", (self.head_dim,)
        if self.architecture == "gpt-oss":
            yield "attn_sinks.weight", (self.heads,)
        if self.architecture in ("gemma3", "gpt-oss"):
            yield "post_attention_norm.weight", (width,)
        if self.architecture != "gpt-oss":
            yield "ffn_norm.weight", (width,)
        yield from self._experts() if self.experts else self._feed_forward()
        if self.architecture == "gemma3":
            yield "post_ffw_norm.weight", (width,)

    def _feed_forward(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        if self.architecture == "phi3":  # gate and up in one matrix
            yield "ffn_up.weight", (2 * self.ffn, self.width)
        else:
            yield "ffn_gate.weight", (self.ffn, self.width)
            yield "ffn_up.weight", (self.ffn, self.width)
        yield "ffn_down.weight", (self.width, self.ffn)

    def _experts(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        biased = self.architecture == "gpt-oss"
        yield from _matrix("ffn_gate_inp", self.experts, self.width, biased)
        for name, rows, columns in (
            ("ffn_gate_exps", self.ffn, self.width),
            ("ffn_up_exps", self.ffn, self.width),
            ("ffn_down_exps", self.width, self.ffn),
        ):
            yield f"{name}.weight", (self.experts, rows, columns)
            if biased:
                yield f"{name}.bias", (self.experts, rows)

    @property
    def parameters(self) -> int:
        return sum(prod(shape) for shape in self.tensors.values())

    def types(self, mix: str) -> dict[str, TensorType]:
        """The type of each tensor in a file of type `mix`, as llama.cpp mixes them; F32 for what it does not quantize.

        Types of few bits are mixed as with an importance matrix, without which they are not made.
        """
        importances = mix.startswith(("IQ1", "IQ2", "IQ3")) or mix == "Q2_K_S"
        chosen = tensor_types(self.tensors, mix, Facts.of(self.metadata, importances))
        return {name: kind or tensor_type("F32") for name, kind in chosen.items()}


def _matrix(name: str, rows: int, columns: int, biased: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (rows, columns)
    if biased:
        yield f"{name}.bias", (rows,)


def _llama(*sizes: Any, **more: Any) -> Shape:
    return Shape("llama", *sizes, **more)


GEMMA = {"attention.sliding_window": 512}
GPT_OSS = {
    "attention.sliding_window": 128,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 32.0,
    "rope.scaling.original_context_length": 4096,
}
SHAPES = {  # layers, width, ffn, heads, KV heads, head size, vocabulary, rope base
    "smollm2-135m": _llama(30, 576, 1536, 9, 3, 64, 49152, 1e5, tied=True),
    "smollm2-360m": _llama(32, 960, 2560, 15, 5, 64, 49152, 1e5, tied=True),
    "smollm2-1.7b": _llama(24, 2048, 8192, 32, 32, 64, 49152, 130000.0, tied=True),
    "tinyllama-1.1b": _llama(22, 2048, 5632, 32, 4, 64, 32000, 1e4, context=2048),
    "llama-3.2-1b": _llama(16, 2048, 8192, 32, 8, 64, 128256, 5e5, tied=True),
    "llama-3.2-3b": _llama(28, 3072, 8192, 24, 8, 128, 128256, 5e5, tied=True),
    "llama-2-7b": _llama(32, 4096, 11008, 32, 32, 128, 32000, 1e4, context=4096),
    "llama-3-8b": _llama(32, 4096, 14336, 32, 8, 128, 128256, 5e5),
    "llama-3-70b": _llama(80, 8192, 28672, 64, 8, 128, 128256, 5e5),
    "mistral-7b": _llama(32, 4096, 14336, 32, 8, 128, 32768, 1e6, context=32768),
    "mixtral-8x7b": _llama(32, 4096, 14336, 32, 8, 128, 32000, 1e6, experts=8, experts_used=2, context=32768),
    "qwen2.5-0.5b": Shape("qwen2", 24, 896, 4864, 14, 2, 64, 151936, 1e6, tied=True, context=32768),
    "qwen2.5-1.5b": Shape("qwen2", 28, 1536, 8960, 12, 2, 128, 151936, 1e6, tied=True, context=32768),
    "qwen2.5-7b": Shape("qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 1e6, context=32768),
    "qwen3-0.6b": Shape("qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 1e6, tied=True, context=40960),
    "qwen3-4b": Shape("qwen3", 36, 2560, 9728, 32, 8, 128, 151936, 1e6, tied=True, context=40960),
    "qwen3-8b": Shape("qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 1e6, context=40960),
    "qwen3-30b-a3b": Shape(
        "qwen3moe", 48, 2048, 768, 32, 4, 128, 151936, 1e6, experts=128, experts_used=8, context=40960
    ),
    "gemma-3-270m": Shape(
        "gemma3", 18, 640, 2048, 4, 1, 256, 262144, 1e6, tied=True, context=32768, more=GEMMA
    ),
    "gemma-3-1b": Shape(
        "gemma3", 26, 1152, 6912, 4, 1, 256, 262144, 1e6, tied=True, context=32768, more=GEMMA
    ),
    "phi-3-mini": Shape(
        "phi3", 32, 3072, 8192, 32, 32, 96, 32064, 1e4, context=4096, more={"attention.sliding_window": 2047}
    ),
    "gpt-oss-20b": Shape(
        "gpt-oss", 24, 2880, 2880, 64, 8, 64, 201088, 150000.0, experts=32, experts_used=4, context=131072, more=GPT_OSS
    ),
}  # fmt: skip
ALIASES = {"smollm2": "smollm2-135m", "tinyllama": "tinyllama-1.1b"}
DEFAULT_TYPE = "Q4_K_M"


def parse_shape(text: str) -> tuple[str, str]:
    """The names of a shape and a file type, of `llama-3-8b:Q4_K_M` or `llama-3-8b`. Raises RequestError for others."""
    name, _, kind = text.partition(":")
    known = ALIASES.get(name.lower(), name.lower())
    if known not in SHAPES:
        raise RequestError(f"shape is {name!r}: must be one of {', '.join(SHAPES)}", "shape")
    return known, file_type(kind or DEFAULT_TYPE)


def file_type_number(mix: str) -> int:
    """The number that `general.file_type` has for a file type."""
    return FILE_TYPES[mix][0]
