"""Idefics 3, SmolVLM: SigLIP's ViT over a grid of tiles and an overview behind them, neighbouring patches merged."""

from llamina.ops import Value, flat, linear
from llamina.vision.encoder import Encoder, Part
from llamina.vision.picture import Picture, Pixels
from llamina.vision.resize import fit, stretch
from llamina.vision.tiles import cut

AROUND = "<fake_token_around_image>"


class Family(Encoder):
    def setup(self) -> None:
        self.longest = self.config.count("preproc_image_size", 0, least=0)

    def parts(self, picture: Picture) -> list[Part]:
        refined, overview = self.refined(picture) if self.longest else self.simply_refined(picture)
        parts: list[Part] = []
        for y, row in enumerate(cut(refined, self.side), 1):
            for x, tile in enumerate(row, 1):
                parts += [f"{AROUND}<row_{y}_col_{x}>", tile]
            parts.append("\n")
        return [*parts[:-1], f"\n\n{AROUND}<global-img>", overview, AROUND]

    def refined(self, picture: Picture) -> tuple[Pixels, Pixels]:
        """As large as the longest side says, then stretched to whole tiles; and the overview, which is made of that."""
        ratio, side = picture.width / picture.height, self.side
        if ratio >= 1:
            size = (self.longest, _even(self.longest / ratio))
        else:
            size = (_even(self.longest * ratio), self.longest)
        whole = (-(-size[0] // side) * side, -(-size[1] // side) * side)
        refined = stretch(stretch(picture.pixels, size, "lanczos"), whole, "lanczos")
        return refined, stretch(refined, (side, side), "lanczos")

    def simply_refined(self, picture: Picture) -> tuple[Pixels, Pixels]:
        """The nearest size in whole tiles: files of old converters do not say how long a side should be."""
        side = self.side
        width, height = (max(1, (2 * n + side) // (2 * side)) * side for n in (picture.width, picture.height))
        return fit(picture.pixels, (width, height), "bicubic"), stretch(picture.pixels, (side, side), "bicubic")

    def project(self, x: Value) -> Value:
        return linear(flat(x), getattr(self.mm, "model.fc"))


def _even(n: float) -> int:
    return max(2, int(n) + int(n) % 2)
