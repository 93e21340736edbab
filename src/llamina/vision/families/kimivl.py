"""Kimi-VL: MoonViT over pictures of any size, with learned and rotated positions, four patches merged into one row."""

from llamina.ops import Value, activate, flat, linear, norm, rope
from llamina.vision.encoder import Encoder, Part
from llamina.vision.picture import Picture
from llamina.vision.resize import fit, whole_size
from llamina.vision.rotation import COLUMN, ROW, grid_rope

ROWS = (8, 1024)  # of a picture, at the least and at the most
EPS = 1e-5  # of the projection's norm


class Family(Encoder):
    resized = "antialiased"

    def setup(self) -> None:
        self.rope, self.periods = grid_rope(self.config.head_dim, axes=(COLUMN, ROW))

    def parts(self, picture: Picture) -> list[Part]:
        step = self.patch * self.merge
        size = whole_size((picture.width, picture.height), step, *(n * step * step for n in ROWS))
        return ["<|media_start|>", fit(picture.pixels, size, "bicubic"), "<|media_end|>"]

    def rotate(self, x: Value) -> Value:
        return rope(x, self.rope, self.periods)

    def project(self, x: Value) -> Value:
        x = flat(norm(x, self.mm.input_norm, EPS, "layer"))
        return linear(activate(linear(x, getattr(self.mm, "1")), "gelu"), getattr(self.mm, "2"))
