"""Picture encoders of Hugging Face folders as mmproj files: names, edits and metadata per projector."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from llamina.convert import edits
from llamina.convert.edits import Edit
from llamina.convert.families import Family, assumed
from llamina.convert.keys import Keys
from llamina.convert.lazy import Lazy
from llamina.convert.rename import targets
from llamina.convert.safetensors import read_json
from llamina.convert.settings import Settings
from llamina.errors import ModelFileError, UnsupportedModel

ARCHITECTURE = "clip"
TOWER = re.compile(r"^(model\.)?(vision_tower|vision_model|visual)\.(vision_model\.)?")
PROJECTOR = re.compile(r"^(model\.)?(multi_modal_projector|connector)\.")
DEEP = re.compile(r"^v\.deepstack_merger_list\.(\d+)\.")
UNUSED = re.compile(r"(position_ids|inv_freq)$")
BREAK = "[IMG_BREAK]"
# transformers' defaults for what config.json leaves out.
_CLIP_DEFAULTS = {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
_SIGLIP_DEFAULTS = {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6, "intermediate_size": 3072}
_IDEFICS_DEFAULTS = {**_SIGLIP_DEFAULTS, "hidden_size": 1152, "num_attention_heads": 16}
_PIXTRAL_DEFAULTS = {"hidden_act": "gelu", "layer_norm_eps": 1e-5}
_QWEN_DEFAULTS = {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-6, "image_size": 560}
_QWEN3_DEFAULTS = {**_QWEN_DEFAULTS, "hidden_act": "gelu_pytorch_tanh"}


def _blocks(prefix: str, names: Mapping[str, str]) -> dict[str, str]:
    return {f"v.{prefix}.*.{t}": " ".join(f"v.blk.*.{name}" for name in o.split()) for t, o in names.items()}


_QUERIES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v"}
_NORMS = {"layer_norm1": "ln1", "layer_norm2": "ln2", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
VIT = {
    "v.embeddings.class_embedding": "v.class_embd",
    "v.embeddings.patch_embedding": "v.patch_embd",
    "v.embeddings.position_embedding": "v.position_embd",
    "v.pre_layrnorm": "v.pre_ln",
    "v.post_layernorm": "v.post_ln",
} | _blocks(
    "encoder.layers",
    {f"self_attn.{name}": ours for name, ours in _QUERIES.items()} | {"self_attn.out_proj": "attn_out"} | _NORMS,
)
PIXTRAL = {"v.patch_conv": "v.patch_embd", "v.ln_pre": "v.pre_ln"} | _blocks(
    "transformer.layers",
    {f"attention.{name}": ours for name, ours in _QUERIES.items()}
    | {
        "attention.o_proj": "attn_out",
        "attention_norm": "ln1",
        "ffn_norm": "ln2",
        "feed_forward.gate_proj": "ffn_gate",
        "feed_forward.up_proj": "ffn_up",
        "feed_forward.down_proj": "ffn_down",
    },
)
QWEN = {
    "v.patch_embed.proj.weight": "v.patch_embd.weight v.patch_embd.weight.1",
    "v.merger.ln_q": "v.post_ln",
    "v.merger.mlp.*": "mm.*",
} | _blocks(
    "blocks",
    {
        "norm1": "ln1",
        "norm2": "ln2",
        "attn.qkv": "attn_q attn_k attn_v",
        "attn.proj": "attn_out",
        "mlp.fc1": "ffn_up",
        "mlp.fc2": "ffn_down",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    },
)

QWEN3 = {
    "v.patch_embed.proj.weight": "v.patch_embd.weight v.patch_embd.weight.1",
    "v.patch_embed.proj": "v.patch_embd",
    "v.pos_embed": "v.position_embd",
    "v.merger.norm": "v.post_ln",
    "v.merger.linear_fc1": "mm.0",
    "v.merger.linear_fc2": "mm.2",
    "v.deepstack.*.norm": "v.deepstack.*.norm",
    "v.deepstack.*.linear_fc1": "v.deepstack.*.fc1",
    "v.deepstack.*.linear_fc2": "v.deepstack.*.fc2",
} | _blocks(
    "blocks",
    {
        "norm1": "ln1",
        "norm2": "ln2",
        "attn.qkv": "attn_q attn_k attn_v",
        "attn.proj": "attn_out",
        "mlp.linear_fc1": "ffn_up",
        "mlp.linear_fc2": "ffn_down",
    },
)


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


@dataclass(frozen=True, slots=True)
class Source:
    """What a folder says of its encoder."""

    config: Mapping[str, Any]
    vision: Settings
    text: Settings
    processor: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> "Source":
        """Raises ModelNotFound, ModelFileError, or UnsupportedModel for a model that has no encoder."""
        text, config = Settings.read(folder), read_json(folder / "config.json")
        vision = config.get("vision_config")
        if not isinstance(vision, dict):
            raise UnsupportedModel("config.json has no vision_config: the model has no encoder of pictures")
        processor: dict[str, Any] = {}
        for name in ("preprocessor_config.json", "processor_config.json"):
            if (folder / name).is_file():
                found = read_json(folder / name)
                processor |= found | (
                    found["image_processor"] if isinstance(found.get("image_processor"), dict) else {}
                )
        return cls(config, Settings(vision), text.assuming(assumed(text)), processor)

    def assuming(self, defaults: Mapping[str, Any]) -> "Source":
        """The same, with defaults for what the encoder's settings leave out."""
        return replace(self, vision=self.vision.assuming(defaults))

    def colours(self, name: str) -> list[float]:
        """Three numbers of the processor's settings. Raises ModelFileError if there are none."""
        value = self.processor.get(name)
        if not isinstance(value, list) or len(value) != 3:
            raise ModelFileError(f"{name} is {value!r} in preprocessor_config.json: it must be three numbers")
        return [float(x) for x in value]


