"""Nemotron H: a layer is Mamba 2, attention without rotation, or an MLP with squared ReLU; experts in nemotron_h_moe.

Experts have no gate, may work in a narrower latent space, and stand beside a shared one.
"""

from dataclasses import replace

from llamina.models.blocks import plain_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.ssm import mamba2
from llamina.models.weights import Weights
from llamina.ops import Routing, Value, activate, attend, expert_linear, flat, linear, mix, route


class Model(Decoder):
    def block(self, x: Value, w: Weights, layer: int) -> Value:
        h = self.norm(x, w.attn_norm)
        if "ssm_in" in w:
            return x + mamba2(h, w, self.config, layer)
        if "attn_output" in w:
            q, k, v = query_key_value(h, w, self.config, layer)
            return x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        if "ffn_gate_inp" in w:
            return x + (self.experts(h, w, layer) + plain_mlp(h, w, "relu_sqr", suffix="_shexp"))
        return x + plain_mlp(h, w, "relu_sqr")

    def experts(self, h: Value, w: Weights, layer: int) -> Value:
        chosen, weights = route(linear(h, w.ffn_gate_inp), self.routing(layer), w.get("exp_probs_b"))
        narrow = linear(h, w.ffn_latent_down) if "ffn_latent_down" in w else h
        up = activate(expert_linear(narrow, w.ffn_up_exps, chosen), "relu_sqr")
        out = mix(expert_linear(up, w.ffn_down_exps, chosen), weights)
        return linear(out, w.ffn_latent_up) if "ffn_latent_up" in w else out

    def routing(self, layer: int) -> Routing:
        c = self.config
        return replace(c.routing(), scoring="sigmoid", used=c.count("expert_used_count", layer=layer))
