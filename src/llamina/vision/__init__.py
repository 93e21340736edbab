"""Pictures for models that see: reading and cutting them, and encoders that make embedding rows of them."""

from collections.abc import Mapping
from typing import Any

from llamina.media import EncoderRunner, Rows, family_of
from llamina.models import Weights
from llamina.ops import Weight
from llamina.vision import families
from llamina.vision.encoder import Encoder, Part
from llamina.vision.picture import LIMITS, Limits, Picture, data_of, data_url, read_picture

ALIASES = {  # projectors that share a file
    "qwen2.5vl_merger": "qwen2vl_merger",
    "qwen2.5o": "qwen2vl_merger",
    "ldpv2": "ldp",
}


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
    "build",
    "data_of",
    "data_url",
    "read_picture",
]
