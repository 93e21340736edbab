"""The layers of GPT-2 and Llama. Each is a few operations; calling one writes them down, it computes nothing.

A value is a row for each token, and `shape` that of one row. `models/gpt2.py` and `models/llama.py` say the same in
fewer words; tests hold the plans of both equal.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import numpy.typing as npt

from llamina.lm.kv_cache import F32
from llamina.lm.runner import Runner
from llamina.models import Config, Weights
from llamina.models.blocks import gated_mlp, plain_mlp, query_key_value
from llamina.ops import Attention, Rope, Value, Weight, attend, embed, flat, heads, linear, norm, pick, rope
from llamina.plan import Plan, record

Reads = Literal["rows", "tokens", "positions"]


class Layer(ABC):
    """A function of rows that can be recorded: alone with `forward`, or as part of a model by calling it."""

    reads: ClassVar[Reads] = "rows"

    @property
    @abstractmethod
    def width(self) -> int:
        """Numbers of a row that it reads."""

    @abstractmethod
    def __call__(self, x: Value) -> Value:
        """Write its operations down."""

    def plan(self) -> Plan:
        """The plan of this layer alone."""
        if self.reads == "rows":
            return record(lambda tokens, positions, rows: pick(flat(self(rows))), self.width)
        return record(lambda tokens, positions: pick(flat(self(tokens if self.reads == "tokens" else positions))))

    def runner(self, context: int = 1024, **options: Any) -> Runner:
        """This layer alone, made runnable; `options` are those of `Runner`."""
        return Runner(self.plan(), context, **options)

    def forward(self, x: npt.ArrayLike, backend: str = "reference") -> F32:
        """What this layer alone makes of rows [n, width] (of n tokens, for an embedding), as one sequence."""
        runner = self.runner(backend=backend)
        try:
            return runner.forward(x)
        finally:
            runner.close()


class TokenEmbedding(Layer):
    """A row of the table for each token."""

    reads: ClassVar[Reads] = "tokens"

    def __init__(self, table: Weight) -> None:
        self.table = table

    @property
    def width(self) -> int:
        return 1

    def __call__(self, x: Value) -> Value:
        return embed(x, self.table)


class LearnedPositionalEmbedding(TokenEmbedding):
    """A row of the table for each position."""

    reads = "positions"


class Linear(Layer):
    """A product with a matrix [out, in], plus its bias if it has one."""

    def __init__(self, weight: Weight) -> None:
        self.weight = weight

    @property
    def width(self) -> int:
        return self.weight.shape[1]

    def __call__(self, x: Value) -> Value:
        return linear(x, self.weight)


class RmsNorm(Layer):
    """x / sqrt(mean(x²) + eps) × weight."""

    kind: ClassVar[Literal["rms", "layer"]] = "rms"

    def __init__(self, weight: Weight, eps: float) -> None:
        self.weight, self.eps = weight, eps

    @property
    def width(self) -> int:
        return self.weight.size

    def __call__(self, x: Value) -> Value:
        return norm(x, self.weight, self.eps, self.kind)


class LayerNorm(RmsNorm):
    """(x - mean(x)) / sqrt(variance(x) + eps) × weight + bias."""

    kind = "layer"


class RotaryEmbedding(Layer):
    """RoPE: each pair of a head's numbers is turned by an angle that grows with the position.

    `factors` divide the frequencies (Llama 3.1).
    """

    def __init__(self, settings: Rope, factors: Weight | None = None) -> None:
        self.settings, self.factors = settings, factors

    @property
    def width(self) -> int:
        return self.settings.dims

    def __call__(self, x: Value) -> Value:
        """(heads, dim) → the same; a flat row is one head."""
        return rope(heads(x, x.size // self.settings.dims), self.settings, self.factors)


class MultiHeadAttention(Layer):
    """q, k and v by matrices, k and v to the KV cache, a weighed mean of the cached values for each head, a matrix.

    Several query heads may share a key head (GQA). With a `rotary`, q and k are rotated first.
    """

    def __init__(
        self, w: Weights, config: Config, layer: int, attention: Attention, rotary: RotaryEmbedding | None = None
    ) -> None:
        self.w, self.config, self.layer, self.attention, self.rotary = w, config, layer, attention, rotary

    @property
    def width(self) -> int:
        return self.config.width

    def __call__(self, x: Value) -> Value:
        q, k, v = query_key_value(x, self.w, self.config, self.layer)
        if self.rotary is not None:
            q, k = self.rotary(q), self.rotary(k)
        return linear(flat(attend(q, k, v, self.layer, self.attention)), self.w.attn_output)


class MlpFfn(Layer):
    """GPT-2's MLP: down(gelu(up(x)))."""

    def __init__(self, w: Weights) -> None:
        self.w = w

    @property
    def width(self) -> int:
        return self.w.ffn_up.shape[1]

    def __call__(self, x: Value) -> Value:
        return plain_mlp(x, self.w, "gelu")


class SwiGluFfn(MlpFfn):
    """Llama's MLP: down(silu(gate(x)) × up(x))."""

    def __call__(self, x: Value) -> Value:
        return gated_mlp(x, self.w)


class GptBlock(Layer):
    """A layer of GPT-2: attention, then the MLP, each of a norm of x and added to x."""

    def __init__(self, w: Weights, config: Config, layer: int, attention: Attention) -> None:
        self.ln_1 = LayerNorm(w.attn_norm, config.eps)
        self.attn = MultiHeadAttention(w, config, layer, attention)
        self.ln_2 = LayerNorm(w.ffn_norm, config.eps)
        self.mlp = MlpFfn(w)

    @property
    def width(self) -> int:
        return self.ln_1.width

    def __call__(self, x: Value) -> Value:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class LlamaBlock(Layer):
    """A layer of Llama: the same with RMSNorm, RoPE and SwiGLU."""

    def __init__(self, w: Weights, config: Config, layer: int, attention: Attention, rotary: RotaryEmbedding) -> None:
        self.input_layernorm = RmsNorm(w.attn_norm, config.eps)
        self.self_attn = MultiHeadAttention(w, config, layer, attention, rotary)
        self.post_attention_layernorm = RmsNorm(w.ffn_norm, config.eps)
        self.mlp = SwiGluFfn(w)

    @property
    def width(self) -> int:
        return self.input_layernorm.width

    def __call__(self, x: Value) -> Value:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))
