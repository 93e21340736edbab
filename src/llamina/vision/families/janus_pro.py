"""Janus Pro: SigLIP's ViT over one square, and an MLP."""

from llamina.ops import Value, activate, linear
from llamina.vision.encoder import Encoder, Part
from llamina.vision.picture import Picture
from llamina.vision.resize import fit

GREY = (127, 127, 127)


class Family(Encoder):
    def parts(self, picture: Picture) -> list[Part]:
        return [fit(picture.pixels, (self.side, self.side), "bicubic", GREY)]

    def project(self, x: Value) -> Value:
        return linear(activate(linear(x, getattr(self.mm, "0")), self.activation), getattr(self.mm, "1"))
