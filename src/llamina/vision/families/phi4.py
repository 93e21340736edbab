"""Phi-4 with vision: SigLIP 2's ViT over pictures of any size, and an MLP."""

from llamina.ops import Value, activate, linear
from llamina.vision.encoder import Encoder, Part
from llamina.vision.picture import Picture
from llamina.vision.resize import fit, whole_size


class Family(Encoder):
    resized = "antialiased"

    def setup(self) -> None:
        self.merge = 1
        self.pixels = self.config.count("image_min_pixels"), self.config.count("image_max_pixels")

    def parts(self, picture: Picture) -> list[Part]:
        return [fit(picture.pixels, whole_size((picture.width, picture.height), self.patch, *self.pixels), "bilinear")]

    def project(self, x: Value) -> Value:
        return linear(activate(linear(x, getattr(self.mm, "0")), "gelu"), getattr(self.mm, "2"))
