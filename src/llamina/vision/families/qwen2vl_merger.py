"""Qwen2-VL: pictures of any size, positions rotated in two dimensions, four patches merged into one row."""

from llamina.errors import UnsupportedModel
from llamina.ops import Rope, Value, activate, constant, flat, linear, rope
from llamina.vision.encoder import Encoder, Part
from llamina.vision.picture import Picture
from llamina.vision.resize import fit, whole_size

ROWS = (8, 4096)  # of a picture, at the least and at the most


class Family(Encoder):
    merge = 2
    grid_positions = True

    def setup(self) -> None:
        self.merge = self.config.count("spatial_merge_size", 2)
        quarter = self.config.head_dim // 4
        if self.config.head_dim % 4 or self.merge != 2:
            raise UnsupportedModel(f"heads of {self.config.head_dim}, merged by {self.merge}, are not known here")
        periods = [10000.0 ** (i / quarter) for i in range(quarter)] * 2  # of y, then of x
        self.periods = constant("v.rope", periods)
        self.rope = Rope(4 * quarter, 1.0, neox=True, axes=(1,) * quarter + (2,) * quarter)

    def parts(self, picture: Picture) -> list[Part]:
        step = self.patch * self.merge
        size = whole_size((picture.width, picture.height), step, *(n * step * step for n in ROWS))
        return ["<|vision_start|>", fit(picture.pixels, size, "bicubic"), "<|vision_end|>"]

    def embed(self, tokens: Value, rows: Value) -> Value:
        """Two frames of a film are convolved together; a picture is both of them."""
        x = linear(rows, self.patch_matrix("patch_embd"))
        return x + linear(rows, self.patch_matrix("patch_embd.weight.1"))

    def rotate(self, x: Value) -> Value:
        return rope(x, self.rope, self.periods)

    def project(self, x: Value) -> Value:
        return linear(activate(linear(flat(x), getattr(self.mm, "0")), "gelu"), getattr(self.mm, "2"))
