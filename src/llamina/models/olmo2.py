"""OLMo 2 and 3: norms after attention and MLP and none before, q and k normed over all heads; OLMo 3 has windows."""

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Rope, Value, attend, flat, heads, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.window = c.count("attention.sliding_window", 0, least=0)
        self.rope_global = c.rope(neox=True)
        self.rope_local = Rope(self.rope_global.dims, self.rope_global.base, neox=True)  # never scaled

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        local = self.window > 0 and self.config.windowed(layer, period=4)
        settings = self.rope_local if local else self.rope_global
        q, k, v = query_key_value(x, w, self.config, layer)
        q = rope(heads(self.norm(flat(q), w.attn_q_norm), q.shape[0]), settings)
        k = rope(heads(self.norm(flat(k), w.attn_k_norm), k.shape[0]), settings)
        params = Attention(self.attention.scale, window=self.window if local else 0)
        h = linear(flat(attend(q, k, v, layer, params)), w.attn_output)
        x = x + self.norm(h, w.post_attention_norm)
        return x + self.norm(gated_mlp(x, w), w.post_ffw_norm)