@dataclass(frozen=True, slots=True)
class Encoder:
    """A kind of encoder: its projector in GGUF, its tensors, and metadata beside what all have."""

    projector: str
    family: Family
    keys: Callable[[Source], Keys]
    ignored: re.Pattern[str] | None = None


def _encoder(projector: str, names: Mapping[str, str], keys: Callable[[Source], Keys], **more: Any) -> Encoder:
    ignored = more.pop("ignored", None)
    return Encoder(projector, Family(ARCHITECTURE, names, parts=_PARTS, **more), keys, ignored)


def _llava(source: Source) -> Keys:
    """Rows of the layer before the last, without the class token's. Raises UnsupportedModel for other choices."""
    layer, strategy = (source.config.get(f"vision_feature_{name}") for name in ("layer", "select_strategy"))
    classed = source.vision.get("model_type") != "siglip_vision_model"
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
    whole = source.vision.get("fullatt_block_indexes")
    merge = source.vision.count("spatial_merge_size", 2)
    if whole is None:
        return {"spatial_merge_size": merge}
    period = whole[0] + 1
    if [*whole] != list(range(period - 1, period * len(whole), period)):
        raise UnsupportedModel(f"config.json: fullatt_block_indexes is {whole}: every so many layers are expected")
    return {"spatial_merge_size": merge, "n_wa_pattern": period}


def _qwen3(source: Source) -> Keys:
    """As many pixels as there are learned positions for, and the layers whose rows the text model gets (DeepStack)."""
    side = math.isqrt(source.vision.count("num_position_embeddings")) * source.vision.count("patch_size")
    deep = source.vision.get("deepstack_visual_indexes", [])
    layers = [layer in deep for layer in range(source.vision.count("depth"))]
    return {
        "image_size": side,
        "spatial_merge_size": source.vision.count("spatial_merge_size", 2),
        "is_deepstack_layers": layers,
    }


