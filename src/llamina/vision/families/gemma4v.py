"""Gemma 4: a ViT over pictures of any size, learned and rotated positions, the mean of neighbouring patches.

Some matrices have limits for what goes in and what comes out.
"""

import math

import numpy as np
import numpy.typing as npt

from llamina.errors import InvalidPicture
from llamina.models import Weights
from llamina.ops import (
    Attention,
    Rope,
    Value,
    attend,
    clamp,
    concat,
    constant,
    flat,
    gated,
    heads,
    linear,
    norm,
    rope,
    scale,
    split,
)
from llamina.quant import decode
from llamina.vision.encoder import Encoder, Part, mean
from llamina.vision.picture import Picture
from llamina.vision.resize import fit, whole_size
from llamina.vision.rotation import COLUMN, ROW

ROWS = (70, 1120)  # of a picture, at the least and at the most
BASE = 100.0
CAUSAL = (1536, 2560)  # widths of text models (E2B, E4B) in which a picture's rows do not attend to each other


class Family(Encoder):
    merge = 3
    norm_kind = "rms"

    def setup(self) -> None:
        self.deviation = self.deviation * np.float32(0.5)
        self.mean = self.mean + self.deviation  # so that pixels are from -1 to 1
        self.attention = Attention(1.0, causal=False)
        self.both_ways = self.mm.input_projection.shape[0] not in CAUSAL
        w = self.v.get("std_bias")
        self.less = constant("v.std_bias", -decode(w.data, w.format, w.shape)) if w else None
        half = self.config.head_dim // 2
        self.ropes = [Rope(half, BASE, neox=True, axes=(axis,) * (half // 2)) for axis in (COLUMN, ROW)]

    def parts(self, picture: Picture) -> list[Part]:
        step = self.patch * self.merge
        size = whole_size((picture.width, picture.height), step, *(n * step * step for n in ROWS))
        return ["<|image>", fit(picture.pixels, size, "bicubic"), "<image|>"]

    @property
    def carried(self) -> bool:
        return True

    def learned(self, height: int, width: int) -> npt.NDArray[np.float32]:
        """The sum of a column's and a row's."""
        w = self.v.position_embd
        x, y = decode(w.data, w.format, w.shape)
        if max(height, width) > len(x):
            raise InvalidPicture(
                f"the picture has {width} x {height} patches, {len(x)} a side at most: cut the picture"
            )
        found: npt.NDArray[np.float32] = x[None, :width] + y[:height, None]
        return found

    def rotate(self, x: Value) -> Value:
        """The first half of a head by the column, the other by the row."""
        half = x.shape[1] // 2
        a, b = (rope(part, settings) for part, settings in zip(split(x, half, half), self.ropes, strict=True))
        return concat(a, b)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        h, n = self.norm(x, w.ln1), self.config.heads
        q, k, v = (heads(clipped(h, w, name), n) for name in ("attn_q", "attn_k", "attn_v"))
        q, k = self.rotate(self.norm(q, w.attn_q_norm)), self.rotate(self.norm(k, w.attn_k_norm))
        h = attend(q, k, norm(v, None, self.config.eps), layer, self.attention)
        x = x + self.norm(clipped(flat(h), w, "attn_out"), w.attn_post_norm)
        h = self.norm(x, w.ln2)
        h = gated(clipped(h, w, "ffn_gate"), clipped(h, w, "ffn_up"), self.activation)
        x = x + self.norm(clipped(h, w, "ffn_down"), w.ffn_post_norm)
        return x * w.out_scale if "out_scale" in w else x

    def project(self, x: Value) -> Value:
        x = scale(mean(x), math.sqrt(self.config.width))
        if self.less:
            x = (x + self.less) * self.v.std_scale
        return clipped(norm(x, None, self.config.eps), self.mm, "input_projection")


def clipped(x: Value, w: Weights, name: str) -> Value:
    """x through a matrix, its elements within the matrix's limits before and after."""

    def limit(which: str, default: float) -> float:
        found = w.get(f"{name}.{which}")
        return default if found is None else float(decode(found.data, found.format, found.shape).reshape(-1)[0])

    x = clamp(x, limit("input_min", -math.inf), limit("input_max", math.inf))
    return clamp(linear(x, getattr(w, name)), limit("output_min", -math.inf), limit("output_max", math.inf))
