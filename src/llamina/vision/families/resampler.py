"""MiniCPM-V: SigLIP's ViT over an overview and a grid of tiles; learned queries attend to the patches of each.

The queries are rows behind the patches. Patches attend to each other alone, in every layer.
"""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from llamina.errors import UnsupportedModel
from llamina.ops import Attention, Value, attend, embed, flat, heads, linear, norm, pick, split
from llamina.quant import decode
from llamina.vision.encoder import Encoder, Part, Patches
from llamina.vision.picture import Picture, Pixels
from llamina.vision.resize import Size, fit, stretch

BUCKETS = 70  # learned positions of a side
HEAD = 128  # of the queries' attention
BASE = 10000.0
MOST = 9  # tiles
FIRST, LATER = ("<slice>", "<image>", "</image>", "</slice>"), ("", "<slice>", "</slice>", "")  # around tiles
VERSIONS = {0: FIRST, 2: FIRST, 3: LATER, 4: LATER, 5: LATER, 6: LATER, 100045: LATER}  # 2.5, 2.6 and so on


class Family(Encoder):
    def setup(self) -> None:
        w = self.resampler.query
        self.queries = decode(w.data, w.format, w.shape)
        if w.shape[1] % HEAD:
            raise UnsupportedModel(f"resampler.query is {list(w.shape)}: its width must be a multiple of {HEAD}")
        self.attention = replace(self.attention, bounded=True)
        version = self.metadata.get("clip.minicpmv_version", 0)
        if version not in VERSIONS:
            raise UnsupportedModel(f"clip.minicpmv_version is {version!r}: {', '.join(map(str, VERSIONS))} are known")
        self.texts = VERSIONS[version]

    @property
    def places(self) -> int:
        return BUCKETS**2

    def parts(self, picture: Picture) -> list[Part]:
        side, size = self.side, (picture.width, picture.height)
        if max(size) <= side:
            return ["<image>", stretch(picture.pixels, (side, side), "bicubic"), "</image>"]
        columns, lines = best_grid(size, side)
        overview = stretch(picture.pixels, self.near(size, enlarged=False), "bicubic")
        each = [max(round_half_up(n / m) * m, m) // m for n, m in zip(size, (columns, lines), strict=True)]
        width, height = self.near((each[0], each[1]), enlarged=True)
        refined = fit(picture.pixels, (columns * width, lines * height), "bicubic")
        start, before, behind, end = self.texts
        parts: list[Part] = ["<image>", overview, "</image>" + start]
        for y in range(0, refined.shape[0], height):
            for x in range(0, refined.shape[1], width):
                parts += [before, refined[y : y + height, x : x + width], behind]
            parts.append("\n")
        return [*parts[:-1], *([end] if end else [])]

    def near(self, size: Size, enlarged: bool) -> Size:
        """About as many pixels as a square of the encoder's side has, or fewer unless `enlarged`; in whole patches."""
        width, height = size
        if enlarged or width * height > self.side**2:
            ratio = np.float32(width) / np.float32(height)
            height = int(np.float32(self.side) / np.sqrt(ratio))
            width = int(np.float32(height) * ratio)
        patch = self.patch
        return max(round_half_up(width / patch) * patch, patch), max(round_half_up(height / patch) * patch, patch)

    def patches(self, tile: Pixels) -> Patches:
        """With places for the resampler beside each patch's pixels, and the queries behind them all."""
        found = super().patches(tile)
        n, m = len(found.tokens), len(self.queries)
        columns, lines = found.grid
        y, x = found.places.T
        buckets = BUCKETS * y // lines * BUCKETS + BUCKETS * x // columns
        pixels = np.pad(found.rows, ((0, m), (0, 0)))
        return replace(
            found,
            rows=np.concatenate([pixels, np.concatenate([self.waves(x, y), self.queries])], 1),
            tokens=[*buckets.tolist(), *[0] * m],
            places=np.pad(found.places, ((0, m), (0, 0))),
            outputs=list(range(n, n + m)),
            grid=(m, 1),
            windows=np.repeat(np.array([[0], [n - 1]], np.int32), n + m, axis=1),
        )

    def least_rows_of(self, tile: Pixels) -> int:
        return len(self.queries)

    def waves(self, x: npt.NDArray[np.int32], y: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        """Sines and cosines of columns, then of rows."""
        quarter = self.queries.shape[1] // 4
        pace = (1 / BASE ** (np.arange(quarter) / quarter)).astype(np.float32)
        across, down = (at[:, None].astype(np.float32) * pace for at in (x, y))
        return np.concatenate([np.sin(across), np.cos(across), np.sin(down), np.cos(down)], 1)

    @property
    def row_width(self) -> int:
        return 3 * self.patch**2 + int(self.queries.shape[1])

    def embed(self, tokens: Value, rows: Value) -> Value:
        assert self.table is not None
        return self.patch_product(rows) + embed(tokens, self.table)

    def forward(self, tokens: Value, positions: Value, rows: Value) -> Value:
        pixels, beside = split(rows, 3 * self.patch**2, self.queries.shape[1])
        x, r = self.hidden(tokens, pixels), self.resampler
        attn, n = r.part("attn"), self.queries.shape[1] // HEAD
        v = self.norm(linear(x, r.kv), r.ln_kv)
        q, k, v = linear(self.norm(beside, r.ln_q), attn.q), linear(v + beside, attn.k), linear(v, attn.v)
        params = Attention(HEAD**-0.5, causal=False, bounded=True)
        x = pick(flat(attend(heads(q, n), heads(k, n), heads(v, n), self.layers, params)))
        return self.project(linear(x, attn.out))

    def project(self, x: Value) -> Value:
        return linear(norm(x, self.resampler.ln_post, self.config.eps, "layer"), self.resampler.proj)


def best_grid(size: Size, side: int) -> Size:
    """Columns and rows of tiles: about as many as the picture's pixels need, in the nearest proportions."""
    ratio = np.float32(math.log(np.float32(size[0]) / np.float32(size[1])))
    wanted = min(math.ceil(np.float32(size[0] * size[1]) / np.float32(side * side)), MOST)
    best, least = (1, 1), math.inf
    for n in (wanted - 1, wanted, wanted + 1):
        for columns in range(1, n + 1):
            if n == 1 or n > MOST or n % columns:
                continue
            off = float(np.float32(abs(float(ratio) - math.log(columns * columns / n))))
            if off < least:
                best, least = (columns, n // columns), off
    return best


def round_half_up(x: float) -> int:
    return math.floor(x + 0.5)
