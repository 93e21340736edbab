"""BERT, Nomic's and Jina's: norms after the residual connections, and hidden states at the end instead of logits.

BERT learns positions, Nomic (with experts in every few layers) and Jina 3 rotate, Jina 2 biases by distance.
"""

from llamina.models.blocks import add_positions, gated_mlp, plain_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, activate, attend, embed, expert_linear, flat, heads, linear, mix, rope, route

ROTATED = ("nomic-bert", "nomic-bert-moe", "jina-bert-v3")


class Model(Decoder):
    norm_kind = "layer"
    causal = False
    headless = True

    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=True) if c.architecture in ROTATED else None
        alibi = 8.0 if c.architecture == "jina-bert-v2" else 0.0
        self.params = Attention(self.attention.scale, alibi=alibi, causal=self.causal)
        self.period = c.count("moe_every_n_layers", 0, least=0)

    def embed(self, tokens: Value, positions: Value) -> Value:
        w = self.weights
        x = embed(tokens, self.embeddings)
        if types := w.get("token_types"):
            first = types.shaped(types.size // x.size, x.size).rows(0, 1)
            x = x + first.shaped(x.size)  # all of a text is of the first type
        if self.config.architecture == "bert":
            x = add_positions(x, positions, w.position_embd, self.config)
        return self.norm(x, w.token_embd_norm)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        h = self.norm(x + self.attended(x, w, layer), w.attn_output_norm)
        if "attn_norm_2" in w:
            h = self.norm(h + x, w.attn_norm_2)
        return self.norm(h + self.mlp(h, w, layer), w.layer_output_norm)

    def attended(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(x, w, self.config, layer)
        if "attn_q_norm" in w:
            q = heads(self.norm(flat(q), w.attn_q_norm), q.shape[0])
        if "attn_k_norm" in w:
            k = heads(self.norm(flat(k), w.attn_k_norm), k.shape[0])
        if self.rope:
            q, k = rope(q, self.rope), rope(k, self.rope)
        return linear(flat(attend(q, k, v, layer, self.params)), w.attn_output)

    def mlp(self, x: Value, w: Weights, layer: int) -> Value:
        if self.period and layer % self.period == 1:
            return self.expert_mlp(x, w)
        if self.config.architecture == "nomic-bert":
            return gated_mlp(x, w.unbiased)
        if self.config.architecture != "jina-bert-v2":
            return plain_mlp(x, w, "gelu")
        plain = "ffn_gate" not in w and w.ffn_up.shape[0] == w.ffn_down.shape[1]
        return plain_mlp(x, w, "gelu") if plain else gated_mlp(x, w, "gelu")

    def expert_mlp(self, x: Value, w: Weights) -> Value:
        chosen, weights = route(linear(x, w.ffn_gate_inp), self.config.routing())
        up = activate(expert_linear(x, w.ffn_up_exps, chosen), "gelu")
        return mix(expert_linear(up, w.ffn_down_exps, chosen), weights)

    def last_norm(self, x: Value) -> Value:
        return x
