"""Gemma 3: SigLIP's ViT over one square, the mean of neighbouring patches, normed and projected."""

from llamina.ops import Value, constant, flat, linear, norm, scale, split
from llamina.quant import decode
from llamina.vision.encoder import Encoder, Part
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
        if self.merge > 1:
            patches = split(flat(x), *[x.shape[1]] * x.shape[0])
            x = patches[0]
            for other in patches[1:]:
                x = x + other
            x = scale(x, 1 / len(patches))
        return linear(norm(x, self.mm.soft_emb_norm, self.config.eps), self.projection)
