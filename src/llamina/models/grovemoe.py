"""GroveMoE: qwen3 whose experts stand in groups; each group's adjugate expert adds to what its experts made."""

from dataclasses import replace

from llamina.models.blocks import experts, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope, scale


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=True)
        self.group_scale = c.number("expert_group_scale")
        self.routing = replace(c.routing(), scoring="softmax_selected")
        share = c.count("experts_per_group")
        self.group_routing = replace(self.routing, used=min(c.experts_used, c.experts // share), share=share)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(self.norm(q, w.attn_q_norm), self.rope), rope(self.norm(k, w.attn_k_norm), self.rope)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        h = self.norm(x, w.ffn_norm)
        scores = linear(h, w.ffn_gate_inp)
        h = experts(h, w, self.routing, scores=scores)
        return x + (h + scale(experts(h, w, self.group_routing, scores=scores, suffix="_chexps"), self.group_scale))
