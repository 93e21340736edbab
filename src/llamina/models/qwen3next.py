"""Qwen 3 Next and 3.5: three layers of gated delta net to each one of attention, whose output a sigmoid gates.

Experts beside a shared one that a sigmoid weighs, but for qwen35, whose MLPs are dense.
"""

from llamina.models.blocks import sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.delta import gated_delta
from llamina.models.weights import Weights
from llamina.ops import Value, attend, concat, flat, gated, heads, linear, rope, split


class Model(Decoder):
    def setup(self) -> None:
        self.rope = self.config.rope(neox=True, sections="interleaved")
        self.routing = self.config.routing(normalize=True)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        mixer = self.delta if "ssm_conv1d" in w else self.attend
        x = x + mixer(self.norm(x, w.attn_norm), w, layer)
        return x + sparse_mlp(self.norm(x, w.post_attention_norm), w, self.routing)

    def attend(self, h: Value, w: Weights, layer: int) -> Value:
        c = self.config
        q, gate = split(heads(linear(h, w.attn_q), c.heads), c.head_dim, c.head_dim)
        k, v = heads(linear(h, w.attn_k), c.kv_heads), heads(linear(h, w.attn_v), c.kv_heads)
        q, k = rope(self.norm(q, w.attn_q_norm), self.rope), rope(self.norm(k, w.attn_k_norm), self.rope)
        return linear(flat(gated(gate, attend(q, k, v, layer, self.attention), "sigmoid")), w.attn_output)

    def delta(self, h: Value, w: Weights, layer: int) -> Value:
        """The value heads of a key head stand side by side in Qwen 3 Next; in 3.5 the key heads take turns."""
        if "ssm_ba" in w:
            both = heads(linear(h, w.ssm_ba), self.config.count("ssm.group_count"))
            beta, alpha = (flat(x) for x in split(both, both.shape[1] // 2, both.shape[1] // 2))
        else:
            beta, alpha = linear(h, w.ssm_beta), linear(h, w.ssm_alpha)
        return gated_delta(*self.projected(h, w), beta, alpha, w, self.config, layer, tiled="ssm_ba" not in w)

    def projected(self, h: Value, w: Weights) -> tuple[Value, Value]:
        """q, k and v side by side, and the output's gate; older files mix all four by key heads."""
        if "attn_qkv" in w:
            return linear(h, w.attn_qkv), linear(h, w.attn_gate)
        c = self.config
        keys, dim, inner = c.count("ssm.group_count"), c.count("ssm.state_size"), c.count("ssm.inner_size")
        q, k, v, z = split(heads(linear(h, w.ssm_in), keys), dim, dim, inner // keys, inner // keys)
        return concat(concat(flat(q), flat(k)), flat(v)), flat(z)
