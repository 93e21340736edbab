"""Pictures for models that see: reading and cutting them, and encoders that make embedding rows of them."""

from collections.abc import Mapping
from typing import Any

from llamina.media import EncoderRunner, Rows, family_of, names
from llamina.media import about as about_family
from llamina.models import Weights
from llamina.ops import Weight
from llamina.vision import families
from llamina.vision.encoder import Encoder, Part
from llamina.vision.picture import LIMITS, Limits, Picture, data_of, data_url, file_url, read_picture

ALIASES = {  # projectors that share a file
    "qwen2.5vl_merger": "qwen2vl_merger",
    "qwen2.5o": "qwen2vl_merger",
    "ldpv2": "ldp",
}


def projectors() -> list[str]:
    """Every `clip.projector_type` that can be run."""
    return names(families, ALIASES)


def about(projector: str) -> str:
    """What a projector's family covers, in a sentence."""
    return about_family(projector, families, ALIASES)


def build(metadata: Mapping[str, Any], tensors: Mapping[str, Weight]) -> Encoder:
    """The picture encoder that an mmproj file describes. Raises UnsupportedModel for one that is not known here."""
    encoder: Encoder = family_of("vision", metadata, families, ALIASES)(metadata, Weights(tensors))
    return encoder


__all__ = [
    "LIMITS",
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
    "file_url",
    "projectors",
    "read_picture",
]
