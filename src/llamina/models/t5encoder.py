"""T5's encoder: no rotation, but learned biases of scores by distance, which the layers share; unscaled scores."""

import math

import numpy as np

from llamina.models.blocks import gated_mlp, plain_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, Weight, attend, constant, flat, linear

FAR = 128  # positions from which on all are in the last bucket


class Model(Decoder):
    causal = False
    headless = True

    def setup(self) -> None:
        c = self.config
        self.causal = False  # whatever the file says: biases are told apart by the direction
        self.buckets = c.count("attention.relative_buckets_count", least=4)
        self.params = Attention(1.0, causal=False, distances=c.context)
        self.shared = self.biases(self.layer(0).attn_rel_b, "0")

    def layer(self, index: int) -> Weights:
        return self.weights.part(f"enc.blk.{index}")

    def blocks(self, x: Value) -> Value:
        for layer in range(self.config.layers):
            x = self.block(x, self.layer(layer), layer)
        return x

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        biases = self.biases(w.attn_rel_b, str(layer)) if layer and "attn_rel_b" in w else self.shared
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        x = x + linear(flat(attend(q, k, v, layer, self.params, biases=biases)), w.attn_o)
        h = self.norm(x, w.ffn_norm)
        return x + (gated_mlp(h, w, "gelu") if "ffn_gate" in w else plain_mlp(h, w, "relu"))

    def last_norm(self, x: Value) -> Value:
        return self.norm(x, self.weights.part("enc").output_norm)

    def biases(self, table: Weight, name: str) -> Weight:
        """[buckets, heads] → [heads, distances], from the farthest before a token to the farthest after it."""
        learned = table.shaped(self.buckets, self.config.heads).floats()
        reach = self.config.context
        buckets = [bucket(distance, self.buckets // 2) for distance in range(-reach, reach)]
        return constant(f"enc.blk.{name}.biases", learned[buckets].T)


def bucket(distance: int, buckets: int) -> int:
    """The row of a table of twice as many: one for each near distance, few for the far; those ahead come second."""
    near, size = buckets // 2, abs(distance)
    if size >= near:
        growth = float(np.log(np.float32(size / near))) * (buckets - near) / math.log(FAR / near)
        size = min(math.floor(np.float32(near + growth)), buckets - 1)
    return size + (buckets if distance > 0 else 0)
