"""Llama 1 to 3, Mistral, Yi, SmolLM, InternLM 2, ChatGLM; Mixtral where the file has experts."""

from llamina.models.blocks import experts, gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Routing, Value, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=False)
        self.factors = self.rope_factors
        self.routing = Routing(c.experts_used, normalize=True, scale=c.number("expert_weights_scale", 1.0) or 1.0)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(q, self.rope, self.factors), rope(k, self.rope, self.factors)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        h = self.norm(x, w.ffn_norm)
        return x + (experts(h, w, self.routing) if self.config.experts else gated_mlp(h, w))
