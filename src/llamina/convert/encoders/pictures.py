"""Encoders of pictures: edits of their tensors, and metadata per projector."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from llamina.convert import edits
from llamina.convert.edits import Edit
from llamina.convert.encoders import names
from llamina.convert.encoders.source import Encoder, Source
from llamina.convert.families import Family
from llamina.convert.keys import Keys
from llamina.convert.lazy import Lazy
from llamina.convert.safetensors import read_json
from llamina.convert.settings import Settings
from llamina.errors import ModelFileError, UnsupportedModel

BREAK = "[IMG_BREAK]"
_DEEP = re.compile(r"^v\.deepstack_merger_list\.(\d+)\.")
# transformers' defaults for what config.json leaves out.
_CLIP_DEFAULTS = {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
_SIGLIP_DEFAULTS = {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6, "intermediate_size": 3072}
_IDEFICS_DEFAULTS = {**_SIGLIP_DEFAULTS, "hidden_size": 1152, "num_attention_heads": 16}
_PIXTRAL_DEFAULTS = {"hidden_act": "gelu", "layer_norm_eps": 1e-5}
_QWEN_DEFAULTS = {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-6, "image_size": 560}
_QWEN3_DEFAULTS = {**_QWEN_DEFAULTS, "hidden_act": "gelu_pytorch_tanh"}
_INTERN_DEFAULTS = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
    "image_size": 448,
    "patch_size": 14,
}
_SIGLIP2_DEFAULTS = {
    **_SIGLIP_DEFAULTS,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "patch_size": 16,
    "image_size": 256,
}
_JANUS_DEFAULTS = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 384,
    "patch_size": 16,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
}
_LLAMA4_DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 5632,
    "num_hidden_layers": 34,
    "num_attention_heads": 16,
    "image_size": 448,
    "patch_size": 14,
    "hidden_act": "gelu",
    "norm_eps": 1e-5,
}
_GLM_DEFAULTS = {
    "hidden_size": 1536,
    "intermediate_size": 13696,
    "depth": 24,
    "num_heads": 12,
    "image_size": 336,
    "patch_size": 14,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
}


def _third(index: int) -> Edit:
    """One of q, k and v, which are stored as one matrix."""

    def edit(tensor: Lazy, settings: Settings) -> Lazy:
        n = tensor.shape[0] // 3
        return tensor.map(lambda x: x[index * n : (index + 1) * n], (n, *tensor.shape[1:]))

    return edit


def _frame(index: int) -> Edit:
    """What a convolution of two frames of a film does with one of them. Raises UnsupportedModel for another number."""

    def edit(tensor: Lazy, settings: Settings) -> Lazy:
        if len(tensor.shape) != 5 or tensor.shape[2] != 2:
            raise UnsupportedModel(f"patches are convolved by {list(tensor.shape)}: two frames are expected")
        return tensor.map(lambda x: np.ascontiguousarray(x[:, :, index]), tensor.shape[:2] + tensor.shape[3:])

    return edit


def _class_last(tensor: Lazy, settings: Settings) -> Lazy:
    """Learned positions with the class token's behind those of patches, where llama.cpp has the token."""
    shape = tensor.shape[-2:]
    return tensor.map(lambda x: np.roll(x.reshape(shape), -1, axis=0), shape)


def _convolution(tensor: Lazy, settings: Settings) -> Lazy:
    """A convolution of a matrix over the pixels of a patch, whose colours stand side by side. Raises ModelFileError."""
    side, rows = settings.count("patch_size"), tensor.shape[0]
    if tensor.shape != (rows, 3 * side * side):
        raise ModelFileError(
            f"patches of {side} x {side} are multiplied by {list(tensor.shape)}: fetch config.json again"
        )
    return tensor.map(lambda x: x.reshape(rows, side, side, 3).transpose(0, 3, 1, 2), (rows, 3, side, side))


_PARTS = {f"v.blk.*.attn_{name}": _third(i) for i, name in enumerate("qkv")}
_PARTS |= {"v.patch_embd.weight": _frame(0), "v.patch_embd.weight.1": _frame(1)}
_CLASSED = {"v.class_embd": edits.flat, "v.position_embd.weight": _class_last}
_INTERLEAVED = {"v.blk.*.attn_q": edits.interleave_queries, "v.blk.*.attn_k": edits.interleave_queries}


def _llava(source: Source) -> Keys:
    """Rows of the layer before the last, without the class token's. Raises UnsupportedModel for other choices."""
    layer, strategy = (source.config.get(f"vision_feature_{name}") for name in ("layer", "select_strategy"))
    classed = source.own.get("model_type") != "siglip_vision_model"
    if layer not in (None, -2) or strategy not in (None, "default" if classed else "full"):
        raise UnsupportedModel(
            f"config.json: rows are those of layer {layer}, {strategy}: -2 and the default are known"
        )
    return {"class_token_first": classed or None, "image_grid_pinpoints": _grids(source) or None}


