"""The tensors and the metadata of an mmproj file."""

import re
from collections.abc import Mapping

from llamina.convert.encoders.source import Encoder, Source
from llamina.convert.keys import Keys
from llamina.convert.lazy import Lazy
from llamina.convert.rename import targets
from llamina.errors import ModelFileError, UnsupportedModel

ARCHITECTURE = "clip"
_PREFIXES = {
    "v.": re.compile(r"^(thinker\.)?(model\.)?(vision_tower|vision_model|visual)\.(vision_model\.)?"),
    "a.": re.compile(r"^(thinker\.)?(model\.)?audio_tower\."),
    "mm.": re.compile(r"^(model\.)?(multi_modal_projector|connector|aligner|mlp1)\."),
}
_OWN = {"vision": ("v.", "mm."), "audio": ("a.", "mm.")}
_UNUSED = re.compile(r"(position_ids|inv_freq)$")
_FIRST = {"vision": "v.patch_embd.weight", "audio": "a.conv1d.1.weight"}  # without which there is no encoder
_MEDIA = {"vision": "pictures", "audio": "sounds"}


def encoder_tensors(encoder: Encoder, source: Source, stored: Mapping[str, Lazy]) -> dict[str, Lazy]:
    """The tensors of an encoder by name. Raises UnsupportedModel for one without a name in it."""
    found: dict[str, Lazy] = {}
    for theirs, tensor in stored.items():
        name = encoder.short(source, _short(theirs))
        ours = name.startswith(_OWN[encoder.kind]) or name in encoder.family.names
        if not ours or _UNUSED.search(name) or (encoder.ignored and encoder.ignored.match(name)):
            continue
        for target, _, edited in targets(encoder.family, source.own, name, tensor):
            found[target] = edited
    found |= encoder.more(source, stored)
    if _FIRST[encoder.kind] not in found:
        media = _MEDIA[encoder.kind]
        raise ModelFileError(f"the folder has no tensors of an encoder of {media}: fetch the rest of its weights")
    return dict(sorted(found.items()))


def _short(name: str) -> str:
    for prefix, theirs in _PREFIXES.items():
        name = theirs.sub(prefix, name)
    return name.removeprefix("model.")


def encoder_metadata(encoder: Encoder, source: Source) -> dict[str, object]:
    """Keys of an encoder. Raises ModelFileError, or UnsupportedModel for an activation that GGUF does not know."""
    own, sees = source.own, encoder.kind == "vision"
    width = own.count("embed_dim hidden_size d_model")
    keys: Keys = {
        "embedding_length": width,
        "feed_forward_length": own.count(
            "intermediate_size encoder_ffn_dim", int(width * own.number("mlp_ratio", 4.0))
        ),
        "block_count": own.count("num_hidden_layers depth encoder_layers"),
        "attention.head_count": own.count("num_attention_heads num_heads encoder_attention_heads"),
        "attention.layer_norm_epsilon": own.number("layer_norm_eps rms_norm_eps norm_eps"),
        "projection_dim": source.text.width,
        **(_pictures(source) if sees else {"num_mel_bins": own.count("num_mel_bins")}),
        **encoder.keys(source),
    }
    return {
        f"clip.has_{encoder.kind}_encoder": True,
        "clip.projector_type": encoder.projector,
        **(_activation(str(own.get("hidden_act"))) if sees else {}),
        **{f"clip.{encoder.kind}.{key}": value for key, value in keys.items() if value is not None},
    }


def _pictures(source: Source) -> Keys:
    return {
        "image_size": source.own.count("image_size"),
        "patch_size": source.own.count("patch_size"),
        "image_mean": source.colours("image_mean"),
        "image_std": source.colours("image_std"),
    }


def _activation(name: str) -> dict[str, object]:
    if name == "quick_gelu":
        return {}
    if name in ("gelu", "gelu_pytorch_tanh"):
        return {"clip.use_gelu": True}
    if name == "silu":
        return {"clip.use_silu": True}
    raise UnsupportedModel(f"config.json: the encoder's hidden_act is {name!r}: quick_gelu, gelu and silu are known")
