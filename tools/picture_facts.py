"""Compute what llama.cpp's libmtmd makes of the tests' pictures, and add it to a file of golden facts.

    python tools/picture_facts.py tests/golden/vision_more.npz FAMILY [FAMILY ...]

The families are those of tests/golden/vision_models.py. libmtmd is the one in xllamacpp.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import seeing_models
from golden import arch_models, vision_models
from golden_facts import GOLDEN, SPECS
from llama_vision import rows_of


def main() -> None:
    out, *families = sys.argv[1:]
    facts = dict(np.load(out)) if Path(out).exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        plain, wide, encoder = (Path(folder) / name for name in ("plain.gguf", "wide.gguf", "mmproj.gguf"))
        arch_models.write(SPECS["llama-dense"], plain)
        seeing_models.write_talking(plain, wide)
        for family in families:
            width = vision_models.WIDTHS.get(family, vision_models.TEXT)
            seeing_models.write_encoder(family, encoder, width)
            text = GOLDEN / "stories260K.gguf" if width == vision_models.TEXT else wide
            for k, pixels in enumerate(vision_models.pictures_for(family)):
                for j, rows in enumerate(rows_of(text, encoder, pixels, width)):
                    facts[f"{family}.{k}.{j}"] = rows
                    print(family, pixels.shape, rows.shape, "mean", float(np.abs(rows).mean()))
    np.savez_compressed(out, **facts)


if __name__ == "__main__":
    main()
