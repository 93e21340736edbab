"""Pictures for models that see: reading and cutting them, and encoders that make embedding rows of them."""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from llamina.errors import UnsupportedModel
from llamina.models import Weights
from llamina.ops import Weight
from llamina.vision import families
from llamina.vision.encoder import Encoder, Part, projector_of
from llamina.vision.picture import LIMITS, Limits, Picture, data_of, data_url, read_picture
from llamina.vision.runner import EncodedPicture, EncoderRunner, Rows

ALIASES = {"qwen2.5vl_merger": "qwen2vl_merger", "ldpv2": "ldp"}  # projectors that share a file


def projectors() -> list[str]:
    """Every `clip.projector_type` that can be run."""
    return sorted([*ALIASES, *(module.name for module in iter_modules(families.__path__))])


def about(projector: str) -> str:
    """What a projector's family covers, in a sentence."""
    family = import_module(f"{families.__name__}.{ALIASES.get(projector, projector)}")
    return str(family.__doc__).partition("\n")[0]


def build(metadata: Mapping[str, Any], tensors: Mapping[str, Weight]) -> Encoder:
    """The encoder that an mmproj file describes. Raises UnsupportedModel for one that is not known here."""
    architecture = metadata.get("general.architecture")
    if architecture != "clip":
        raise UnsupportedModel(f"general.architecture is {architecture!r}: an mmproj file has 'clip'")
    name = projector_of(metadata)
    if metadata.get("clip.has_vision_encoder") is not True or name not in projectors():
        known = ", ".join(projectors())
        raise UnsupportedModel(f"the file has the projector {name!r}: pictures are encoded for {known}")
    family = import_module(f"{families.__name__}.{ALIASES.get(name, name)}")
    encoder: Encoder = family.Family(metadata, Weights(tensors))
    return encoder


__all__ = [
    "LIMITS",
    "EncodedPicture",
    "Encoder",
    "EncoderRunner",
    "Limits",
    "Part",
    "Picture",
    "Rows",
    "about",
    "build",
    "data_of",
    "data_url",
    "projectors",
    "read_picture",
]
