"""PLM: DeepSeek's latent attention, expanded to every head, and a plain MLP of squared ReLUs."""

from llamina.models.blocks import latent_attention, latent_parts, plain_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        self.rope = self.config.rope(neox=False)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, q_rope, latent, k_rope = latent_parts(self.norm(x, w.attn_norm), w, self.config)
        q_rope, k_rope = rope(q_rope, self.rope), rope(k_rope, self.rope)
        attended = latent_attention(q, q_rope, latent, k_rope, w, layer, self.attention)
        x = x + linear(flat(attended), w.attn_output)
        return x + plain_mlp(self.norm(x, w.ffn_norm), w, "relu_sqr")
