"""Qwen 4 (experimental): qwen3next with several residual streams, and embeddings of n-grams added to them.

A layer reads the mean of the normed and gated streams, and adds what it makes of it to all (hyper-connections).
"""

from llamina.errors import UnsupportedModel
from llamina.models.blocks import sparse_mlp
from llamina.models.config import REPEATED
from llamina.models.decoder import Decoder
from llamina.models.delta import gated_delta
from llamina.models.weights import Weights
from llamina.ops import (
    Ngrams,
    Value,
    activate,
    attend,
    concat,
    constant,
    convolve,
    embed,
    flat,
    gated,
    heads,
    linear,
    mix,
    ngrams,
    reshape,
    rope,
    scale,
    split,
)


class Model(Decoder):
    grams: Value  # the embeddings of each token's n-grams, side by side

    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=True, sections="interleaved")
        self.streams = c.count("hyper_connection.count", least=2, most=REPEATED)
        self.routing = c.routing(normalize=True)
        self.gram_layers = c.listed("ple.layers")
        chosen, most = c.count("attention.compress_ratios", 0, least=0), c.count("attention.indexer.top_k")
        if chosen and c.context > most:
            raise UnsupportedModel(
                f"past {most} positions the model chooses blocks of {chosen} to attend to, which is not known here: "
                f"load it with a context of {most} or less"
            )

    def embed(self, tokens: Value, positions: Value) -> Value:
        """All streams begin as the embedding."""
        if self.gram_layers:
            rows, table = ngrams(tokens, self.hashes(), self.gram_layers[0]), self.weights.per_layer_token_embd
            self.grams = flat(embed(rows, table))
        x = y = super().embed(tokens, positions)
        for _ in range(self.streams - 1):
            x = concat(x, y)
        return heads(x, self.streams)

    def hashes(self) -> Ngrams:
        c, most = self.config, self.weights.per_layer_token_embd.shape[0]
        multipliers, sizes, offsets = (
            c.listed(f"ple.{key}") for key in ("layer_multipliers", "head_vocab_sizes", "head_offsets")
        )
        if any(not 0 <= offset <= most - size for size, offset in zip(sizes, offsets, strict=False)):
            raise UnsupportedModel(f"the file has {most} embeddings of n-grams: its tables reach past them")
        return Ngrams(multipliers, sizes, offsets, c.count("ple.eos_token_id", least=0))

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        if layer in self.gram_layers:
            x = x + self.recall(x, w, layer)
        h, normed = self.read(x, w.part("hc_attn", "_"))
        h = self.delta(h, w, layer) if "ssm_conv1d" in w else self.attend(h, w, layer)
        x = x + self.spread(h, linear(normed, w.hc_attn_inject))
        h, normed = self.read(x, w.part("hc_ffn", "_"))
        return x + self.spread(sparse_mlp(h, w, self.routing), linear(normed, w.hc_ffn_inject))

    def read(self, x: Value, w: Weights) -> tuple[Value, Value]:
        """The mean of the streams, normed and gated; and they, normed, side by side."""
        normed = flat(self.norm(x, w.norm))
        low_rank = activate(scale(linear(normed, w.down), 1 / self.streams), "silu")
        first, *others = split(gated(linear(low_rank, w.up), normed, "sigmoid"), *[self.config.width] * self.streams)
        for other in others:
            first = first + other
        return scale(first, 1 / self.streams), normed

    def spread(self, h: Value, weights: Value) -> Value:
        """h for each stream, times 2 × the sigmoid of its weight."""
        weights = scale(activate(scale(weights, 1 / self.streams), "sigmoid"), 2.0)
        return mix(reshape(h, 1, h.size), reshape(weights, 1, self.streams))

    def attend(self, h: Value, w: Weights, layer: int) -> Value:
        c, m = self.config, w.unbiased
        q, gate = split(heads(linear(h, m.attn_q), c.heads), c.head_dim, c.head_dim)
        k, v = heads(linear(h, m.attn_k), c.kv_heads), heads(linear(h, m.attn_v), c.kv_heads)
        q, k = rope(self.norm(q, w.attn_q_norm), self.rope), rope(self.norm(k, w.attn_k_norm), self.rope)
        return linear(flat(gated(gate, attend(q, k, v, layer, self.attention), "sigmoid")), w.attn_output)

    def delta(self, h: Value, w: Weights, layer: int) -> Value:
        qkv, z, beta, alpha = (linear(h, m) for m in (w.attn_qkv, w.attn_gate, w.ssm_beta, w.ssm_alpha))
        return gated_delta(qkv, z, beta, alpha, w, self.config, layer, tiled=True, gate="sigmoid")

    def recall(self, x: Value, w: Weights, layer: int) -> Value:
        """The n-grams' embeddings as far as each stream asks for them, and a convolution along the sequence."""
        width = self.config.width
        key = self.norm(heads(linear(self.grams, w.ple_key), self.streams), w.ple_norm_key)
        asked = linear(key * self.norm(x, w.ple_norm_query), constant("ones", [[1.0] * width]))
        gate = activate(activate(scale(asked, width**-0.5), "signed_sqrt"), "sigmoid")
        told = mix(reshape(linear(self.grams, w.ple_value), 1, width), reshape(gate, 1, self.streams))
        normed = flat(self.norm(told, w.ple_norm_conv))
        convolved = convolve(normed, w.ple_conv1d, layer, apart=self.config.count("ple.ngram_size"))
        return told + heads(activate(convolved, "silu"), self.streams)

    def last_norm(self, x: Value) -> Value:
        return self.read(x, self.weights.part("output_hc", "_"))[0]
