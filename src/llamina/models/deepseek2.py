"""DeepSeek V2 to V3.2 (R1, Kimi K2), GLM 4.7 Flash and 5, Mistral 4: latent attention, experts beside shared ones.

In DeepSeek V3.2 and GLM 5 an indexer chooses the positions to attend to; some layers of GLM 5.2 go by an earlier one's.
"""

import math

from llamina.models.blocks import latent_attention, latent_parts, lightning, low_rank_query, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Selection, Value, flat, linear, rope, temper

GLM_FLASH = 154880  # the vocabulary by which its first files, that do not name their scoring, are known


class Model(Decoder):
    selected: Value | None  # by the last layer with an indexer

    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=False)
        self.params = Attention(self.score_scale())
        self.temperature = c.number("attention.temperature_scale", 0.0)
        glm = c.layers in (47, 48) and self.weights.token_embd.shape[0] == GLM_FLASH
        self.routing = c.routing("sigmoid" if glm or c.architecture == "glm-dsa" else "softmax")
        self.choice = Selection(c.context, c.count("attention.indexer.top_k", c.context))
        self.rope_index = c.rope(neox=c.architecture != "glm-dsa")

    def embed(self, tokens: Value, positions: Value) -> Value:
        self.selected = None
        return super().embed(tokens, positions)

    def score_scale(self) -> float:
        """1/√dim, stretched as YaRN wants it (the rotation's own stretch covers only the rotated part)."""
        longer = 0.1 * math.log(1 / self.rope.scale)
        stretch = self.rope.magnitude * (1 + self.config.yarn_log_multiplier * longer)
        if not self.rope.ext_factor:  # as llama.cpp has it, where the stretch of YaRN is not in the rotation's
            stretch *= 1 + longer
        return stretch * stretch / math.sqrt(self.config.count("attention.key_length_mla", self.config.head_dim))

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        x = x + linear(flat(self.attend(self.norm(x, w.attn_norm), w, layer)), w.attn_output)
        return x + sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing)

    def attend(self, h: Value, w: Weights, layer: int) -> Value:
        low_rank = low_rank_query(h, w, self.config)
        if low_rank is not None and "indexer.proj" in w and self.indexed(layer):
            self.selected = lightning(h, low_rank, w, layer, self.choice, self.rope_index, eps=1e-6)
        q, q_rope, latent, k_rope = latent_parts(h, w, self.config, low_rank)
        q_rope, k_rope = rope(q_rope, self.rope), rope(k_rope, self.rope)
        if self.temperature:
            length = self.config.count("attention.temperature_length")
            q, q_rope = temper(q, length, self.temperature), temper(q_rope, length, self.temperature)
        return latent_attention(q, q_rope, latent, k_rope, w, layer, self.params, self.selected)

    def indexed(self, layer: int) -> bool:
        """Whether a layer chooses by itself; the first files of GLM 5.2, known by their context, do not say it."""
        sparse = self.config.architecture == "glm-dsa" and self.config.trained_context >= 1 << 20
        return self.config.flag("attention.indexer.types", not sparse or layer < 2 or layer % 4 == 2, layer)
