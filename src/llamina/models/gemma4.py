"""Gemma 4: windowed layers with smaller heads, layers that share keys, an embedding for each layer, experts.

The last layers have no keys and values of their own: they attend to those of the last layer of their kind (windowed or
global) that has some. Behind each layer a part of a second embedding of the token is mixed in. Experts are beside an
MLP. Large models lack the former two, small ones experts.
"""

import math
from dataclasses import replace

from llamina.models.blocks import experts, gated_mlp
from llamina.models.decoder import Decoder
from llamina.models.gemma_parts import SharingAttention, second_embedding
from llamina.models.weights import Weights
from llamina.ops import Routing, Value, gated, given, linear, pick, scale, softcap


class Model(Decoder):
    def setup(self) -> None:
        self.attend = SharingAttention(self.config, self.weights)
        self.routing = Routing(self.config.experts_used, normalize=True)
        self.mixed_in: list[Value] = []  # behind each layer

    def embed(self, tokens: Value, positions: Value) -> Value:
        return scale(super().embed(tokens, positions), math.sqrt(self.config.width))

    def hidden(self, tokens: Value, positions: Value, rows: Value | None = None) -> Value:
        x = self.embed(tokens, positions)
        x = x if rows is None else given(x, rows)
        self.mixed_in = second_embedding(tokens, x, self.weights, self.config)
        return self.last_norm(pick(self.blocks(x)))

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        x = x + self.norm(self.attend(self.norm(x, w.attn_norm), w, layer), w.post_attention_norm)
        x = x + self.norm(self.mlp(x, w), w.post_ffw_norm)
        if self.mixed_in:
            h = gated(linear(x, w.inp_gate), self.mixed_in[layer], "gelu")
            x = x + self.norm(linear(h, w.proj), w.post_norm)
        return x * w.layer_output_scale if "layer_output_scale" in w else x

    def mlp(self, x: Value, w: Weights) -> Value:
        """A gated MLP, and beside it experts, whose router has norms of its own."""
        h = gated_mlp(self.norm(x, w.ffn_norm), w, "gelu")
        if "ffn_gate_inp" not in w:
            return h
        seen = scale(self.norm(x, getattr(w, "ffn_gate_inp.scale")), self.config.width**-0.5)
        scores = linear(seen, replace(w.ffn_gate_inp, scale=None))
        routed = experts(self.norm(x, w.pre_ffw_norm_2), w, self.routing, "gelu", scores=scores)
        return self.norm(h, w.post_ffw_norm_1) + self.norm(routed, w.post_ffw_norm_2)

    def head(self, x: Value) -> Value:
        return softcap(super().head(x), self.config.number("final_logit_softcapping", 30.0))
