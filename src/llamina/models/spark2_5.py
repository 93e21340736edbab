"""Spark 2.5: NeoX rotation, windowed layers as the file lists them, a gate on each head's output, a GeLU-gated MLP."""

from dataclasses import replace

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, activate, attend, flat, linear, mul, reshape, rope


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.window = c.count("attention.sliding_window")
        self.rope_global = c.rope(neox=True)
        local = c.rope(neox=True, base=c.positive("rope.freq_base_swa", c.trained_base))
        self.rope_local = replace(local, dims=c.count("rope.dimension_count_swa", local.dims))

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        local = self.config.windowed(layer, period=1)
        params = Attention(self.attention.scale, window=self.window if local else 0)
        settings = self.rope_local if local else self.rope_global
        h = self.norm(x, w.attn_norm)
        q, k, v = query_key_value(h, w, self.config, layer)
        attended = attend(rope(q, settings), rope(k, settings), v, layer, params)
        gate = activate(linear(h, w.attn_gate), "sigmoid")
        x = x + linear(flat(mul(attended, reshape(gate, gate.size, 1))), w.attn_output)
        return x + gated_mlp(self.norm(x, w.ffn_norm), w, "gelu")
