"""DeciLM and Llama-Nemotron: llama with layers thinned by search.

A layer without heads has no attention, one without key heads a matrix in its place, one without an MLP does nothing.
"""

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        self.rope = self.config.rope(neox=False)
        self.factors = self.rope_factors

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        c = self.config
        heads = c.count("attention.head_count", least=0, layer=layer)
        if not c.count("feed_forward_length", least=0, layer=layer):
            return x
        if heads and not c.count("attention.head_count_kv", heads, least=0, layer=layer):
            x = x + linear(self.norm(x, w.attn_norm), w.attn_output)
        elif heads:
            x = x + linear(flat(self.attend(self.norm(x, w.attn_norm), w, layer)), w.attn_output)
        return x + gated_mlp(self.norm(x, w.ffn_norm), w)

    def attend(self, h: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(h, w, self.config, layer)
        q, k = rope(q, self.rope, self.factors), rope(k, self.rope, self.factors)
        return attend(q, k, v, layer, self.attention)