def _gemma3(source: Source) -> Keys:
    side = source.vision.count("image_size") // source.vision.count("patch_size")
    rows = int(source.text.count("mm_tokens_per_image", 256) ** 0.5)
    return {"projector.scale_factor": side // rows}


def _idefics3(source: Source) -> Keys:
    size = source.processor.get("size")
    longest = size.get("longest_edge") if isinstance(size, dict) else None
    factor = source.text.count("scale_factor", 2)
    return {"projector.scale_factor": factor, "preproc_image_size": longest or source.vision.count("image_size")}


_MLP = VIT | {"mm.linear_1": "mm.0", "mm.linear_2": "mm.2", "image_newline": "v.image_newline"}
_AFTER = re.compile(r"v\.(post_layernorm|head)\.")  # what is behind the layer before the last
_LLAVA = _encoder("mlp", _MLP, _llava, ignored=_AFTER, defaults=_CLIP_DEFAULTS)
_LLAVA_SIGLIP = _encoder("mlp", _MLP, _llava, ignored=_AFTER, defaults=_SIGLIP_DEFAULTS)
_PIXTRAL = _encoder(
    "pixtral",
    PIXTRAL
    | {"mm.linear_1": "mm.1", "mm.linear_2": "mm.2", "mm.norm": "mm.input_norm"}
    | {"mm.patch_merger.merging_layer": "mm.patch_merger"},
    _pixtral,
    edits=_INTERLEAVED,
    defaults=_PIXTRAL_DEFAULTS,
)
_IDEFICS3 = _encoder(
    "idefics3", VIT | {"mm.modality_projection.proj": "mm.model.fc"}, _idefics3, defaults=_IDEFICS_DEFAULTS
)
ENCODERS = {
    "LlavaForConditionalGeneration": _LLAVA,
    "LlavaNextForConditionalGeneration": _LLAVA,
    "Mistral3ForConditionalGeneration": _PIXTRAL,
    "Qwen2VLForConditionalGeneration": _encoder("qwen2vl_merger", QWEN, _qwen, defaults=_QWEN_DEFAULTS),
    "Qwen2_5_VLForConditionalGeneration": _encoder(
        "qwen2.5vl_merger", QWEN, _qwen, defaults={**_QWEN_DEFAULTS, "hidden_act": "silu"}
    ),
    "Qwen3VLForConditionalGeneration": _encoder("qwen3vl_merger", QWEN3, _qwen3, defaults=_QWEN3_DEFAULTS),
    "Gemma3ForConditionalGeneration": _encoder(
        "gemma3",
        VIT
        | {"mm.mm_input_projection_weight": "mm.input_projection.weight", "mm.mm_soft_emb_norm": "mm.soft_emb_norm"},
        _gemma3,
        edits={"mm.soft_emb_norm": edits.plus_one},
        defaults=_SIGLIP_DEFAULTS,
        ignored=re.compile(r"v\.head\."),
    ),
    "Idefics3ForConditionalGeneration": _IDEFICS3,
    "SmolVLMForConditionalGeneration": _IDEFICS3,
}


def encoder_of(source: Source) -> Encoder:
    """The kind of a folder's encoder. Raises UnsupportedModel for one that is not known here."""
    found = next((ENCODERS[name] for name in source.text.classes if name in ENCODERS), None)
    if found is None:
        given, known = ", ".join(source.text.classes), ", ".join(ENCODERS)
        raise UnsupportedModel(f"config.json names {given}, whose pictures are not known here: {known} are")
    towers = {"pixtral": _PIXTRAL, "siglip_vision_model": _LLAVA_SIGLIP}
    return towers.get(source.vision.get("model_type"), found) if found is _LLAVA else found


def encoder_tensors(encoder: Encoder, source: Source, folder: Path, stored: Mapping[str, Lazy]) -> dict[str, Lazy]:
    """The tensors of the mmproj file by name. Raises UnsupportedModel for one without a name in it."""
    found: dict[str, Lazy] = {}
    for theirs, tensor in stored.items():
        short = PROJECTOR.sub("mm.", TOWER.sub("v.", theirs)).removeprefix("model.")
        if match := DEEP.match(short):
            short = f"v.deepstack.{_deep_layer(source, int(match[1]))}.{short[match.end() :]}"
        ours = short.startswith(("v.", "mm.")) or short in encoder.family.names
        if not ours or UNUSED.search(short) or (encoder.ignored and encoder.ignored.match(short)):
            continue
        for name, _, edited in targets(encoder.family, source.vision, short, tensor):
            found[name] = edited
    if encoder is _PIXTRAL:
        found["v.token_embd.img_break"] = _line_break(folder, stored)
    if "v.patch_embd.weight" not in found:
        raise ModelFileError("the folder has no tensors of an encoder of pictures: fetch the rest of its weights")
    return dict(sorted(found.items()))


def _deep_layer(source: Source, number: int) -> int:
    """The layer that a merger is of. Raises ModelFileError if the settings do not say."""
    layers = source.vision.get("deepstack_visual_indexes", [])
    if number >= len(layers):
        raise ModelFileError(f"config.json: deepstack_visual_indexes is {layers}: there is a merger {number}")
    return int(layers[number])


def _line_break(folder: Path, stored: Mapping[str, Lazy]) -> Lazy:
    """The text model's embedding of the token between a picture's rows. Raises ModelFileError if there is none."""
    path = folder / "tokenizer.json"
    added = read_json(path).get("added_tokens", []) if path.is_file() else []
    token = next((entry["id"] for entry in added if entry.get("content") == BREAK), None)
    table = next((tensor for name, tensor in stored.items() if name.endswith("embed_tokens.weight")), None)
    if token is None or table is None or not 0 <= token < table.shape[0]:
        raise ModelFileError(f"{path} and the embeddings have no token {BREAK}: fetch the rest of the folder")
    return table.map(lambda x: x[token], table.shape[1:])


def encoder_metadata(encoder: Encoder, source: Source) -> dict[str, object]:
    """Keys of the mmproj file. Raises ModelFileError, or UnsupportedModel for an activation that GGUF does not know."""
    vision = source.vision
    width = vision.count("embed_dim hidden_size")
    ffn = vision.get("intermediate_size", int(width * vision.number("mlp_ratio", 4.0)))
    keys: Keys = {
        "image_size": vision.count("image_size"),
        "patch_size": vision.count("patch_size"),
        "embedding_length": width,
        "feed_forward_length": ffn,
        "block_count": vision.count("num_hidden_layers depth"),
        "attention.head_count": vision.count("num_attention_heads num_heads"),
        "attention.layer_norm_epsilon": vision.number("layer_norm_eps"),
        "projection_dim": source.text.width,
        "image_mean": source.colours("image_mean"),
        "image_std": source.colours("image_std"),
        **encoder.keys(source),
    }
    return {
        "clip.has_vision_encoder": True,
        "clip.projector_type": encoder.projector,
        **_activation(str(vision.get("hidden_act"))),
        **{f"clip.vision.{key}": value for key, value in keys.items() if value is not None},
    }


def _activation(name: str) -> dict[str, object]:
    if name == "quick_gelu":
        return {}
    if name in ("gelu", "gelu_pytorch_tanh"):
        return {"clip.use_gelu": True}
    if name == "silu":
        return {"clip.use_silu": True}
    raise UnsupportedModel(f"config.json: the encoder's hidden_act is {name!r}: quick_gelu, gelu and silu are known")
