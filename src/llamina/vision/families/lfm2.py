"""LFM2-VL: SigLIP 2's ViT over a picture of any size, or over a grid of tiles and an overview behind them."""

import numpy as np

from llamina.ops import Value, activate, flat, linear, norm
from llamina.vision.encoder import Encoder, Part
from llamina.vision.picture import Picture
from llamina.vision.resize import Size, fit, stretch, whole_size
from llamina.vision.tiles import cut

ROWS = (64, 256)  # of a picture, at the least and at the most
TILE = 512  # pixels of a side
TILES = (2, 10)
TOLERANCE = 2  # so many times the most pixels are still one picture
EPS = 1e-5  # of the projection's norm


class Family(Encoder):
    resized = "antialiased"

    def setup(self) -> None:
        counts = range(TILES[0], TILES[1] + 1)
        sides = {(a, b): n for n in counts for a in range(1, n + 1) for b in range(1, n + 1) if a * b in counts}
        self.grids = sorted(sides, key=lambda grid: grid[0] * grid[1])

    def parts(self, picture: Picture) -> list[Part]:
        step, size = self.patch * self.merge, (picture.width, picture.height)
        least, most = (n * step * step for n in ROWS)
        overview = stretch(picture.pixels, whole_size(size, step, least, most), "bilinear")
        around = [max(self.patch, round(n / step) * step) for n in size]
        if around[0] * around[1] <= TOLERANCE * most:
            return ["<|image_start|>", overview, "<|image_end|>"]
        columns, lines = self.grid(size)
        refined = fit(picture.pixels, (columns * TILE, lines * TILE), "bilinear")
        parts: list[Part] = ["<|image_start|>"]
        for y, row in enumerate(cut(refined, TILE), 1):
            for x, tile in enumerate(row, 1):
                parts += [f"<|img_row_{y}_col_{x}|>", tile]
        return [*parts, "<|img_thumbnail|>", overview, "<|image_end|>"]

    def grid(self, size: Size) -> Size:
        """Columns and rows of tiles with the nearest proportions; of equal ones the largest that is half filled."""
        ratio, best, least = np.float32(size[0]) / np.float32(size[1]), (1, 1), np.float32(np.inf)
        for columns, lines in self.grids:
            off = abs(ratio - np.float32(columns) / np.float32(lines))
            filled = size[0] * size[1] > TILE * TILE * columns * lines / 2
            if off < least or (off == least and filled):
                best, least = (columns, lines), off
        return best

    def project(self, x: Value) -> Value:
        x, normed = flat(x), self.mm.get("input_norm")
        x = norm(x, normed, EPS, "layer") if normed else x
        return linear(activate(linear(x, getattr(self.mm, "1")), "gelu"), getattr(self.mm, "2"))