def _grids(source: Source) -> list[int]:
    """Widths and heights in turns. Raises ModelFileError for what are no heights and widths."""
    grids = source.config.get("image_grid_pinpoints") or []
    if not isinstance(grids, list) or any(not isinstance(grid, list) or len(grid) != 2 for grid in grids):
        raise ModelFileError(f"config.json: image_grid_pinpoints is {grids!r}: must be pairs of heights and widths")
    sides = [side for height, width in grids for side in (width, height)]
    return Settings({"image_grid_pinpoints": sides}).counts("image_grid_pinpoints")


def _pixtral(source: Source) -> Keys:
    """Rows of the last layer. Raises UnsupportedModel for those of another."""
    if (layer := source.config.get("vision_feature_layer")) not in (None, -1):
        raise UnsupportedModel(f"config.json: rows are those of layer {layer}: -1 is known")
    return {"spatial_merge_size": source.config.get("spatial_merge_size")}


def _qwen(source: Source) -> Keys:
    whole = source.own.counts("fullatt_block_indexes")
    merge = source.own.count("spatial_merge_size", 2)
    if not whole:
        return {"spatial_merge_size": merge}
    period = whole[0] + 1
    if whole != list(range(period - 1, period * len(whole), period)):
        raise UnsupportedModel(f"config.json: fullatt_block_indexes is {whole}: every so many layers are expected")
    return {"spatial_merge_size": merge, "n_wa_pattern": period}


def _qwen3(source: Source) -> Keys:
    """As many pixels as there are learned positions for, and the layers whose rows the text model gets (DeepStack)."""
    side = math.isqrt(source.own.count("num_position_embeddings")) * source.own.count("patch_size")
    deep = source.own.counts("deepstack_visual_indexes")
    layers = [layer in deep for layer in range(source.own.count("depth"))]
    return {
        "image_size": side,
        "spatial_merge_size": source.own.count("spatial_merge_size", 2),
        "is_deepstack_layers": layers,
    }


