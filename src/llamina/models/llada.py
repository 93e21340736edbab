"""LLaDA and Dream: llama that reads its tokens both ways, for text made by diffusion. Only q, k and v have biases."""

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope


class Model(Decoder):
    causal = False

    def setup(self) -> None:
        self.rope = self.config.rope(neox=self.config.architecture == "dream")

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(q, self.rope), rope(k, self.rope)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.unbiased.attn_output)
        return x + gated_mlp(self.norm(x, w.ffn_norm), w.unbiased)

    def head(self, x: Value) -> Value:
        return linear(x, self.weights.unbiased.get("output") or self.embeddings)
