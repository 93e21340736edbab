"""Baichuan 1 and 2: llama in its 7B, ALiBi instead of rotation in its 13B; files differ by depth alone."""

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=False) if c.layers == 32 else None
        self.params = Attention(c.head_dim**-0.5, alibi=8.0 if c.layers == 40 else 0.0)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        if self.rope:
            q, k = rope(q, self.rope), rope(k, self.rope)
        x = x + linear(flat(attend(q, k, v, layer, self.params)), w.attn_output)
        return x + gated_mlp(self.norm(x, w.ffn_norm), w)
