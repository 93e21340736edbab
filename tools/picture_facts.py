"""Compute what llama.cpp's libmtmd makes of the tests' pictures, and add it to a file of golden facts.

    python tools/picture_facts.py rows|tiles tests/golden/vision_more.npz FAMILY[.PICTURE] ...

`rows` are those that take the place of tokens, `tiles` what the encoder is shown, in units of 255. The families are
those of tests/golden/vision_families.py; a picture's number leaves out the others. libmtmd is the one in xllamacpp.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import seeing_models
from golden import arch_models, vision_models
from golden_facts import GOLDEN, SPECS
from llama_vision import finite, rows_of, tiles_of


def main() -> None:
    kind, out, *families = sys.argv[1:]
    facts = dict(np.load(out)) if Path(out).exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        plain, wide, encoder = (Path(folder) / name for name in ("plain.gguf", "wide.gguf", "mmproj.gguf"))
        for family, _, only in (name.partition(".") for name in families):
            width = vision_models.WIDTHS.get(family, vision_models.TEXT)
            seeing_models.write_encoder(family, encoder, width)
            deep = family == "qwen3vl"  # whose text model gets more than embeddings
            arch_models.write(SPECS["qwen3vl-dense" if deep else "llama-dense"], plain)
            seeing_models.write_talking(plain, wide)
            text = GOLDEN / "stories260K.gguf" if width == vision_models.TEXT else wide
            for k, pixels in enumerate(vision_models.pictures_for(family)):
                if only not in ("", str(k)):
                    continue
                take = partial(rows_of, text, encoder, pixels, 2 * width if deep else width)
                for j, rows in enumerate(finite(take) if kind == "rows" else []):
                    facts[f"{family}.{k}.{j}"] = rows
                    print(family, pixels.shape, rows.shape, "mean", float(np.abs(rows).mean()))
                for j, tile in enumerate(tiles_of(text, encoder, pixels) if kind == "tiles" else []):
                    facts[f"{family}.{k}.{j}"], facts[f"{family}.{k}.{j}.size"] = units(tile), np.array(tile.shape)
                    print(family, pixels.shape, tile.shape)
    np.savez_compressed(out, **facts)


def units(tile: Any) -> Any:
    """Every other pixel of every other line, from 0 to 255 again: what was resized has whole numbers."""
    return np.round(
        (tile[::2, ::2] * np.float32(vision_models.DEVIATION) + np.float32(vision_models.MEAN)) * 255
    ).astype(np.uint8)


if __name__ == "__main__":
    main()
