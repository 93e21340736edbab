"""GPT-2 and StarCoder: learned positions, LayerNorm, a plain GeLU MLP."""

from llamina.errors import UnsupportedModel
from llamina.models.blocks import plain_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, embed, flat, linear


class Model(Decoder):
    norm_kind = "layer"

    def setup(self) -> None:
        learned = self.weights.position_embd.shape[0]
        if self.config.context > learned:
            raise UnsupportedModel(
                f"the model has learned {learned} positions, and the context is {self.config.context}: "
                f"load it with a context of {learned} or less"
            )

    def embed(self, tokens: Value, positions: Value) -> Value:
        return super().embed(tokens, positions) + embed(positions, self.weights.position_embd)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + plain_mlp(self.norm(x, w.ffn_norm), w, "gelu")
