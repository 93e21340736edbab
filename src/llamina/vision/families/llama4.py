"""Llama 4: a ViT with learned and rotated positions over a grid of tiles, an overview behind them.

As in llama.cpp, rows of a tile go down its columns.
"""

from dataclasses import replace

import numpy as np

from llamina.ops import Value, activate, flat, linear, rope
from llamina.vision.encoder import Encoder, Part, Patches
from llamina.vision.picture import Picture, Pixels
from llamina.vision.resize import fit, stretch
from llamina.vision.rotation import COLUMN, ROW, grid_rope
from llamina.vision.tiles import best_resolution, cut

MOST = 3  # tiles of a side


class Family(Encoder):
    def setup(self) -> None:
        self.rope, self.periods = grid_rope(self.config.head_dim, axes=(COLUMN, ROW))
        sides = range(1, MOST + 1)
        self.grids = [(a * self.side, b * self.side) for a in sides for b in sides if a * b > 1]

    def parts(self, picture: Picture) -> list[Part]:
        overview = stretch(picture.pixels, (self.side, self.side), "bicubic")
        tiles: list[Part] = []
        if max(picture.width, picture.height) > self.side:
            size = best_resolution((picture.width, picture.height), self.grids)
            tiles += [tile for row in cut(fit(picture.pixels, size, "bicubic"), self.side) for tile in row]
        return ["<|image_start|>", *tiles, overview, "<|image_end|>"]

    def patches(self, tile: Pixels) -> Patches:
        """Places are counted from 1; that of the class token is 0."""
        found = super().patches(tile)
        places = found.places + 1
        places[-1] = 0
        outputs = np.array(found.outputs).reshape(found.grid[1], found.grid[0]).T
        return replace(found, places=places, outputs=outputs.reshape(-1).tolist())

    def rotate(self, x: Value) -> Value:
        return rope(x, self.rope, self.periods)

    def project(self, x: Value) -> Value:
        mlp = self.mm.part("model.mlp")
        for name in ("1", "2"):
            x = activate(linear(flat(x), getattr(mlp, name)), "gelu")
        return linear(x, getattr(self.mm, "model.fc"))
