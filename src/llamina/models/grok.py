"""Grok 1 and 2: scores and logits scaled and capped, norms after attention and MLP, GeLU experts (2: beside an MLP)."""

import math
from dataclasses import replace

from llamina.models.blocks import experts, gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, attend, flat, linear, rope, scale, softcap


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = replace(
            c.rope(neox=True), beta_fast=c.overrides.yarn_beta_fast or c.positive("rope.scaling.yarn_beta_fast", 8.0)
        )
        self.params = Attention(
            c.positive("attention.output_scale", 0.08838834764831845),
            softcap=c.positive("attn_logit_softcapping", 30.0),
        )
        self.embedding_scale = c.number("embedding_scale", 78.38367176906169)
        self.logit_scale = c.number("logit_scale", 0.5773502691896257)
        self.logit_cap = c.number("final_logit_softcapping", 0.0)
        self.routing = c.routing(normalize=True)

    def embed(self, tokens: Value, positions: Value) -> Value:
        return scale(super().embed(tokens, positions), self.embedding_scale)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(q, self.rope), rope(k, self.rope)
        h = linear(flat(attend(q, k, v, layer, self.params)), w.attn_output)
        x = x + self.norm(h, w.attn_output_norm)
        h = self.norm(x, w.ffn_norm)
        out = experts(h, w, self.routing, "gelu")
        if "ffn_up" in w:
            out = scale(gated_mlp(h, w, "gelu") + out, math.sqrt(0.5))
        return x + self.norm(out, w.get("layer_output_norm") or w.post_ffw_norm)

    def head(self, x: Value) -> Value:
        return softcap(scale(super().head(x), self.logit_scale), self.logit_cap)
