"""Qwen 2 MoE: qwen2's attention; experts beside one shared expert that a sigmoid gate weighs."""

from llamina.models.blocks import experts, gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Routing, Value, activate, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=True)
        self.routing = Routing(c.experts_used, scale=c.number("expert_weights_scale", 1.0) or 1.0)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(q, self.rope), rope(k, self.rope)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        h = self.norm(x, w.ffn_norm)
        shared = activate(linear(h, w.ffn_gate_inp_shexp.shaped(1, self.config.width)), "sigmoid")
        return x + (experts(h, w, self.routing) + gated_mlp(h, w, suffix="_shexp") * shared)
