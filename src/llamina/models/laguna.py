"""Laguna: normed q and k, attention gated by softplus (a head or an element at a time); one layer in four is global."""

from dataclasses import replace

from llamina.models.blocks import query_key_value, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, activate, attend, flat, linear, reshape, rope


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.window = c.count("attention.sliding_window", 0, least=0)
        self.rope_global = c.rope(neox=True)
        self.rope_local = replace(
            c.rope(neox=True, base=c.positive("rope.freq_base_swa", c.trained_base), scaled=False),
            dims=c.count("rope.dimension_count_swa", self.rope_global.dims),
            magnitude=1.0,
        )
        self.routing = c.routing("sigmoid")

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        local = self.window > 0 and self.config.windowed(layer, period=4, global_first=True)
        params = Attention(self.attention.scale, window=self.window if local else 0)
        settings = self.rope_local if local else self.rope_global
        h = self.norm(x, w.attn_norm)
        q, k, v = query_key_value(h, w, self.config, layer)
        q, k = rope(self.norm(q, w.attn_q_norm), settings), rope(self.norm(k, w.attn_k_norm), settings)
        attended = attend(q, k, v, layer, params)
        gate = activate(linear(h, w.attn_gate), "softplus")
        attended = attended * reshape(gate, attended.shape[0], gate.size // attended.shape[0])
        x = x + linear(flat(attended), w.attn_output)
        return x + sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing)
