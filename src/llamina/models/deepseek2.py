"""DeepSeek V2 and V3: latent attention (MLA) in its absorbed form, shared and routed experts.

Keys and values are kept as one latent vector per token; q's part without position is carried into the latent space.
"""

import math

from llamina.models.blocks import sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import (
    Attention,
    Value,
    attend,
    attend_latent,
    concat,
    flat,
    head_linear,
    heads,
    linear,
    reshape,
    rope,
    split,
)


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=False)
        self.latent = c.count("attention.kv_lora_rank")
        self.head_dim = c.count("attention.key_length_mla", c.head_dim)
        self.value_dim = c.count("attention.value_length_mla", c.value_dim)
        self.how = Attention(self.score_scale())
        self.routing = c.routing()

    def score_scale(self) -> float:
        """1/√dim, stretched as YaRN wants it (the rotation's own stretch covers only the rotated part)."""
        moved = 1 + 0.1 * self.config.yarn_log_multiplier * math.log(1 / self.rope.scale)
        stretch = self.rope.magnitude * moved
        return stretch * stretch / math.sqrt(self.head_dim)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        x = x + linear(flat(self.attend(self.norm(x, w.attn_norm), w, layer)), w.attn_output)
        return x + sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing)

    def attend(self, h: Value, w: Weights, layer: int) -> Value:
        c, turned = self.config, self.rope.dims
        plain = self.head_dim - turned
        low_rank = self.norm(linear(h, w.attn_q_a), w.attn_q_a_norm) if "attn_q_a" in w else None
        q = linear(low_rank, w.attn_q_b) if low_rank is not None else linear(h, w.attn_q)
        q_plain, q_turned = split(heads(q, c.heads), plain, turned)
        latent, k_turned = split(linear(h, w.attn_kv_a_mqa), self.latent, turned)
        latent = self.norm(latent, w.attn_kv_a_norm)
        q_turned, k_turned = rope(q_turned, self.rope), rope(reshape(k_turned, 1, turned), self.rope)
        if "attn_kv_b" in w:
            return self.attend_expanded(q_plain, q_turned, latent, k_turned, w, layer)
        absorbed = head_linear(q_plain, w.attn_k_b.shaped(c.heads, self.latent, plain))
        key = concat(reshape(latent, 1, self.latent), k_turned)
        seen = attend_latent(concat(absorbed, q_turned), key, self.latent, layer, self.how)
        return head_linear(seen, w.attn_v_b.shaped(c.heads, self.value_dim, self.latent))

    def attend_expanded(
        self, q_plain: Value, q_turned: Value, latent: Value, k_turned: Value, w: Weights, layer: int
    ) -> Value:
        """Older files hold one matrix that expands the latent to every head's key and value."""
        n, plain = self.config.heads, q_plain.shape[1]
        k_plain, v = split(heads(linear(latent, w.attn_kv_b), n), plain, self.value_dim)
        return attend(concat(q_plain, q_turned), concat(k_plain, k_turned), v, layer, self.how)
