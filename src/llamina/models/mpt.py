"""MPT: LayerNorm, a plain GeLU MLP, ALiBi or learned positions; q and k may be clamped, and normed over all heads."""

from llamina.models.blocks import add_positions, plain_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, attend, flat, heads, linear


class Model(Decoder):
    norm_kind = "layer"

    def setup(self) -> None:
        self.params = Attention(self.attention.scale, alibi=self.config.number("attention.max_alibi_bias", 0.0))

    def embed(self, tokens: Value, positions: Value) -> Value:
        x, learned = super().embed(tokens, positions), self.weights.get("position_embd")
        return add_positions(x, positions, learned, self.config) if learned else x

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        if "attn_q_norm" in w:
            q = heads(self.norm(flat(q), w.attn_q_norm), q.shape[0])
            k = heads(self.norm(flat(k), w.attn_k_norm), k.shape[0])
        x = x + linear(flat(attend(q, k, v, layer, self.params)), w.attn_output)
        return x + plain_mlp(self.norm(x, w.ffn_norm), w, "gelu")
