"""EXAONE 4: norms behind attention and MLP instead of before them, normed q and k.

The 32B has windows in all but each fourth layer and rotates nowhere else; files tell it by its depth alone.
"""

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=True)
        self.factors = self.rope_factors
        self.window = c.count("attention.sliding_window", 4096) if c.layers == 64 else 0

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        local = self.window > 0 and self.config.windowed(layer, period=4)
        params = Attention(self.config.head_dim**-0.5, window=self.window if local else 0)
        q, k, v = query_key_value(x, w, self.config, layer)
        q, k = self.norm(q, w.attn_q_norm), self.norm(k, w.attn_k_norm)
        if local or not self.window:
            q, k = rope(q, self.rope, self.factors), rope(k, self.rope, self.factors)
        h = linear(flat(attend(q, k, v, layer, params)), w.attn_output)
        x = x + self.norm(h, w.post_attention_norm)
        return x + self.norm(gated_mlp(x, w), w.post_ffw_norm)
