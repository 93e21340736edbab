"""CogVLM's language half: llama with NeoX rotation of a fixed base, and matrices of their own (`vis_…`) for pictures.

Where a batch may have rows of pictures, each matrix and its other are multiplied with everything.
"""

from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Rope, Value, attend, flat, gated, given, heads, linear, rope, split


class Model(Decoder):
    seeing = False  # whether the plan that is recorded is for batches with rows

    def setup(self) -> None:
        self.rope = Rope(self.config.head_dim, 10000.0, neox=True)

    def hidden(self, tokens: Value, positions: Value, rows: Value | None = None) -> Value:
        self.seeing = rows is not None
        return super().hidden(tokens, positions, rows)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        n, m, dim = self.config.heads, self.config.kv_heads, self.config.head_dim
        fused = self.product(self.norm(x, w.attn_norm), w, "attn_qkv", "vis_attn_qkv")
        q, k, v = split(fused, n * dim, m * dim, m * dim)
        q, k = rope(heads(q, n), self.rope), rope(heads(k, m), self.rope)
        h = flat(attend(q, k, heads(v, m), layer, self.attention))
        x = x + self.product(h, w, "attn_output", "vis_attn_output")
        h = self.norm(x, w.ffn_norm)
        h = gated(self.product(h, w, "ffn_gate", "vis_gate"), self.product(h, w, "ffn_up", "vis_up"), "silu")
        return x + self.product(h, w, "ffn_down", "vis_down")

    def product(self, x: Value, w: Weights, name: str, seen: str) -> Value:
        """x through a matrix; a picture's rows through the other."""
        out = linear(x, getattr(w, name))
        return given(out, linear(x, getattr(w, seen))) if self.seeing else out
