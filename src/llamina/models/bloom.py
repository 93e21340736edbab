"""BLOOM: ALiBi instead of positions, LayerNorm (of the embeddings too), a plain GeLU MLP."""

from llamina.models.blocks import plain_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, attend, flat, linear


class Model(Decoder):
    norm_kind = "layer"

    def setup(self) -> None:
        self.params = Attention(self.config.head_dim**-0.5, alibi=8.0)

    def embed(self, tokens: Value, positions: Value) -> Value:
        return self.norm(super().embed(tokens, positions), self.weights.token_embd_norm)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        x = x + linear(flat(attend(q, k, v, layer, self.params)), w.attn_output)
        return x + plain_mlp(self.norm(x, w.ffn_norm), w, "gelu")
