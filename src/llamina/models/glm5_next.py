"""GLM 5 Next: four residual streams; layers of Kimi's delta attention, and latent attention to pools of positions.

A layer reads a mixture of the streams and writes to all of them, mixing them anew (hyper-connections). Neither kind of
attention knows positions. An indexer scores pools of a few positions by a learned mean of their keys.
"""

from llamina.errors import UnsupportedModel
from llamina.models.blocks import experts, gated_mlp, latent_attention
from llamina.models.config import REPEATED
from llamina.models.decoder import Decoder
from llamina.models.delta import kimi_delta, rates
from llamina.models.weights import Weights
from llamina.ops import (
    Attention,
    Selection,
    Value,
    activate,
    concat,
    constant,
    flat,
    heads,
    linear,
    mix,
    mul,
    norm,
    pool,
    reshape,
    scale,
    select,
    sinkhorn,
    split,
)


class Model(Decoder):
    selected: Value | None  # by the last layer with an indexer

    def setup(self) -> None:
        c = self.config
        self.streams = c.count("hyper_connection.count", most=REPEATED)
        self.rounds = c.count("hyper_connection.sinkhorn_iterations")
        self.stream_eps = c.positive("hyper_connection.epsilon")
        self.bound = c.number("kda.gate_lower_bound", 0.0)
        self.routing = c.routing("sigmoid")
        size = c.count("attention.indexer.kpool")
        if not c.flag("attention.indexer.kpool_select_tail", True):
            raise UnsupportedModel(
                "attention.indexer.kpool_select_tail is false: unfinished pools are always seen here"
            )
        self.choice = Selection(c.context, c.count("attention.indexer.top_k") // size, size, whole=True)
        self.params = Attention(c.count("attention.key_length_mla") ** -0.5, block=size)

    def embed(self, tokens: Value, positions: Value) -> Value:
        """All streams begin as the embedding."""
        self.selected = None
        x = y = super().embed(tokens, positions)
        for _ in range(self.streams - 1):
            x = concat(x, y)
        return heads(x, self.streams)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        h, rest = self.read(x, w.part("hc_attn", "_"))
        h = self.norm(h, w.attn_norm)
        h = self.delta(h, w, layer) if "ssm_conv1d_q" in w else self.attend(h, w, layer)
        x = mix(heads(concat(flat(x), h), self.streams + 1), rest)
        h, rest = self.read(x, w.part("hc_ffn", "_"))
        h = self.feed_forward(self.norm(h, w.ffn_norm), w, layer)
        return mix(heads(concat(flat(x), h), self.streams + 1), rest)

    def read(self, x: Value, w: Weights) -> tuple[Value, Value]:
        """The mixture that a layer reads, and how the streams and what it makes of it are mixed afterwards."""
        n, eps = self.streams, constant("hc_eps", [self.stream_eps])
        parts = split(linear(norm(flat(x), None, self.config.eps), w.fn), n, n, n * n)
        ends = (0, n, 2 * n, 2 * n + n * n)
        read, write, keep = (
            mul(part, w.scale.rows(i, i + 1)) + w.base.rows(ends[i], ends[i + 1]) for i, part in enumerate(parts)
        )
        kept = sinkhorn(heads(keep, n), self.rounds, self.stream_eps)
        written = scale(activate(write, "sigmoid"), 2.0)
        return mix(x, activate(read, "sigmoid") + eps), heads(concat(flat(kept), written), n + 1)

    def delta(self, h: Value, w: Weights, layer: int) -> Value:
        rate, a = rates(h, w, self.config), w.ssm_a.shaped(self.config.heads, 1)
        if self.bound:
            fade = scale(activate(scale(mul(rate, a), -1.0), "sigmoid"), self.bound)
        else:
            fade = mul(activate(rate, "softplus"), a)
        return kimi_delta(h, fade, w, self.config, layer, unit_eps=1e-6)

    def attend(self, h: Value, w: Weights, layer: int) -> Value:
        low_rank = self.norm(linear(h, w.attn_q_a), w.attn_q_a_norm)
        latent = self.norm(linear(h, w.attn_kv_a_mqa), w.attn_kv_a_norm)
        q = heads(linear(low_rank, w.attn_q_b), self.config.heads)
        if "indexer.proj" in w and self.choice.top * self.choice.block < self.config.context:
            self.selected = self.chosen(h, low_rank, w, layer)
        return linear(
            flat(latent_attention(q, None, latent, None, w, layer, self.params, self.selected)), w.attn_output
        )

    def chosen(self, h: Value, low_rank: Value, w: Weights, layer: int) -> Value:
        index, eps = w.part("indexer"), self.config.positive("attention.layer_norm_epsilon", 1e-5)
        k = norm(linear(h, index.attn_k), index.k_norm, eps, "layer")
        k = pool(k, linear(h, w.indexer_compressor_gate), w.indexer_compressor_ape, layer)
        q = heads(linear(low_rank, index.attn_q_b), index.proj.shape[0])
        weights = scale(linear(h, index.proj), q.size**-0.5)
        return select(q, reshape(k, 1, k.size), layer, self.choice, weights)

    def feed_forward(self, h: Value, w: Weights, layer: int) -> Value:
        limit = self.config.number("swiglu_clamp_exp", 0.0, layer)
        shared = self.config.number("swiglu_clamp_shexp", limit, layer)
        if "ffn_gate_inp" not in w:
            return gated_mlp(h, w, limit=shared)
        return experts(h, w, self.routing, limit=limit) + gated_mlp(h, w, suffix="_shexp", limit=shared)

    def last_norm(self, x: Value) -> Value:
        """Of the streams' mean."""
        first, *others = split(flat(x), *[self.config.width] * self.streams)
        for other in others:
            first = first + other
        return super().last_norm(scale(first, 1 / self.streams))
