"""Mistral 3 (Ministral, Devstral): llama whose queries grow sharper with the position; experts where there are some."""

from llamina.models.blocks import query_key_value, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope, temper


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=False)
        self.factors = self.rope_factors
        self.temperature = c.number("attention.temperature_scale", 0.0)
        self.routing = c.routing(normalize=True)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(q, self.rope, self.factors), rope(k, self.rope, self.factors)
        if self.temperature:
            q = temper(q, self.config.original_context, self.temperature)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing)
