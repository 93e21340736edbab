"""Command A MoE: attention and MLP side by side; one layer in four global, and unrotated unless it is dense."""

from llamina.models.blocks import experts, gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, attend, flat, linear, rope, scale


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.norm_kind = "rms" if c.number("attention.layer_norm_rms_epsilon", 0.0) else "layer"
        self.rope = c.rope(neox=False)
        self.window = c.count("attention.sliding_window")
        self.dense_layers = c.count("leading_dense_block_count", least=0)
        self.logit_scale = c.number("logit_scale") or 1.0
        self.routing = c.routing("sigmoid")

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        local = self.config.windowed(layer, period=4, global_first=True)
        params = Attention(self.attention.scale, window=self.window if local else 0)
        h = self.norm(x, w.attn_norm)
        q, k, v = query_key_value(h, w, self.config, layer)
        if local or layer < self.dense_layers:
            q, k = rope(q, self.rope, self.rope_factors), rope(k, self.rope, self.rope_factors)
        return x + self.feed_forward(h, w) + linear(flat(attend(q, k, v, layer, params)), w.attn_output)

    def feed_forward(self, h: Value, w: Weights) -> Value:
        """The mean of the experts and the shared one."""
        if "ffn_gate_inp" not in w:
            return gated_mlp(h, w)
        routed = experts(h, w, self.routing)
        return scale(routed + gated_mlp(h, w, suffix="_shexp"), 0.5) if "ffn_up_shexp" in w else routed

    def head(self, x: Value) -> Value:
        return scale(super().head(x), self.logit_scale)
