"""Granite 3 and 4, dense or with experts: llama with scaled embeddings, residuals, scores and logits.

granite_swa has windows and attention sinks, and may leave layers unrotated; most layers of granitehybrid are Mamba 2.
"""

from llamina.models.blocks import query_key_value, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.ssm import mamba2
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, attend, flat, linear, rope, scale


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=False)
        self.factors = self.rope_factors
        self.window = c.count("attention.sliding_window", 0, least=0)
        self.embedding_scale = c.number("embedding_scale", 0.0) or 1.0
        self.residual_scale = c.number("residual_scale", 0.0) or 1.0
        self.logit_scale = 1 / c.positive("logit_scale", 1.0 if c.architecture == "granitehybrid" else None)
        self.routing = c.routing(normalize=True)

    def embed(self, tokens: Value, positions: Value) -> Value:
        return scale(super().embed(tokens, positions), self.embedding_scale)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        h = self.norm(x, w.attn_norm)
        h = mamba2(h, w, self.config, layer) if "ssm_in" in w else self.attend(h, w, layer)
        x = x + scale(h, self.residual_scale)
        return x + scale(sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing), self.residual_scale)

    def attend(self, h: Value, w: Weights, layer: int) -> Value:
        local = self.window > 0 and self.config.windowed(layer, period=4)
        params = Attention(self.attention.scale, window=self.window if local else 0)
        q, k, v = query_key_value(h, w, self.config, layer)
        if self.rotated(layer):
            q, k = rope(q, self.rope, self.factors), rope(k, self.rope, self.factors)
        return linear(flat(attend(q, k, v, layer, params, w.get("attn_sinks"))), w.attn_output)

    def rotated(self, layer: int) -> bool:
        if self.config.architecture in ("granite", "granitehybrid"):
            return self.config.flag("rope.scaling.finetuned", True)
        return self.config.flag("attention.rope_pattern", True, layer)

    def head(self, x: Value) -> Value:
        return scale(super().head(x), self.logit_scale)
