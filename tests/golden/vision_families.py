"""Tiny picture encoders of each family: their tensors, drawn at random, and what their metadata says beside it."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
WIDTH, FFN, HEADS, LAYERS, PATCH, SIDE, TEXT = 32, 48, 4, 3, 14, 56, 64
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

    def half(self, name: str, *shape: int) -> None:
        """A matrix in half precision, as llama.cpp wants those of depthwise convolutions."""
        self.matrix(name, *shape)
        self.tensors[name] = self.tensors[name].astype(np.float16)

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

    def patches(self, name: str = "v.patch_embd.weight", bias: bool = False, side: int = PATCH) -> None:
        self.matrix(name, WIDTH, 3, side, side)
        if bias:
            self.matrix("v.patch_embd.bias", WIDTH)


def fuse(draws: Draws) -> None:
    """One matrix for q, k and v."""
    for layer in range(LAYERS):
        for kind in ("weight", "bias"):
            parts = [draws.tensors.pop(f"v.blk.{layer}.attn_{name}.{kind}") for name in "qkv"]
            draws.tensors[f"v.blk.{layer}.attn_qkv.{kind}"] = np.concatenate(parts)


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
    return "qwen2vl_merger", {}


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
    fuse(draws)
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


def yi_vl(draws: Draws) -> tuple[str, dict[str, Any]]:
    draws.blocks()
    draws.matrix("v.class_embd", WIDTH)
    draws.patches()
    draws.matrix("v.position_embd.weight", PATCHES + 1, WIDTH)
    draws.norm("v.pre_ln", WIDTH)
    draws.linear("mm.0", draws.text, WIDTH)
    draws.norm("mm.1", draws.text)
    draws.linear("mm.3", draws.text, draws.text)
    draws.norm("mm.4", draws.text)
    return "mlp", {}


MOBILE = {"patch_size": 4, "image_size": 96}  # 24 x 24 patches, which llama.cpp takes for granted


def mobile(draws: Draws, layers: tuple[int, int]) -> None:
    """CLIP's ViT, and an MLP with layers of these names."""
    draws.blocks(2)
    draws.matrix("v.class_embd", WIDTH)
    draws.patches(side=4)
    draws.matrix("v.position_embd.weight", 24 * 24 + 1, WIDTH)
    draws.norm("v.pre_ln", WIDTH)
    draws.linear(f"mm.model.mlp.{layers[0]}", draws.text, WIDTH)
    draws.linear(f"mm.model.mlp.{layers[1]}", draws.text, draws.text)


def ldp(draws: Draws) -> tuple[str, dict[str, Any]]:
    mobile(draws, (1, 3))
    for block in (1, 2):
        name = f"mm.model.mb_block.{block}.block"
        draws.half(f"{name}.0.0.weight", draws.text, 1, 3, 3)
        draws.norm(f"{name}.0.1", draws.text)
        draws.linear(f"{name}.1.fc1", draws.text // 4, draws.text)
        draws.linear(f"{name}.1.fc2", draws.text, draws.text // 4)
        draws.matrix(f"{name}.2.0.weight", draws.text, draws.text)
        draws.norm(f"{name}.2.1", draws.text)
    return "ldp", MOBILE | {"block_count": 2}


def ldpv2(draws: Draws) -> tuple[str, dict[str, Any]]:
    mobile(draws, (0, 2))
    draws.half("mm.model.peg.0.weight", draws.text, 1, 3, 3)
    draws.matrix("mm.model.peg.0.bias", draws.text)
    return "ldpv2", MOBILE | {"block_count": 2}


def minicpmv(draws: Draws) -> tuple[str, dict[str, Any]]:
    """The width of the text model must be in whole heads of 128."""
    draws.blocks()
    draws.patches(bias=True)
    draws.matrix("v.position_embd.weight", 70 * 70, WIDTH)
    draws.norm("v.post_ln", WIDTH)
    draws.matrix("resampler.query", 8, draws.text)
    draws.matrix("resampler.pos_embed_k", 4, draws.text)
    draws.matrix("resampler.kv.weight", draws.text, WIDTH)
    draws.matrix("resampler.proj.weight", draws.text, draws.text)
    for name in ("q", "k", "v", "out"):
        draws.linear(f"resampler.attn.{name}", draws.text, draws.text)
    for name in ("q", "kv", "post"):
        draws.norm(f"resampler.ln_{name}", draws.text)
    return "resampler", {"clip.minicpmv_version": 3, "clip.minicpmv_query_num": 8}


def lfm2(draws: Draws) -> tuple[str, dict[str, Any]]:
    draws.blocks()
    draws.patches(bias=True, side=16)
    draws.matrix("v.position_embd.weight", 16, WIDTH)
    draws.norm("v.post_ln", WIDTH)
    draws.norm("mm.input_norm", 4 * WIDTH)
    draws.linear("mm.1", 2 * WIDTH, 4 * WIDTH)
    draws.linear("mm.2", draws.text, 2 * WIDTH)
    return "lfm2", {"projector.scale_factor": 2, "patch_size": 16, "image_size": 64}


def gemma4v(draws: Draws) -> tuple[str, dict[str, Any]]:
    draws.blocks(gated=True)
    for layer in range(LAYERS):
        for name, n in (("attn_q_norm", 8), ("attn_k_norm", 8), ("attn_post_norm", WIDTH), ("ffn_post_norm", WIDTH)):
            draws.near_one(f"v.blk.{layer}.{name}.weight", n)
        for name in ("attn_q", "attn_k", "attn_v", "attn_out", "ffn_up", "ffn_down", "ffn_gate"):
            del draws.tensors[f"v.blk.{layer}.{name}.bias"]
    for name, limit in (("input_max", 1.1), ("input_min", -1.2), ("output_max", 0.9), ("output_min", -0.8)):
        for matrix in ("v.blk.0.attn_q", "v.blk.1.ffn_down"):
            draws.tensors[f"{matrix}.{name}"] = np.array([limit], np.float32)
    draws.patches()
    draws.matrix("v.position_embd.weight", 2, 64, WIDTH)
    draws.matrix("v.std_bias", WIDTH)
    draws.near_one("v.std_scale", WIDTH)
    draws.matrix("mm.input_projection.weight", draws.text, WIDTH)
    return "gemma4v", {}


def cogvlm(draws: Draws) -> tuple[str, dict[str, Any]]:
    draws.blocks()
    fuse(draws)
    draws.matrix("v.class_embd", WIDTH)
    draws.patches(bias=True)
    draws.matrix("v.position_embd.weight", PATCHES + 1, WIDTH)
    draws.matrix("mm.model.fc.weight", draws.text, WIDTH)
    draws.norm("mm.post_fc_norm", draws.text)
    draws.matrix("mm.up.weight", 2 * WIDTH, draws.text)
    draws.matrix("mm.gate.weight", 2 * WIDTH, draws.text)
    draws.matrix("mm.down.weight", draws.text, 2 * WIDTH)
    draws.matrix("v.boi", draws.text)
    draws.matrix("v.eoi", draws.text)
    return "cogvlm", {}


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
    "yi_vl": yi_vl,
    "ldp": ldp,
    "ldpv2": ldpv2,
    "minicpmv": minicpmv,
    "lfm2": lfm2,
    "gemma4v": gemma4v,
    "cogvlm": cogvlm,
}
