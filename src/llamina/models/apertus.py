"""Apertus: normed q and k, NeoX rotation, a plain MLP with xIELU, whose curve each layer has learned."""

import math

from llamina.models.blocks import query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, activate, add, attend, clamp, constant, flat, linear, rope, scale


class Model(Decoder):
    def setup(self) -> None:
        self.rope = self.config.rope(neox=True)
        self.factors = self.rope_factors

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = self.norm(q, w.unbiased.attn_q_norm), self.norm(k, w.unbiased.attn_k_norm)
        q, k = rope(q, self.rope, self.factors), rope(k, self.rope, self.factors)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + linear(self.xielu(linear(self.norm(x, w.ffn_norm), w.ffn_up), layer), w.ffn_down)

    def xielu(self, x: Value, layer: int) -> Value:
        """p·x² + b·x above 0, n·(exp(min(x, eps)) - 1 - x) + b·x below, as a sum of what is 0 on the other side."""
        alpha_n, alpha_p, b, eps = (
            self.config.number(f"xielu.{name}", layer=layer) for name in ("alpha_n", "alpha_p", "beta", "eps")
        )
        n, p = b + softplus(alpha_n), softplus(alpha_p)
        above = scale(activate(x, "relu_sqr"), p) + scale(activate(x, "relu"), n)
        below = scale(activate(clamp(x, -math.inf, eps), "exp"), n)
        return add(above + below + scale(x, b - n), constant(f"blk.{layer}.xielu", [-n]))


def softplus(x: float) -> float:
    return math.log1p(math.exp(-abs(x))) + max(x, 0.0)
