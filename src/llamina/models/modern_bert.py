"""ModernBERT, EuroBERT, NeoBERT: encoders with norms before attention and MLP, rotation, and gated MLPs.

Two of three layers of ModernBERT see a window; the first one has no norm before its attention.
"""

from llamina.errors import UnsupportedModel
from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Gate, Value, attend, flat, linear, rope

GATES: dict[str, Gate] = {"gelu": "gelu", "geglu": "gelu", "silu": "silu", "swish": "silu", "swiglu": "silu"}


class Model(Decoder):
    causal = False
    headless = True

    def setup(self) -> None:
        c = self.config
        self.modern = c.architecture == "modern-bert"
        if self.modern:
            self.norm_kind, self.classifier_activation = "layer", "gelu"
            self.ranks_mean = c.count("classifier.pooling_type", 1, least=0) == 1
        self.window = c.count("attention.sliding_window", 0, least=0) if self.modern else 0
        self.rope_global = c.rope(neox=c.architecture != "neo-bert")
        self.rope_local = c.rope(neox=True, base=c.positive("rope.freq_base_swa", 10000.0), scaled=False)
        named = str(c.get("hidden_activation", "gelu")) if self.modern else "silu"
        if named not in GATES:
            raise UnsupportedModel(f"{c.architecture}.hidden_activation is {named!r}: {', '.join(GATES)} are known")
        self.gate = GATES[named]

    def embed(self, tokens: Value, positions: Value) -> Value:
        x = super().embed(tokens, positions)
        return self.norm(x, self.weights.token_embd_norm) if self.modern else x

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        local = self.window > 0 and self.config.windowed(layer, period=3, global_first=True)
        params = Attention(self.attention.scale, window=self.window if local else 0, causal=self.causal)
        settings = self.rope_local if local else self.rope_global
        h = self.norm(x, w.attn_norm) if layer or "attn_norm" in w else x
        q, k, v = query_key_value(h, w, self.config, layer)
        x = x + linear(flat(attend(rope(q, settings), rope(k, settings), v, layer, params)), w.attn_output)
        return x + gated_mlp(self.norm(x, w.ffn_norm), w, self.gate)

    def last_norm(self, x: Value) -> Value:
        return self.norm(x, self.weights.get("enc.output_norm") or self.weights.output_norm)
