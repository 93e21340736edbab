"""Write tiny mmproj files, one per family of picture encoders, and make the pictures that they are shown.

    cd tests && python -m golden.vision_models FOLDER [FAMILY ...]

Weights and pictures come from generators with fixed seeds. vision.npz holds what llama.cpp's libmtmd makes of exactly
these pictures with exactly these files.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

import gguf
from golden.vision_families import FAMILIES, FFN, HEADS, LAYERS, PATCH, SIDE, TEXT, WIDTH, Draws

SEED = 1
SIZES = ((97, 61), (40, 120), (300, 200))
SMALL = (40, 30)  # less than a tile: it is not cut
LARGER = {"lfm2": (1100, 600)}  # a picture for those that cut only what is large
WIDTHS = {"qwen3vl": 256, "minicpmv": 256}  # of text models, where the smallest will not do
MEAN, DEVIATION = [0.48, 0.46, 0.41], [0.27, 0.26, 0.28]
METADATA = {
    "embedding_length": WIDTH,
    "feed_forward_length": FFN,
    "projection_dim": TEXT,
    "block_count": LAYERS,
    "patch_size": PATCH,
    "attention.head_count": HEADS,
    "image_size": SIDE,
}


def write(family: str, path: Path, text_width: int = TEXT) -> None:
    """The mmproj file of a family, for a text model of that width."""
    draws = Draws(SEED, text_width)
    kind, special = FAMILIES[family](draws)
    writer = gguf.GGUFWriter(str(path), "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", kind)
    writer.add_bool("clip.use_silu" if special.pop("use_silu", False) else "clip.use_gelu", True)
    for key, value in (METADATA | special | {"projection_dim": text_width}).items():
        name = key if key.startswith("clip.") else f"clip.vision.{key}"
        if isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, list):
            writer.add_array(name, value)
        elif key == "clip.minicpmv_version":
            writer.add_int32(name, value)
        else:
            writer.add_uint32(name, value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", MEAN)
    writer.add_array("clip.vision.image_std", DEVIATION)
    for name, values in draws.tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def pictures(*more: tuple[int, int]) -> Iterator[npt.NDArray[np.uint8]]:
    """A wide one, a tall one and a large one, and more of these sizes: waves with noise."""
    rng = np.random.default_rng(SEED + 1000)
    for width, height in (*SIZES, *more):
        y, x = np.mgrid[0:height, 0:width]
        waves = np.stack([np.sin(x / 9 + k) + np.cos(y / (7 + k)) for k in range(3)], -1)
        yield np.clip(128 + 50 * waves + 8 * rng.standard_normal((height, width, 3)), 0, 255).astype(np.uint8)


def pictures_for(family: str) -> Iterator[npt.NDArray[np.uint8]]:
    """Those that the golden facts of a family are about."""
    return pictures(*([LARGER[family]] if family in LARGER else []), SMALL)


def main() -> None:
    folder, *families = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for family in families or FAMILIES:
        write(family, Path(folder) / f"mmproj-{family}.gguf")


if __name__ == "__main__":
    main()
