"""Write tiny mmproj files, one per family of picture encoders, and make the pictures that they are shown.

    python tests/golden/vision_models.py FOLDER [FAMILY ...]

Weights and pictures come from generators with fixed seeds. vision.npz holds what llama.cpp's libmtmd makes of exactly
these pictures with exactly these files.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import gguf

Array = npt.NDArray[Any]
WIDTH, FFN, HEADS, LAYERS, PATCH, SIDE, TEXT = 32, 48, 4, 3, 14, 56, 64
SEED = 1
SIZES = ((97, 61), (40, 120), (300, 200))
METADATA = {
    "embedding_length": WIDTH,
    "feed_forward_length": FFN,
    "projection_dim": TEXT,
    "block_count": LAYERS,
    "patch_size": PATCH,
    "attention.head_count": HEADS,
    "image_size": SIDE,
}
PATCHES = (SIDE // PATCH) ** 2


class Draws:
    """Tensors in the order in which they are drawn."""

    def __init__(self, seed: int, text: int = TEXT) -> None:
        self._rng = np.random.default_rng(seed)
        self.text = text  # the text model's width
        self.tensors: dict[str, Array] = {}

    def plain(self, *shape: int) -> Array:
        return self._rng.standard_normal(shape).astype(np.float32)

    def matrix(self, name: str, *shape: int) -> None:
        scaled: Array = self._rng.standard_normal(shape) / np.sqrt(shape[-1])
        self.tensors[name] = scaled.astype(np.float32)

    def near_one(self, name: str, n: int) -> None:
        self.matrix(name, n)
        self.tensors[name] = 1 + 0.1 * self.tensors[name]

    def small(self, name: str, n: int) -> None:
        self.matrix(name, n)
        self.tensors[name] = 0.1 * self.tensors[name]

    def norm(self, name: str, n: int) -> None:
        self.near_one(f"{name}.weight", n)
        self.small(f"{name}.bias", n)

    def linear(self, name: str, n_out: int, n_in: int) -> None:
        self.matrix(f"{name}.weight", n_out, n_in)
        self.matrix(f"{name}.bias", n_out)

    def blocks(self, layers: int = LAYERS, gated: bool = False) -> None:
        """Those that are gated have RMS norms."""
        for layer in range(layers):
            block = f"v.blk.{layer}"
            for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
                self.linear(f"{block}.{name}", WIDTH, WIDTH)
            for name in ("ln1", "ln2"):
                if gated:
                    self.near_one(f"{block}.{name}.weight", WIDTH)
                else:
                    self.norm(f"{block}.{name}", WIDTH)
            self.linear(f"{block}.ffn_up", FFN, WIDTH)
            self.linear(f"{block}.ffn_down", WIDTH, FFN)
            if gated:
                self.linear(f"{block}.ffn_gate", FFN, WIDTH)

    def patches(self, name: str = "v.patch_embd.weight", bias: bool = False) -> None:
        self.matrix(name, WIDTH, 3, PATCH, PATCH)
        if bias:
            self.matrix("v.patch_embd.bias", WIDTH)


def llava(draws: Draws) -> tuple[str, dict[str, Any]]:
    draws.blocks()
    draws.matrix("v.class_embd", WIDTH)
    draws.patches()
    draws.matrix("v.position_embd.weight", PATCHES + 1, WIDTH)
    draws.norm("v.pre_ln", WIDTH)
    draws.norm("v.post_ln", WIDTH)
    draws.linear("mm.0", draws.text, WIDTH)
    draws.linear("mm.2", draws.text, draws.text)
    return "mlp", {}


def llava16(draws: Draws) -> tuple[str, dict[str, Any]]:
    kind, _ = llava(draws)
    draws.tensors["v.image_newline"] = draws.plain(draws.text)
    grids = [56, 112, 112, 56, 112, 112, 168, 56]
    return kind, {"image_grid_pinpoints": grids, "mm_patch_merge_type": "spatial_unpad"}


def qwen2vl(draws: Draws) -> tuple[str, dict[str, Any]]:
    draws.blocks()
    draws.patches()
    draws.patches("v.patch_embd.weight.1")
    draws.norm("v.post_ln", WIDTH)
    draws.linear("mm.0", 4 * WIDTH, 4 * WIDTH)
    draws.linear("mm.2", draws.text, 4 * WIDTH)
    return "qwen2vl_merger", {"image_min_pixels": 4 * 28 * 28, "image_max_pixels": 64 * 28 * 28}


def gemma3(draws: Draws) -> tuple[str, dict[str, Any]]:
    draws.blocks()
    draws.patches(bias=True)
    draws.matrix("v.position_embd.weight", PATCHES, WIDTH)
    draws.norm("v.post_ln", WIDTH)
    draws.matrix("mm.input_projection.weight", WIDTH, draws.text)
    draws.near_one("mm.soft_emb_norm.weight", WIDTH)
    return "gemma3", {"projector.scale_factor": 2}


def idefics3(draws: Draws) -> tuple[str, dict[str, Any]]:
    draws.blocks()
    draws.patches(bias=True)
    draws.matrix("v.position_embd.weight", PATCHES, WIDTH)
    draws.norm("v.post_ln", WIDTH)
    draws.matrix("mm.model.fc.weight", draws.text, 4 * WIDTH)
    return "idefics3", {"projector.scale_factor": 2, "preproc_image_size": 112}


def internvl(draws: Draws) -> tuple[str, dict[str, Any]]:
    draws.blocks()
    for layer in range(LAYERS):
        draws.near_one(f"v.blk.{layer}.ls1.weight", WIDTH)
        draws.near_one(f"v.blk.{layer}.ls2.weight", WIDTH)
    draws.matrix("v.class_embd", WIDTH)
    draws.patches(bias=True)
    draws.matrix("v.position_embd.weight", PATCHES + 1, WIDTH)
    draws.norm("mm.model.mlp.0", 4 * WIDTH)
    draws.linear("mm.model.mlp.1", draws.text, 4 * WIDTH)
    draws.linear("mm.model.mlp.3", draws.text, draws.text)
    return "internvl", {"projector.scale_factor": 2}


def qwen25vl(draws: Draws) -> tuple[str, dict[str, Any]]:
    draws.blocks(gated=True)
    draws.patches()
    draws.patches("v.patch_embd.weight.1")
    draws.near_one("v.post_ln.weight", WIDTH)
    draws.linear("mm.0", 4 * WIDTH, 4 * WIDTH)
    draws.linear("mm.2", draws.text, 4 * WIDTH)
    return "qwen2.5vl_merger", {"n_wa_pattern": 3, "use_silu": True}


def qwen3vl(draws: Draws) -> tuple[str, dict[str, Any]]:
    draws.blocks()
    for layer in range(LAYERS):
        for kind in ("weight", "bias"):
            parts = [draws.tensors.pop(f"v.blk.{layer}.attn_{name}.{kind}") for name in "qkv"]
            draws.tensors[f"v.blk.{layer}.attn_qkv.{kind}"] = np.concatenate(parts)
    draws.patches(bias=True)
    draws.patches("v.patch_embd.weight.1")
    draws.matrix("v.position_embd.weight", PATCHES, WIDTH)
    draws.norm("v.post_ln", WIDTH)
    draws.norm("v.deepstack.1.norm", 4 * WIDTH)
    draws.linear("v.deepstack.1.fc1", 4 * WIDTH, 4 * WIDTH)
    draws.linear("v.deepstack.1.fc2", draws.text, 4 * WIDTH)
    draws.linear("mm.0", 4 * WIDTH, 4 * WIDTH)
    draws.linear("mm.2", draws.text, 4 * WIDTH)
    return "qwen3vl_merger", {}


def pixtral(draws: Draws) -> tuple[str, dict[str, Any]]:
    draws.blocks(gated=True)
    draws.patches()
    draws.near_one("v.pre_ln.weight", WIDTH)
    draws.linear("mm.1", draws.text, WIDTH)
    draws.linear("mm.2", draws.text, draws.text)
    draws.matrix("v.token_embd.img_break", draws.text)
    return "pixtral", {"use_silu": True}


def mistral3(draws: Draws) -> tuple[str, dict[str, Any]]:
    kind, special = pixtral(draws)
    draws.matrix("mm.patch_merger.weight", WIDTH, 4 * WIDTH)
    draws.near_one("mm.input_norm.weight", WIDTH)
    return kind, special | {"spatial_merge_size": 2}


def llama4(draws: Draws) -> tuple[str, dict[str, Any]]:
    draws.blocks()
    draws.matrix("v.class_embd", WIDTH)
    draws.matrix("v.patch_embd.weight", WIDTH, 3 * PATCH * PATCH)
    draws.matrix("v.position_embd.weight", PATCHES + 1, WIDTH)
    draws.norm("v.pre_ln", WIDTH)
    draws.norm("v.post_ln", WIDTH)
    draws.matrix("mm.model.mlp.1.weight", 2 * WIDTH, 4 * WIDTH)
    draws.matrix("mm.model.mlp.2.weight", WIDTH, 2 * WIDTH)
    draws.matrix("mm.model.fc.weight", draws.text, WIDTH)
    return "llama4", {"projector.scale_factor": 2}


def janus_pro(draws: Draws) -> tuple[str, dict[str, Any]]:
    draws.blocks()
    draws.patches(bias=True)
    draws.matrix("v.position_embd.weight", PATCHES, WIDTH)
    draws.norm("v.post_ln", WIDTH)
    draws.linear("mm.0", draws.text, WIDTH)
    draws.linear("mm.1", draws.text, draws.text)
    return "janus_pro", {}


def kimivl(draws: Draws) -> tuple[str, dict[str, Any]]:
    draws.blocks()
    draws.patches(bias=True)
    draws.matrix("v.position_embd.weight", PATCHES, WIDTH)
    draws.norm("v.post_ln", WIDTH)
    draws.norm("mm.input_norm", WIDTH)
    draws.linear("mm.1", 4 * WIDTH, 4 * WIDTH)
    draws.linear("mm.2", draws.text, 4 * WIDTH)
    return "kimivl", {"projector.scale_factor": 2}


def phi4(draws: Draws) -> tuple[str, dict[str, Any]]:
    draws.blocks()
    draws.patches(bias=True)
    draws.matrix("v.position_embd.weight", PATCHES, WIDTH)
    draws.norm("v.post_ln", WIDTH)
    draws.linear("mm.0", draws.text, WIDTH)
    draws.linear("mm.2", draws.text, draws.text)
    return "phi4", {"image_min_pixels": 16 * PATCH**2, "image_max_pixels": 144 * PATCH**2}


def glm4v(draws: Draws) -> tuple[str, dict[str, Any]]:
    draws.blocks(gated=True)
    draws.patches(bias=True)
    draws.patches("v.patch_embd.weight.1")
    draws.matrix("v.position_embd.weight", PATCHES, WIDTH)
    draws.near_one("v.norm_embd.weight", WIDTH)
    draws.near_one("v.post_ln.weight", WIDTH)
    draws.matrix("mm.patch_merger.weight", draws.text, WIDTH, 2, 2)
    draws.matrix("mm.patch_merger.bias", draws.text)
    draws.matrix("mm.model.fc.weight", draws.text, draws.text)
    draws.norm("mm.post_norm", draws.text)
    draws.matrix("mm.up.weight", 2 * WIDTH, draws.text)
    draws.matrix("mm.gate.weight", 2 * WIDTH, draws.text)
    draws.matrix("mm.down.weight", draws.text, 2 * WIDTH)
    return "glm4v", {"use_silu": True}


FAMILIES = {
    "llava": llava,
    "llava16": llava16,
    "qwen2vl": qwen2vl,
    "gemma3": gemma3,
    "idefics3": idefics3,
    "internvl": internvl,
    "qwen25vl": qwen25vl,
    "qwen3vl": qwen3vl,
    "pixtral": pixtral,
    "mistral3": mistral3,
    "llama4": llama4,
    "janus_pro": janus_pro,
    "kimivl": kimivl,
    "phi4": phi4,
    "glm4v": glm4v,
}


def write(family: str, path: Path, text_width: int = TEXT, left_out: Sequence[str] = ()) -> None:
    """The mmproj file of a family, for a text model of that width; keys may be left out."""
    draws = Draws(SEED, text_width)
    kind, special = FAMILIES[family](draws)
    writer = gguf.GGUFWriter(str(path), "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", kind)
    writer.add_bool("clip.use_silu" if special.pop("use_silu", False) else "clip.use_gelu", True)
    for key, value in (METADATA | special | {"projection_dim": text_width}).items():
        if key in left_out:
            continue
        if isinstance(value, str):
            writer.add_string(f"clip.vision.{key}", value)
        elif isinstance(value, list):
            writer.add_array(f"clip.vision.{key}", value)
        else:
            writer.add_uint32(f"clip.vision.{key}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", [0.48, 0.46, 0.41])
    writer.add_array("clip.vision.image_std", [0.27, 0.26, 0.28])
    for name, values in draws.tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def pictures() -> Iterator[npt.NDArray[np.uint8]]:
    """A wide one, a tall one and a large one: waves with noise."""
    rng = np.random.default_rng(SEED + 1000)
    for width, height in SIZES:
        y, x = np.mgrid[0:height, 0:width]
        waves = np.stack([np.sin(x / 9 + k) + np.cos(y / (7 + k)) for k in range(3)], -1)
        yield np.clip(128 + 50 * waves + 8 * rng.standard_normal((height, width, 3)), 0, 255).astype(np.uint8)


def main() -> None:
    folder, *families = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for family in families or FAMILIES:
        write(family, Path(folder) / f"mmproj-{family}.gguf")


if __name__ == "__main__":
    main()