def _gemma3(source: Source) -> Keys:
    side = source.own.count("image_size") // source.own.count("patch_size")
    rows = int(source.text.count("mm_tokens_per_image", 256) ** 0.5)
    return {"projector.scale_factor": side // rows}


def _idefics3(source: Source) -> Keys:
    size = source.processor.get("size")
    longest = size.get("longest_edge") if isinstance(size, dict) else None
    factor = source.text.count("scale_factor", 2)
    return {"projector.scale_factor": factor, "preproc_image_size": longest or source.own.count("image_size")}


def _internvl(source: Source) -> Keys:
    """Rows of the last layer. Raises UnsupportedModel for settings that GGUF cannot express."""
    own, rms = source.own, (source.own.count("hidden_size"), source.own.count("num_hidden_layers")) == (3200, 45)
    source.expect(vision_feature_layer=-1, vision_feature_select_strategy="default", projector_hidden_act="gelu")
    source.expect(select_layer=-1, ps_version="v2", norm_type="rms_norm" if rms else "layer_norm")
    if not rms and own.get("use_qk_norm qk_normalization", False):
        raise UnsupportedModel("config.json: queries are normed: InternVL in GGUF has that with 45 layers of 3200 only")
    ratio, tiles = source.text.number("downsample_ratio", 0.5), Settings({**source.config, **source.processor})
    if not 0 < ratio <= 1:
        raise ModelFileError(f"config.json: downsample_ratio is {ratio}: must be above 0 and at most 1")
    return {
        "projector.scale_factor": round(1 / ratio),
        "preproc_min_tiles": tiles.count("min_patches min_dynamic_patch", 1),
        "preproc_max_tiles": tiles.count("max_patches max_dynamic_patch", 12),
    }


def _llama4(source: Source) -> Keys:
    source.expect(hidden_act="gelu", rope_theta=10000, vision_feature_select_strategy="default")
    ratio = source.own.number("pixel_shuffle_ratio", 0.5)
    if not 0 < ratio <= 1:
        raise ModelFileError(f"config.json: pixel_shuffle_ratio is {ratio}: must be above 0 and at most 1")
    return {"projector.scale_factor": round(1 / ratio)}


def _lfm2(source: Source) -> Keys:
    source.expect(vision_feature_layer=-1, projector_hidden_act="gelu")
    side = math.isqrt(source.own.count("num_patches", 256)) * source.own.count("patch_size")
    return {"image_size": side, "projector.scale_factor": source.text.count("downsample_factor", 2)}


def _janus(source: Source) -> Keys:
    source.expect(use_qk_norm=False, depth=2)
    return {}


def _second(source: Source, name: str) -> str:
    """Janus's MLP has a list of layers behind its first, of which there is one."""
    return name.replace("mm.hidden_layers.0.", "mm.second.")


def _glm4v(source: Source) -> Keys:
    return {"spatial_merge_size": source.own.count("spatial_merge_size", 2)}


def _deep(source: Source, name: str) -> str:
    """A name with the layer that a merger is of. Raises ModelFileError if the settings do not say."""
    if (match := _DEEP.match(name)) is None:
        return name
    layers, number = source.own.counts("deepstack_visual_indexes"), int(match[1])
    if number >= len(layers):
        raise ModelFileError(f"config.json: deepstack_visual_indexes is {layers}: there is a merger {number}")
    return f"v.deepstack.{layers[number]}.{name[match.end() :]}"


def _line_break(source: Source, stored: Mapping[str, Lazy]) -> Iterator[tuple[str, Lazy]]:
    """The text model's embedding of the token between a picture's rows. Raises ModelFileError if there is none."""
    path = source.folder / "tokenizer.json"
    added = read_json(path).get("added_tokens", []) if path.is_file() else []
    token = next((entry["id"] for entry in added if entry.get("content") == BREAK), None)
    table = next((tensor for name, tensor in stored.items() if name.endswith("embed_tokens.weight")), None)
    if token is None or table is None or not 0 <= token < table.shape[0]:
        raise ModelFileError(f"{path} and the embeddings have no token {BREAK}: fetch the rest of the folder")
    yield "v.token_embd.img_break", table.map(lambda x: x[token], table.shape[1:])


def _encoder(projector: str, table: Mapping[str, str], keys: Callable[[Source], Keys], **more: Any) -> Encoder:
    own = {key: more.pop(key) for key in ("ignored", "short", "more") if key in more}
    return Encoder("vision", projector, Family("clip", table, parts=_PARTS, **more), keys, **own)


_AFTER = re.compile(r"v\.(post_layernorm|head)\.")  # what is behind the layer before the last
_HEAD = re.compile(r"v\.head\.")
LLAVA = _encoder("mlp", names.LLAVA, _llava, ignored=_AFTER, defaults=_CLIP_DEFAULTS)
_LLAVA_SIGLIP = _encoder("mlp", names.LLAVA, _llava, ignored=_AFTER, defaults=_SIGLIP_DEFAULTS)
_PIXTRAL = _encoder(
    "pixtral", names.PIXTRAL, _pixtral, edits=_INTERLEAVED, defaults=_PIXTRAL_DEFAULTS, more=_line_break
)
_IDEFICS3 = _encoder("idefics3", names.IDEFICS, _idefics3, defaults=_IDEFICS_DEFAULTS)
_QWEN3VL = _encoder("qwen3vl_merger", names.QWEN3, _qwen3, defaults=_QWEN3_DEFAULTS, short=_deep)
_INTERNVL = _encoder("internvl", names.INTERN, _internvl, edits=_CLASSED, defaults=_INTERN_DEFAULTS)
ENCODERS = {
    "LlavaForConditionalGeneration": LLAVA,
    "LlavaNextForConditionalGeneration": LLAVA,
    "Mistral3ForConditionalGeneration": _PIXTRAL,
    "Qwen2VLForConditionalGeneration": _encoder("qwen2vl_merger", names.QWEN, _qwen, defaults=_QWEN_DEFAULTS),
    "Qwen2_5_VLForConditionalGeneration": _encoder(
        "qwen2.5vl_merger", names.QWEN, _qwen, defaults={**_QWEN_DEFAULTS, "hidden_act": "silu"}
    ),
    "Qwen3VLForConditionalGeneration": _QWEN3VL,
    "Qwen3VLMoeForConditionalGeneration": _QWEN3VL,
    "Gemma3ForConditionalGeneration": _encoder(
        "gemma3",
        names.GEMMA,
        _gemma3,
        edits={"mm.soft_emb_norm": edits.plus_one},
        defaults=_SIGLIP_DEFAULTS,
        ignored=_HEAD,
    ),
    "Idefics3ForConditionalGeneration": _IDEFICS3,
    "SmolVLMForConditionalGeneration": _IDEFICS3,
    "InternVLForConditionalGeneration": _INTERNVL,
    "InternVLChatModel": _encoder("internvl", names.INTERN_CHAT, _internvl, edits=_CLASSED, defaults=_INTERN_DEFAULTS),
    "Lfm2VlForConditionalGeneration": _encoder(
        "lfm2",
        names.LFM2,
        _lfm2,
        edits={"v.patch_embd.weight": _convolution},
        defaults=_SIGLIP2_DEFAULTS,
        ignored=_HEAD,
    ),
    "Llama4ForConditionalGeneration": _encoder("llama4", names.LLAMA4, _llama4, defaults=_LLAMA4_DEFAULTS),
    "JanusForConditionalGeneration": _encoder(
        "janus_pro", names.JANUS, _janus, defaults=_JANUS_DEFAULTS, short=_second
    ),
    "Glm4vForConditionalGeneration": _encoder("glm4v", names.GLM, _glm4v, defaults=_GLM_DEFAULTS),
}


OMNI = _encoder("qwen2.5o", names.OMNI, _qwen, defaults={**_QWEN_DEFAULTS, "hidden_act": "silu"})


def tower(source: Source) -> Encoder:
    """The encoder of a LLaVA, which its settings name."""
    towers = {"pixtral": _PIXTRAL, "siglip_vision_model": _LLAVA_SIGLIP}
    return towers.get(str(source.said("vision").get("model_type")), LLAVA)
