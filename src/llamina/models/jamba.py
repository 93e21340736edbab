"""Jamba: Mamba layers, here and there an attention layer without rotation; experts in some of the MLPs."""

from llamina.models.blocks import experts, gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.ssm import mamba
from llamina.models.weights import Weights
from llamina.ops import Routing, Value, attend, flat, linear


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.routing = Routing(c.experts_used, scale=c.number("expert_weights_scale", 1.0) or 1.0)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        h = self.norm(x, w.attn_norm)
        if "ssm_in" in w:
            x = x + mamba(h, w, self.config, layer)
        else:
            q, k, v = query_key_value(h, w, self.config, layer)
            x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        h = self.norm(x, w.ffn_norm)
        return x + (experts(h, w, self.routing) if "ffn_gate_inp" in w else gated_mlp(h, w))
