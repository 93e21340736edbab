"""Gemma 3n: four residual streams, layers that share keys, an embedding for each layer, sparse gates.

A layer predicts all streams, computes the first one, and corrects the others by what it found (AltUp). Beside attention
is a product of two thin matrices (LAuReL). In the first layers most gates of the MLP are cut off.
"""

import math

import numpy as np

from llamina.errors import ModelFileError
from llamina.models.decoder import Decoder
from llamina.models.gemma_parts import SharingAttention, second_embedding
from llamina.models.weights import Weights
from llamina.ops import (
    Value,
    activate,
    concat,
    constant,
    flat,
    gated,
    given,
    head_linear,
    heads,
    linear,
    mix,
    norm,
    pick,
    reshape,
    scale,
    softcap,
    split,
)

STREAMS = 4
CUT = 1.6448533535003662  # deviations above the mean, below which a gate is 0: 95 % of a normal distribution
SPARSE = 10  # layers that cut so, if the file does not list them
WITH_KEYS = 20  # layers, if the file does not say how many
TINY = 1e-30  # so that nothing is divided by 0


class Model(Decoder):
    def setup(self) -> None:
        self.attend = SharingAttention(self.config, self.weights, max(0, self.config.layers - WITH_KEYS))
        self.mixed_in: list[Value] = []  # behind each layer
        self.cuts = np.asarray(self.config.get("activation_sparsity_scale", [CUT] * SPARSE))
        if self.cuts.ndim != 1 or self.cuts.dtype.kind not in "fiu":
            raise ModelFileError(f"gemma3n.activation_sparsity_scale is {self.cuts!r}: it must be a list of numbers")

    def embed(self, tokens: Value, positions: Value) -> Value:
        return scale(super().embed(tokens, positions), math.sqrt(self.config.width))

    def hidden(self, tokens: Value, positions: Value, rows: Value | None = None) -> Value:
        x = self.embed(tokens, positions)
        x = x if rows is None else given(x, rows)
        self.mixed_in = second_embedding(tokens, x, self.weights, self.config)
        return self.last_norm(pick(self.blocks(x)))

    def blocks(self, x: Value) -> Value:
        """The streams side by side. Those behind the first begin as products of it, as long as it is."""
        others = head_linear(heads(concat(concat(x, x), x), STREAMS - 1), self.weights.altup_proj)
        return super().blocks(concat(x, flat(norm(others, None, TINY) * length(x, norm(x, None, TINY)))))

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        width = self.config.width
        predicted = self.predict(x, w)
        active, _ = split(predicted, width, (STREAMS - 1) * width)
        computed = self.compute(active, w, layer)
        corrections = linear(self.router(computed, w), w.altup_correct_coef) + constant("one", [1.0])
        surprise = reshape(computed + scale(active, -1.0), 1, width)
        first, others = split(
            predicted + flat(mix(surprise, reshape(corrections, 1, STREAMS))), width, (STREAMS - 1) * width
        )
        h = gated(linear(first * w.altup_correct_scale, w.inp_gate), self.mixed_in[layer], "gelu")
        return concat(first, flat(heads(others, STREAMS - 1) + self.norm(linear(h, w.proj), w.post_norm)))

    def router(self, x: Value, w: Weights) -> Value:
        """How much of each stream there is, from -1 to 1."""
        seen = scale(self.norm(x, w.altup_router_norm), 1 / self.config.width)
        return activate(linear(seen, w.altup_router), "tanh")

    def predict(self, x: Value, w: Weights) -> Value:
        """Each stream plus a mixture of all."""
        first, _ = split(x, self.config.width, (STREAMS - 1) * self.config.width)
        shares = split(linear(self.router(first, w), w.altup_predict_coef), *[STREAMS] * STREAMS)
        mixed, *others = (mix(heads(x, STREAMS), share) for share in shares)
        for other in others:
            mixed = concat(mixed, other)
        return x + mixed

    def compute(self, x: Value, w: Weights, layer: int) -> Value:
        """Attention and MLP of one stream."""
        h = self.norm(x, w.attn_norm)
        thin = h + self.norm(linear(linear(h, w.laurel_l), w.laurel_r), w.laurel_post_norm)
        x = x + self.norm(self.attend(h, w, layer), w.post_attention_norm)
        x = scale(x + thin, 0.5**0.5)
        h = self.norm(x, w.ffn_norm)
        gate = self.cut(linear(h, w.ffn_gate), layer)
        h = linear(gated(gate, linear(h, w.ffn_up), "gelu"), w.ffn_down)
        return x + self.norm(h, w.post_ffw_norm)

    def cut(self, gate: Value, layer: int) -> Value:
        """What of a gate is above the layer's cut, in deviations from the mean; all of it in layers without one."""
        above = float(self.cuts[layer]) if layer < len(self.cuts) else -math.inf
        if not math.isfinite(above):
            return gate
        unit = norm(gate, None, TINY, "layer")
        above *= math.sqrt(gate.size / (gate.size - 1))  # of a sample's deviation, as llama.cpp has it
        over = activate(unit + constant(f"blk.{layer}.cut", [-above]), "relu")
        return over * length(gate, unit)

    def last_norm(self, x: Value) -> Value:
        """Of the streams' mean, all of them as long as the first."""
        width = self.config.width
        first, others = split(x, width, (STREAMS - 1) * width)
        others = head_linear(heads(others, STREAMS - 1), self.weights.altup_unembd_proj)
        others = norm(others, None, TINY) * length(first, norm(first, None, TINY))
        total = first
        for other in split(flat(others), *[width] * (STREAMS - 1)):
            total = total + other
        return super().last_norm(scale(total, 1 / STREAMS))

    def head(self, x: Value) -> Value:
        return softcap(super().head(x), self.config.number("final_logit_softcapping", 30.0))


def length(x: Value, unit: Value) -> Value:
    """What x was divided by to make `unit`, a norm without weights: the mean of their product."""
    return linear(x * unit, constant(f"mean of {x.size}", np.full((1, x.size), 1 / x.size)))
