"""What Gemma 3n and Gemma 4 share: attention to keys of earlier layers, a second embedding with a part per layer."""

import math
from dataclasses import replace

from llamina.errors import ModelFileError
from llamina.models.config import Config
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, attend, embed, flat, heads, linear, norm, rope, scale, split


class SharingAttention:
    """Windowed and global layers, of which the last attend to the keys and values of the last one that has some.

    Queries and keys are normed, values too, and scores are not scaled. Rows of a picture see each other in windowed
    layers only.
    """

    def __init__(self, config: Config, weights: Weights, shared: int = 0) -> None:
        """`shared` layers have no keys and values, if the file does not say how many."""
        c = self.config = config
        local_dim = c.count("attention.key_length_swa", c.head_dim)
        self.rope_global = c.rope(neox=True)
        self.rope_local = replace(
            c.rope(neox=True, base=c.positive("rope.freq_base_swa", 10000.0), scaled=False),
            dims=c.count("rope.dimension_count_swa", local_dim),
        )
        self.factors = weights.get("rope_freqs")  # of global layers
        self.window = c.count("attention.sliding_window")
        self.first_without = c.layers - c.count("attention.shared_kv_layers", shared, least=0, most=c.layers - 1)
        self.kept: dict[bool, tuple[int, Value, Value]] = {}  # the last keys and values of windowed and global layers

    def __call__(self, h: Value, w: Weights, layer: int) -> Value:
        """What a layer finds for h."""
        c, local = self.config, self.config.windowed(layer, period=5)
        settings, factors = (self.rope_local, None) if local else (self.rope_global, self.factors)
        n = c.count("attention.head_count", 1, layer=layer)
        q = rope(norm(heads(linear(h, w.attn_q), n), w.attn_q_norm, c.eps), settings, factors)
        if layer < self.first_without:
            m = c.count("attention.head_count_kv", n, layer=layer)
            key = heads(linear(h, w.attn_k), m)
            value = heads(linear(h, w.attn_v), m) if "attn_v" in w else key
            k = rope(norm(key, w.attn_k_norm, c.eps), settings, factors)
            self.kept[local] = layer, k, norm(value, None, c.eps)
        elif local not in self.kept:
            kind = "windowed" if local else "global"
            raise ModelFileError(f"layer {layer} has no keys of its own, and no {kind} layer before it has some")
        source, k, v = self.kept[local]
        params = Attention(1.0, window=self.window) if local else Attention(1.0, strict=True)
        return linear(flat(attend(q, k, v, source, params)), w.attn_output)


def second_embedding(tokens: Value, x: Value, weights: Weights, config: Config) -> list[Value]:
    """A vector for each layer, of the token (of token 0 where a row is given) and of its embedding x.

    Empty, if the file has no such embedding.
    """
    table, layers = weights.get("per_layer_token_embd"), config.layers
    if table is None:
        return []
    if table.shape[0] < (tokens_known := weights.token_embd.shape[0]):
        raise ModelFileError(f"{table.name} has {table.shape[0]} rows, and the model {tokens_known} tokens")
    size = table.shape[1] // layers
    own = heads(scale(embed(tokens, table), math.sqrt(size)), layers)
    projected = heads(scale(linear(x, weights.per_layer_model_proj), config.width**-0.5), layers)
    projected = norm(projected, weights.per_layer_proj_norm, config.eps)
    return split(flat(scale(projected + own, 0.5**0.5)), *[size] * layers)
