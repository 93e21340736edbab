"""Gemma 3: SigLIP's ViT over one square, the mean of neighbouring patches, normed and projected."""

from llamina.ops import Value, constant, linear, norm
from llamina.quant import decode
from llamina.vision.encoder import Encoder, Part, mean
from llamina.vision.picture import Picture
from llamina.vision.resize import fit


class Family(Encoder):
    merge = 4
    both_ways = True

    def setup(self) -> None:
        w = self.mm.input_projection  # the file has it as rows of inputs
        matrix = decode(w.data, w.format, w.shape).T
        self.projection = constant("mm.input_projection", matrix)

    def parts(self, picture: Picture) -> list[Part]:
        return ["<start_of_image>", fit(picture.pixels, (self.side, self.side), "bilinear"), "<end_of_image>"]

    def project(self, x: Value) -> Value:
        return linear(norm(mean(x), self.mm.soft_emb_norm, self.config.eps), self.projection)
