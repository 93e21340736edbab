"""LLaVA 1.5 and 1.6, BakLLaVA, Yi-VL: CLIP's ViT without its last layer, and an MLP, which Yi-VL norms.

1.6 has a grid of tiles beside it all; its file says which grids there may be (`image_grid_pinpoints`).

As in llama.cpp, the class token stands behind the patches, rows are those from the second patch to it, and the picture
as a whole comes after its tiles. Files that `llamina convert` has made say that rows are those of all patches.
"""

from llamina.errors import UnsupportedModel
from llamina.ops import Value, activate, linear
from llamina.vision.encoder import Encoder, Part
from llamina.vision.picture import Picture
from llamina.vision.resize import CLIP_GREY, fit, stretch
from llamina.vision.tiles import best_resolution, cut


class Family(Encoder):
    def setup(self) -> None:
        if self.config.get("feature_layer") is not None:
            raise UnsupportedModel("clip.vision.feature_layer is given: rows of several layers are not known here")
        self.layers = self.config.layers - 1
        self.first_output = int("class_embd" in self.v and not self.class_first)
        own = self.metadata.get("llava16.image_grid_pinpoints", ())
        sides = [int(n) for n in self.config.get("image_grid_pinpoints", own)]
        self.grids = list(zip(sides[::2], sides[1::2], strict=False))
        if len(sides) % 2 or any(n < 1 or n % self.side for n in sides):
            raise UnsupportedModel(f"image_grid_pinpoints is {sides}: pairs of multiples of {self.side} are expected")
        if (tile := self.metadata.get("llava16.tile_size", self.side)) != self.side:
            raise UnsupportedModel(f"llava16.tile_size is {tile}: the encoder sees squares of {self.side}")
        if (most := self.metadata.get("llava16.max_tiles")) is not None:
            self.grids = [(x, y) for x, y in self.grids if x * y // self.side**2 < most]  # the overview is one more
            if sides and not self.grids:
                raise UnsupportedModel(f"llava16.max_tiles is {most}: no grid of image_grid_pinpoints has so few")

    def parts(self, picture: Picture) -> list[Part]:
        pixels, size = picture.pixels, (self.side, self.side)
        if not self.grids:
            return [fit(pixels, size, "bicubic", CLIP_GREY)]
        overview = stretch(pixels, size, "bicubic")
        if max(picture.width, picture.height) <= self.side:
            return [overview]
        refined = fit(pixels, best_resolution((picture.width, picture.height), self.grids), "bicubic")
        return [*(tile for row in cut(refined, self.side) for tile in row), overview]

    def project(self, x: Value) -> Value:
        x, last, normed = linear(x, getattr(self.mm, "0")), self.mm.get("2"), self.mm.get("3")
        if normed:
            x = activate(self.norm(x, getattr(self.mm, "1")), "gelu")
            return self.norm(linear(x, normed), getattr(self.mm, "4"))
        x = activate(x, "gelu")
        return linear(x, last) if last else x
