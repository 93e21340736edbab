"""LFM 2: short gated convolutions, here and there attention with normed q and k; experts in lfm2moe."""

from llamina.models.blocks import query_key_value, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, attend, convolve, flat, linear, rope, split


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=True)
        window = c.count("attention.sliding_window", 0, least=0) if c.architecture == "lfm2" else 0
        self.params = Attention(c.value_dim**-0.5, window=window)
        self.routing = c.routing(normalize=True)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        mixer = self.attend if "attn_output" in w else self.convolve
        x = x + mixer(self.norm(x, w.attn_norm), w, layer)
        return x + sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing)

    def attend(self, h: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(h, w, self.config, layer)
        q, k = rope(self.norm(q, w.attn_q_norm), self.rope), rope(self.norm(k, w.attn_k_norm), self.rope)
        return linear(flat(attend(q, k, v, layer, self.params)), w.attn_output)

    def convolve(self, h: Value, w: Weights, layer: int) -> Value:
        width = self.config.width
        before, after, x = split(linear(h, getattr(w, "shortconv.in_proj")), width, width, width)
        x = convolve(before * x, getattr(w, "shortconv.conv"), layer)
        return linear(after * x, getattr(w, "shortconv.out_proj"))

    def last_norm(self, x: Value) -> Value:
        return self.norm(x, self.weights.token_embd_norm)
