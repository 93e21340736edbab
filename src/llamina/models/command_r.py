"""Command R, Aya and Cohere 2: attention and MLP side by side behind one LayerNorm, scaled logits.

Cohere 2 has windows in all but each fourth layer and rotates nowhere else. The largest Command R norms q and k.
"""

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, attend, flat, linear, rope, scale


class Model(Decoder):
    norm_kind = "layer"

    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=False)
        self.window = c.count("attention.sliding_window", 0, least=0)
        self.logit_scale = c.number("logit_scale", 0.0) or 1.0

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        local = self.window > 0 and self.config.windowed(layer, period=4)
        params = Attention(self.config.head_dim**-0.5, window=self.window if local else 0)
        h = self.norm(x, w.attn_norm)
        q, k, v = query_key_value(h, w, self.config, layer)
        if "attn_q_norm" in w:
            q, k = self.norm(q, w.attn_q_norm), self.norm(k, w.attn_k_norm)
        if local or not self.window:
            q, k = rope(q, self.rope), rope(k, self.rope)
        attended = linear(flat(attend(q, k, v, layer, params)), w.attn_output)
        return x + gated_mlp(h, w) + attended

    def head(self, x: Value) -> Value:
        return scale(super().head(x), self.logit_scale)
