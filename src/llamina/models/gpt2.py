"""GPT-2 and StarCoder: learned positions, LayerNorm, a plain GeLU MLP."""

from llamina.models.blocks import add_positions, plain_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear


class Model(Decoder):
    norm_kind = "layer"

    def embed(self, tokens: Value, positions: Value) -> Value:
        return add_positions(super().embed(tokens, positions), positions, self.weights.position_embd, self.config)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + plain_mlp(self.norm(x, w.ffn_norm), w, "gelu")
