"""Gemma 3 and EmbeddingGemma: gemma2 with normed q and k, without the score cap; five of six layers are windowed.

EmbeddingGemma reads both ways; what it says of a token goes through two more matrices, where the file has them.
"""

import math

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, attend, flat, linear, rope, scale, softcap


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        if c.architecture == "gemma-embedding":
            self.causal, self.headless = False, True
        self.window = c.count("attention.sliding_window", 0, least=0)
        self.rope_global = c.rope(neox=True)
        self.rope_local = c.rope(neox=True, base=c.number("rope.freq_base_swa", 10000.0), scaled=False)
        self.logit_cap = c.number("final_logit_softcapping", 0.0)
        per_head = c.width / c.heads if c.layers == 62 else c.head_dim  # the 27B scales by its width
        self.scale = per_head**-0.5

    def embed(self, tokens: Value, positions: Value) -> Value:
        return scale(super().embed(tokens, positions), math.sqrt(self.config.width))

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        local = self.window > 0 and self.config.windowed(layer, period=6)
        params = Attention(self.scale, window=self.window if local else 0, causal=self.causal)
        settings = self.rope_local if local else self.rope_global
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(self.norm(q, w.attn_q_norm), settings), rope(self.norm(k, w.attn_k_norm), settings)
        h = linear(flat(attend(q, k, v, layer, params)), w.attn_output)
        x = x + self.norm(h, w.post_attention_norm)
        h = gated_mlp(self.norm(x, w.ffn_norm), w, "gelu")
        return x + self.norm(h, w.post_ffw_norm)

    def last_norm(self, x: Value) -> Value:
        x = super().last_norm(x)
        for name in ("dense_2", "dense_3") if self.headless else ():  # before pooling or after it: it is the same
            x = linear(x, getattr(self.weights, name)) if name in self.weights else x
        return x

    def head(self, x: Value) -> Value:
        return softcap(super().head(x), self.logit_cap)
