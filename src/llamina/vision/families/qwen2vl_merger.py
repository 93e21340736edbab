"""Qwen2-VL and 2.5-VL: pictures of any size, rotated in two dimensions, four patches merged into one row.

2.5 has RMS norms, and layers in which patches attend to their window alone.
"""

from dataclasses import replace

import numpy as np

from llamina.errors import UnsupportedModel
from llamina.ops import Attention, Value, activate, flat, linear, rope
from llamina.vision.encoder import Encoder, Part, Patches
from llamina.vision.picture import Picture, Pixels
from llamina.vision.resize import fit, whole_size
from llamina.vision.rotation import grid_rope

ROWS = (8, 4096)  # of a picture, at the least and at the most
WINDOW = 112  # pixels of a side


class Family(Encoder):
    merge = 2
    grid_positions = True

    def setup(self) -> None:
        self.merge = self.config.count("spatial_merge_size", 2)
        if self.merge != 2:
            raise UnsupportedModel(f"clip.vision.spatial_merge_size is {self.merge}: 2 is known here")
        self.rope, self.periods = grid_rope(self.config.head_dim, neox=True)
        self.norm_kind = "layer" if self.projector == "qwen2vl_merger" else "rms"
        self.period = self.config.count("n_wa_pattern", 0, least=0)  # the last layer of so many attends to everything

    def parts(self, picture: Picture) -> list[Part]:
        step = self.patch * self.merge
        size = whole_size((picture.width, picture.height), step, *(n * step * step for n in ROWS))
        return ["<|vision_start|>", fit(picture.pixels, size, "bicubic"), "<|vision_end|>"]

    def patches(self, tile: Pixels) -> Patches:
        """Window by window, if there are any; what comes out is in order again."""
        found = super().patches(tile)
        return _windowed(found, WINDOW // (self.patch * self.merge), self.merge**2) if self.period else found

    def attention_of(self, layer: int) -> Attention:
        whole = not self.period or (layer + 1) % self.period == 0
        return self.attention if whole else replace(self.attention, bounded=True)

    def patch_product(self, pixels: Value) -> Value:
        """Two frames of a film are convolved together; a picture is both of them."""
        x = linear(pixels, self.patch_matrix("patch_embd"))
        return x + linear(pixels, self.patch_matrix("patch_embd.weight.1"))

    def rotate(self, x: Value) -> Value:
        return rope(x, self.rope, self.periods)

    def project(self, x: Value) -> Value:
        return linear(activate(linear(flat(x), getattr(self.mm, "0")), "gelu"), getattr(self.mm, "2"))


def _windowed(plain: Patches, side: int, group: int) -> Patches:
    """Groups of patches sorted by windows of `side` x `side` groups, with the bounds of each one's window."""
    columns, lines = plain.grid
    y, x = np.divmod(np.arange(columns * lines), columns)
    window = (y // side) * -(-columns // side) + x // side
    order = np.argsort(window, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    rows = (order[:, None] * group + np.arange(group)).reshape(-1)
    sizes = np.bincount(window) * group
    ends = np.cumsum(sizes)
    return replace(
        plain,
        rows=plain.rows[rows],
        tokens=[plain.tokens[row] for row in rows],
        places=plain.places[rows],
        outputs=(place * group).tolist(),
        windows=np.repeat(np.stack([ends - sizes, ends - 1]), sizes, axis=1).astype(np.int32),
    )
