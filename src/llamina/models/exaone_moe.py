"""EXAONE MoE: normed q and k; three windowed layers that rotate to one global that does not; experts by sigmoid."""

from llamina.models.blocks import query_key_value, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.window = c.count("attention.sliding_window")
        self.rope = c.rope(neox=True)
        self.routing = c.routing("sigmoid")

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        local = self.config.windowed(layer, period=4)
        params = Attention(self.attention.scale, window=self.window if local else 0)
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = self.norm(q, w.attn_q_norm), self.norm(k, w.attn_k_norm)
        if local:
            q, k = rope(q, self.rope, self.rope_factors), rope(k, self.rope, self.rope_factors)
        x = x + linear(flat(attend(q, k, v, layer, params)), w.attn_output)
        return x + sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing)
