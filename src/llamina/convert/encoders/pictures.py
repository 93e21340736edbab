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


_PARTS = {f"v.blk.*.attn_{name}": _third(i) for i, name in enumerate("qkv")}
_PARTS |= {"v.patch_embd.weight": _frame(0), "v.patch_embd.weight.1": _frame(1)}
_INTERLEAVED = {"v.blk.*.attn_q": edits.interleave_queries, "v.blk.*.attn_k": edits.interleave_queries}


def _llava(source: Source) -> Keys:
    """Rows of the layer before the last, without the class token's. Raises UnsupportedModel for other choices."""
    layer, strategy = (source.config.get(f"vision_feature_{name}") for name in ("layer", "select_strategy"))
    classed = source.own.get("model_type") != "siglip_vision_model"
    if layer not in (None, -2) or strategy not in (None, "default" if classed else "full"):
        raise UnsupportedModel(
            f"config.json: rows are those of layer {layer}, {strategy}: -2 and the default are known"
        )
    grids = source.config.get("image_grid_pinpoints") or []
    flat = [side for height, width in grids for side in (width, height)]
    return {"class_token_first": classed or None, "image_grid_pinpoints": flat or None}


def _pixtral(source: Source) -> Keys:
    """Rows of the last layer. Raises UnsupportedModel for those of another."""
    if (layer := source.config.get("vision_feature_layer")) not in (None, -1):
        raise UnsupportedModel(f"config.json: rows are those of layer {layer}: -1 is known")
    return {"spatial_merge_size": source.config.get("spatial_merge_size")}


def _qwen(source: Source) -> Keys:
    whole = source.own.get("fullatt_block_indexes")
    merge = source.own.count("spatial_merge_size", 2)
    if whole is None:
        return {"spatial_merge_size": merge}
    period = whole[0] + 1
    if [*whole] != list(range(period - 1, period * len(whole), period)):
        raise UnsupportedModel(f"config.json: fullatt_block_indexes is {whole}: every so many layers are expected")
    return {"spatial_merge_size": merge, "n_wa_pattern": period}


def _qwen3(source: Source) -> Keys:
    """As many pixels as there are learned positions for, and the layers whose rows the text model gets (DeepStack)."""
    side = math.isqrt(source.own.count("num_position_embeddings")) * source.own.count("patch_size")
    deep = source.own.get("deepstack_visual_indexes", [])
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


def _deep(source: Source, name: str) -> str:
    """A name with the layer that a merger is of. Raises ModelFileError if the settings do not say."""
    if (match := _DEEP.match(name)) is None:
        return name
    layers, number = source.own.get("deepstack_visual_indexes", []), int(match[1])
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
ENCODERS = {
    "LlavaForConditionalGeneration": LLAVA,
    "LlavaNextForConditionalGeneration": LLAVA,
    "Mistral3ForConditionalGeneration": _PIXTRAL,
    "Qwen2VLForConditionalGeneration": _encoder("qwen2vl_merger", names.QWEN, _qwen, defaults=_QWEN_DEFAULTS),
    "Qwen2_5_VLForConditionalGeneration": _encoder(
        "qwen2.5vl_merger", names.QWEN, _qwen, defaults={**_QWEN_DEFAULTS, "hidden_act": "silu"}
    ),
    "Qwen3VLForConditionalGeneration": _encoder(
        "qwen3vl_merger", names.QWEN3, _qwen3, defaults=_QWEN3_DEFAULTS, short=_deep
    ),
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
}


def tower(source: Source) -> Encoder:
    """The encoder of a LLaVA, which its settings name."""
    towers = {"pixtral": _PIXTRAL, "siglip_vision_model": _LLAVA_SIGLIP}
    return towers.get(source.own.get("model_type"), LLAVA)
