"""Llama 4: three layers rotate and see their own chunk of the sequence; each fourth sees all, and sharpens with length.

The experts' weights go into their gates too: that is what weighing an expert's input comes to.
"""

from llamina.models.blocks import query_key_value, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Routing, Value, attend, flat, linear, norm, rope, temper

CHUNK = 8192  # as trained; also the stretch after which the layers without rotation sharpen


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.chunked = c.get("attention.sliding_window") != 0
        self.rope_global = c.rope(neox=False)
        self.rope_local = c.rope(neox=False, base=c.positive("rope.freq_base_swa", c.trained_base))
        self.normed = c.experts != 128  # Maverick's q and k are not
        self.routing = Routing(c.experts_used, "sigmoid_selected")

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        local = self.chunked and self.config.windowed(layer, period=4)
        params = Attention(self.attention.scale, chunk=CHUNK if local else 0)
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        if not self.chunked or layer % 4 < 3:
            settings = self.rope_local if local else self.rope_global
            q, k = rope(q, settings, self.rope_factors), rope(k, settings, self.rope_factors)
            if self.normed:
                q, k = norm(q, None, self.config.eps), norm(k, None, self.config.eps)
        else:
            q = temper(q, CHUNK, 0.1, offset=1)
        x = x + linear(flat(attend(q, k, v, layer, params)), w.attn_output)
        return x + sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing, weigh_gates=True)
