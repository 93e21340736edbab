"""gpt-oss: attention sinks, every other layer windowed, biased experts with a clamped gate."""

from llamina.models.blocks import experts, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.window = c.count("attention.sliding_window")
        self.rope_global = c.rope(neox=True)
        self.rope_local = c.rope(neox=True, base=c.positive("rope.freq_base_swa", c.trained_base))
        self.routing = c.routing("softmax_selected")

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        local = self.config.windowed(layer, period=2)
        params = Attention(self.attention.scale, window=self.window if local else 0)
        settings = self.rope_local if local else self.rope_global
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(q, settings), rope(k, settings)
        x = x + linear(flat(attend(q, k, v, layer, params, w.attn_sinks)), w.attn_output)
        return x + experts(self.norm(x, w.post_attention_norm), w, self.routing, "swiglu_oai")
