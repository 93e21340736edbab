"""InternVL 2 to 3.5: InternViT over a grid of tiles and an overview behind them, and an MLP over merged patches.

As in llama.cpp, the class token stands behind the patches and has the last of the learned positions.
"""

from llamina.errors import UnsupportedModel
from llamina.ops import Value, activate, flat, linear, norm
from llamina.vision.encoder import Encoder, Part
from llamina.vision.picture import Picture
from llamina.vision.resize import fit, stretch
from llamina.vision.tiles import best_resolution, cut

EPS = 1e-5  # of the MLP's norm
MOST = 256  # tiles


class Family(Encoder):
    def setup(self) -> None:
        if (self.config.width, self.config.layers) == (3200, 45):  # the ViT of 6 billion
            self.norm_kind = "rms"
        least, most = self.config.count("preproc_min_tiles", 1), self.config.count("preproc_max_tiles", 12)
        if most > MOST:
            raise UnsupportedModel(f"clip.vision.preproc_max_tiles is {most}: at most {MOST} are known here")
        sides = range(least, most + 1)
        grids = [(a, b) for a in sides for b in sides if least <= a * b <= most]
        self.grids = [(a * self.side, b * self.side) for a, b in grids]

    def parts(self, picture: Picture) -> list[Part]:
        overview = stretch(picture.pixels, (self.side, self.side), "bicubic")
        tiles: list[Part] = []
        if max(picture.width, picture.height) > self.side:
            size = best_resolution((picture.width, picture.height), self.grids)
            tiles += [tile for row in cut(fit(picture.pixels, size, "bicubic"), self.side) for tile in row]
        return ["<img>", *tiles, overview, "</img>"]

    def project(self, x: Value) -> Value:
        mlp = self.mm.part("model.mlp")
        x = norm(flat(x), getattr(mlp, "0"), EPS, "layer")
        return linear(activate(linear(x, getattr(mlp, "1")), "gelu"), getattr(mlp, "3"))
