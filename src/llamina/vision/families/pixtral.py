"""Pixtral, Mistral Small 3.1 and later: pictures of any size, rotated in two dimensions, a break after each row."""

import numpy as np
import numpy.typing as npt

from llamina.ops import Value, activate, flat, linear, norm, rope
from llamina.quant import decode
from llamina.vision.encoder import Encoder, Part, channels_last
from llamina.vision.picture import Picture
from llamina.vision.resize import fit, whole_size
from llamina.vision.rotation import grid_rope

ROWS = (8, 1024)  # of a picture, at the least and at the most


class Family(Encoder):
    norm_kind = "rms"

    def setup(self) -> None:
        self.merge = self.config.count("spatial_merge_size", 1)
        self.rope, self.periods = grid_rope(self.config.head_dim, interleaved=True)
        merger, ending = self.mm.get("patch_merger"), self.v.get("token_embd.img_break")
        self.ending = decode(ending.data, ending.format, ending.shape) if ending else None
        self.merger = channels_last(merger, self.merge**2) if merger else None

    def parts(self, picture: Picture) -> list[Part]:
        step = self.patch * self.merge
        size = whole_size((picture.width, picture.height), step, *(n * step * step for n in ROWS))
        return [fit(picture.pixels, size, "bicubic"), "[IMG_END]"]

    def arrange(self, rows: npt.NDArray[np.float32], grid: tuple[int, int]) -> npt.NDArray[np.float32]:
        """With the embedding of a break between the picture's rows."""
        if self.ending is None:
            return rows
        lines = rows.reshape(grid[1], grid[0], -1)
        breaks = np.broadcast_to(self.ending.reshape(-1), (grid[1], 1, rows.shape[1]))
        return np.concatenate([lines, breaks], 1).reshape(-1, rows.shape[1])[:-1]

    def rotate(self, x: Value) -> Value:
        return rope(x, self.rope, self.periods)

    def project(self, x: Value) -> Value:
        if self.merger:
            x = linear(flat(norm(x, self.mm.input_norm, self.config.eps)), self.merger)
        return linear(activate(linear(x, getattr(self.mm, "1")), "gelu"), getattr(self.mm, "2"))
