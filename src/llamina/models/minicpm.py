"""MiniCPM 1 and 2: llama with scaled embeddings, residuals and logits; experts where the file has them."""

import math

from llamina.models.blocks import experts, gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Routing, Value, attend, flat, linear, rope, scale


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=False)
        self.factors = self.rope_factors
        self.routing = Routing(c.experts_used, normalize=True, scale=c.number("expert_weights_scale", 1.0) or 1.0)
        # older files do not say
        self.embedding_scale = c.positive("embedding_scale", 12.0)
        self.residual_scale = c.positive("residual_scale", 1.4 / math.sqrt(c.layers))
        self.logit_scale = c.positive("logit_scale", 256 / c.width)

    def embed(self, tokens: Value, positions: Value) -> Value:
        return scale(super().embed(tokens, positions), self.embedding_scale)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(q, self.rope, self.factors), rope(k, self.rope, self.factors)
        h = linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        x = x + scale(h, self.residual_scale)
        h = self.norm(x, w.ffn_norm)
        return x + scale(experts(h, w, self.routing) if self.config.experts else gated_mlp(h, w), self.residual_scale)

    def head(self, x: Value) -> Value:
        return scale(super().head(x), 1 / self.logit_scale)
