"""PLaMo 2: Mamba with heads, here and there attention with normed q and k; norms before and after each part."""

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.ssm import state_space
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, activate, attend, convolve, flat, gated, heads, linear, rope, split


class Model(Decoder):
    def setup(self) -> None:
        self.rope = self.config.rope(neox=True)
        self.params = Attention(self.config.value_dim**-0.5)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        mixer = self.mamba if "ssm_in" in w else self.attend
        x = x + self.norm(mixer(self.norm(x, w.attn_norm), w, layer), w.post_attention_norm)
        return x + self.norm(gated_mlp(self.norm(x, w.ffn_norm), w), w.post_ffw_norm)

    def attend(self, h: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(h, w, self.config, layer)
        q, k = rope(self.norm(q, w.attn_q_norm), self.rope), rope(self.norm(k, w.attn_k_norm), self.rope)
        return linear(flat(attend(q, k, v, layer, self.params)), w.attn_output)

    def mamba(self, h: Value, w: Weights, layer: int) -> Value:
        """Mamba 2's heads and decays; b, c and dt computed from the convolved input as in Mamba 1, and normed."""
        c = self.config
        n_heads, n, inner = c.count("ssm.time_step_rank"), c.count("ssm.state_size"), c.count("ssm.inner_size")
        z, x = split(heads(linear(h, w.ssm_in), n_heads), inner // n_heads, inner // n_heads)
        x = activate(convolve(flat(x), w.ssm_conv1d, layer), "silu")
        key, query, dt = split(linear(x, w.ssm_x), n, n, max(64, c.width // 16))
        key, query = self.norm(key, w.ssm_b_norm), self.norm(query, w.ssm_c_norm)
        dt = linear(self.norm(dt, w.ssm_dt_norm), w.ssm_dt)
        y = state_space(heads(x, n_heads), dt, heads(key, 1), heads(query, 1), w, layer)
        return linear(flat(gated(z, y, "silu")), w.ssm_out)
