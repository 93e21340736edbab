"""SmallThinker: the router sees the layer's input; ReLU experts; one layer in four is global and does not rotate."""

from llamina.models.blocks import experts, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, attend, flat, linear, rope

WINDOW = 4096  # as trained


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.windows = c.count("attention.sliding_window", 0, least=0) > 0
        self.rope_global = c.rope(neox=True)
        self.rope_local = c.rope(neox=True, base=c.positive("rope.freq_base_swa", c.trained_base))
        self.routing = c.routing(normalize=True)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        scores = linear(x, w.ffn_gate_inp)
        local = self.windows and self.config.windowed(layer, period=4, global_first=True)
        params = Attention(self.attention.scale, window=WINDOW if local else 0)
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        if not self.windows or layer % 4:
            settings = self.rope_local if local else self.rope_global
            q, k = rope(q, settings), rope(k, settings)
        x = x + linear(flat(attend(q, k, v, layer, params)), w.attn_output)
        return x + experts(self.norm(x, w.ffn_norm), w, self.routing, "relu", scores=scores)
