"""MiniMax 01: lightning attention, a linear attention with fixed decays, and every eighth layer softmax attention.

Residual connections start at the normed inputs, scaled; every MLP has experts.
"""

import math

from llamina.models.blocks import experts, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import (
    Attention,
    Routing,
    Value,
    Weight,
    activate,
    attend,
    constant,
    flat,
    gated,
    heads,
    linear,
    linear_attend,
    rope,
    scale,
    split,
)


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=True)
        self.params = Attention(c.head_dim**-0.5)
        self.residual_scale = c.number("residual_scale")
        self.routing = Routing(c.experts_used, normalize=True, scale=c.number("expert_weights_scale", 1.0) or 1.0)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        h = self.norm(x, w.attn_norm)
        mixer = self.lightning if "attn_norm_2" in w else self.attend
        h = self.norm(mixer(h, w, layer) + scale(h, self.residual_scale), w.ffn_norm)
        return experts(h, w, self.routing) + scale(h, self.residual_scale)

    def attend(self, h: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(h, w, self.config, layer)
        q, k = rope(q, self.rope), rope(k, self.rope)
        return linear(flat(attend(q, k, v, layer, self.params)), w.attn_output)

    def lightning(self, h: Value, w: Weights, layer: int) -> Value:
        n, dim = self.config.heads, self.config.head_dim
        q, k, v = split(heads(activate(linear(h, w.attn_qkv), "silu"), n), dim, dim, dim)
        y = flat(linear_attend(q, k, v, self.decay(layer), layer))
        return linear(gated(linear(h, w.attn_gate), self.norm(y, w.attn_norm_2), "sigmoid"), w.attn_output)

    def decay(self, layer: int) -> Weight:
        """ALiBi's slopes as rates of forgetting; later layers forget less."""
        n, last = self.config.heads, max(1, self.config.layers - 1)
        start = 2.0 ** -(2.0 ** -(math.log2(n) - 3))
        slope = 1 - layer / last + 1e-5
        return constant(f"blk.{layer}.decay", [[math.exp(-slope * start ** (head + 1))] for head in range(n)])
