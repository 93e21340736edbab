"""GLM-4.1V and 4.5V: pictures of any size, learned and rotated positions, patches merged by a convolution."""

from dataclasses import replace

from llamina.ops import Value, activate, flat, gated, linear, norm, rope, split
from llamina.vision.encoder import Encoder, Part, channels_last
from llamina.vision.picture import Picture
from llamina.vision.resize import fit, whole_size
from llamina.vision.rotation import grid_rope

ROWS = (8, 4096)  # of a picture, at the least and at the most
EPS = 1e-5  # of the projection's norm


class Family(Encoder):
    merge = 2
    norm_kind = "rms"
    grid_positions = True

    def setup(self) -> None:
        self.merge = self.config.count("spatial_merge_size", 2)
        self.resized = "bicubic" if "position_embd" in self.v else None
        self.rope, self.periods = grid_rope(self.config.head_dim, neox=True)
        self.merger = replace(channels_last(self.mm.patch_merger, self.merge**2), bias=self.mm.patch_merger.bias)

    def parts(self, picture: Picture) -> list[Part]:
        step = self.patch * self.merge
        size = whole_size((picture.width, picture.height), step, *(n * step * step for n in ROWS))
        return ["<|begin_of_image|>", fit(picture.pixels, size, "bicubic"), "<|end_of_image|>"]

    def embed(self, tokens: Value, rows: Value) -> Value:
        pixels, *learned = split(rows, 3 * self.patch**2, self.config.width) if self.resized else [rows]
        x = linear(pixels, self.patch_matrix("patch_embd")) + linear(pixels, self.patch_matrix("patch_embd.weight.1"))
        bias, normed = self.v.get("patch_embd.bias"), self.v.get("norm_embd")
        x = x + bias if bias else x
        x = self.norm(x, normed) if normed else x
        return x + learned[0] if learned else x

    def rotate(self, x: Value) -> Value:
        return rope(x, self.rope, self.periods)

    def project(self, x: Value) -> Value:
        mm = self.mm
        x = linear(linear(flat(x), self.merger), getattr(mm, "model.fc"))
        x = activate(norm(x, mm.post_norm, EPS, "layer"), "gelu_erf")
        return linear(gated(linear(x, mm.gate), linear(x, mm.up), self.activation), mm.down)
