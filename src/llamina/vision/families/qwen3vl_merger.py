"""Qwen3-VL: as Qwen2-VL, with learned positions too, and rows of early layers for the text model's (DeepStack)."""

from llamina.ops import Value, activate, concat, flat, linear, norm, pick, rope
from llamina.vision.encoder import Encoder, Part
from llamina.vision.picture import Picture
from llamina.vision.resize import fit, whole_size
from llamina.vision.rotation import grid_rope

ROWS = (8, 4096)  # of a picture, at the least and at the most


class Family(Encoder):
    merge = 2
    grid_positions = True
    resized = "corners"

    def setup(self) -> None:
        self.rope, self.periods = grid_rope(self.config.head_dim, neox=True)

    def parts(self, picture: Picture) -> list[Part]:
        step = self.patch * self.merge
        size = whole_size((picture.width, picture.height), step, *(n * step * step for n in ROWS))
        return ["<|vision_start|>", fit(picture.pixels, size, "bicubic"), "<|vision_end|>"]

    def forward(self, tokens: Value, positions: Value, rows: Value) -> Value:
        x, deep = self.embed(tokens, rows), []
        for layer in range(self.layers):
            x = self.block(x, self.v.part(f"blk.{layer}"), layer)
            if "norm" in (w := self.v.part(f"deepstack.{layer}")):
                h = norm(flat(pick(x, self.merge**2)), w.norm, self.config.eps, "layer")
                deep.append(linear(activate(linear(h, w.fc1), "gelu"), w.fc2))
        found = self.project(pick(self.norm(x, self.v.post_ln), self.merge**2))
        for other in deep:
            found = concat(found, other)
        return found

    def patch_product(self, pixels: Value) -> Value:
        """Two frames of a film are convolved together; a picture is both of them."""
        x = linear(pixels, self.patch_matrix("patch_embd"))
        return x + linear(pixels, self.patch_matrix("patch_embd.weight.1"))

    def rotate(self, x: Value) -> Value:
        return rope(x, self.rope, self.periods)

    def project(self, x: Value) -> Value:
        return linear(activate(linear(flat(x), getattr(self.mm, "0")), "gelu"), getattr(self.mm, "2"))
