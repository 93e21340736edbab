"""Kimi Linear: three layers of Kimi's delta attention to each one of latent attention, neither with positions."""

from llamina.models.blocks import latent_attention, latent_parts, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.delta import kimi_delta, rates
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, activate, flat, linear, mul


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.params = Attention(c.count("attention.key_length_mla") ** -0.5)
        self.routing = c.routing(normalize=True)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        h = self.norm(x, w.attn_norm)
        if "ssm_conv1d_q" in w:
            fade = mul(activate(rates(h, w, self.config), "softplus"), w.ssm_a.shaped(self.config.heads, 1))
            x = x + kimi_delta(h, fade, w, self.config, layer)
        else:
            x = x + linear(
                flat(latent_attention(*latent_parts(h, w, self.config), w, layer, self.params)), w.attn_output
            )
        return x + sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing)
