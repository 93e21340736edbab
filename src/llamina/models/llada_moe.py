"""LLaDA MoE and RND1: experts, each head of q and k normed, and tokens read both ways, for text made by diffusion."""

from llamina.models.blocks import experts, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope


class Model(Decoder):
    causal = False

    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=True)
        self.routing = c.routing(normalize=c.architecture == "rnd1")

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(self.norm(q, w.attn_q_norm), self.rope), rope(self.norm(k, w.attn_k_norm), self.rope)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + experts(self.norm(x, w.ffn_norm), w, self.routing)
