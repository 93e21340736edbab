"""Llama 1 to 3, Mistral, Yi, SmolLM, InternLM 2, ChatGLM; Mixtral where the file has experts; Nemotron's embeddings."""

from llamina.models.blocks import query_key_value, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.headless = c.architecture == "llama-embed"
        self.rope = c.rope(neox=False)
        self.factors = self.rope_factors
        self.routing = c.routing(normalize=True)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(q, self.rope, self.factors), rope(k, self.rope, self.factors)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing)
