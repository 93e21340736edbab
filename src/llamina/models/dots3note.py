"""dots3-note: latent attention with a gate for each head, in windows or over the positions an indexer finds best.

Windowed layers have latent vectors and rotations of their own. Experts as deepseek2's.
"""

from dataclasses import replace

from llamina.models.blocks import latent_attention, lightning, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Selection, Value, activate, flat, heads, linear, reshape, rope, split


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.window = c.count("attention.sliding_window")
        self.rope_global = c.rope(neox=False)
        self.rope_local = replace(self.rope_global, base=c.positive("rope.freq_base_swa"))
        self.rope_index = c.rope(neox=True)
        self.choice = Selection(c.context, c.count("attention.indexer.top_k"))
        self.routing = c.routing()

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        h = self.norm(x, w.attn_norm)
        attended = self.attend(h, w, layer)
        gates = activate(linear(h, w.attn_gate.shaped(attended.shape[0], self.config.width)), "sigmoid")
        x = x + linear(flat(attended * reshape(gates, attended.shape[0], 1)), w.attn_output)
        return x + sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing)

    def attend(self, h: Value, w: Weights, layer: int) -> Value:
        local = self.config.flag("attention.sliding_window_pattern", layer=layer)
        settings = self.rope_local if local else self.rope_global
        low_rank = self.norm(linear(h, w.attn_q_a), w.attn_q_a_norm)
        q = heads(linear(low_rank, w.attn_q_b), self.config.count("attention.head_count", layer=layer))
        params = Attention(q.shape[1] ** -0.5, window=self.window if local else 0)
        selected = None if local else lightning(h, low_rank, w, layer, self.choice, self.rope_index, eps=1e-6)
        key = linear(h, w.attn_kv_a_mqa)
        q, q_rope = split(q, q.shape[1] - settings.dims, settings.dims)
        latent, k_rope = split(key, key.size - settings.dims, settings.dims)
        k_rope = rope(self.norm(reshape(k_rope, 1, settings.dims), w.attn_k_norm), settings)
        latent = self.norm(latent, w.attn_kv_a_norm)
        return latent_attention(q, rope(q_rope, settings), latent, k_rope, w, layer, params, selected)
